// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// ResourceTags returns the tags of buckets by ARN.
func (s *Service) ResourceTags() map[string]map[string]string {
	out := map[string]map[string]string{}
	s.store.View(func() {
		for name, b := range s.catalog.buckets {
			var set s3.Tagging
			if json.Unmarshal(b.Config[taggingSettingName], &set) != nil {
				continue // the bucket has no tags
			}

			tags := map[string]string{}
			for _, t := range set.TagSet {
				tags[sdkshape.String(t.Key)] = sdkshape.String(t.Value)
			}

			out["arn:aws:s3:::"+name] = tags
		}
	})

	return out
}
