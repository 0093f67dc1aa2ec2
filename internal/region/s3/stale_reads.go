// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SetVisibility delays the visibility of new buckets: calls that come too early do not see a new one that they name or would
// list. Objects are visible at once: since December 2020, S3 reads what was written before. By default buckets are, too.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// unseenRules are how operations treat buckets that are not visible yet.
func unseenRules() visibility.Rules {
	return visibility.Rules{
		Named: func(operation string, in any) []string {
			if operation == "CreateBucket" {
				return nil
			}

			ids := []string{wire.StringMember(in, "Bucket")}
			if source, err := parseCopySource(wire.StringMember(in, "CopySource")); err == nil {
				ids = append(ids, source.bucket)
			}

			return ids
		},
		NotFound: func(operation, id string) error {
			if operation == "HeadBucket" || operation == "HeadObject" {
				return newHeadError()
			}

			return newError(noSuchBucket, detail("BucketName", id))
		},
		Listed: map[string]func(any) string{
			"Buckets": visibility.IDsByMember("", "Name"),
		},
	}
}
