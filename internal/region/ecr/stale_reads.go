// SPDX-License-Identifier: Apache-2.0

package ecr

import (
	sdk "github.com/aws/aws-sdk-go/service/ecr"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// SetVisibility delays the visibility of new repositories: calls, and clients of the registry, that come too early do not
// see a new one. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// unseenRules are how operations treat repositories that are not visible yet.
func (s *Service) unseenRules() visibility.Rules {
	return visibility.Rules{
		Named: func(_ string, in any) []string {
			if in, ok := in.(*sdk.DescribeRepositoriesInput); ok {
				return sdkshape.Strings(in.RepositoryNames)
			}

			return nil
		},
		NotFound: func(_, id string) error { return s.newNotFoundError(id) },
		Listed: map[string]func(any) string{
			"Repositories": visibility.IDsByMember("", "RepositoryName"),
		},
	}
}
