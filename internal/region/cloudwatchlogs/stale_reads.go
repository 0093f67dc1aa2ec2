// SPDX-License-Identifier: Apache-2.0

package cloudwatchlogs

import (
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SetVisibility delays the visibility of new log groups: calls that come too early do not see a new one that they name or
// would list. Other services write to it at once. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// unseenRules are how operations treat log groups that are not visible yet.
func (s *Service) unseenRules() visibility.Rules {
	return visibility.Rules{
		Named: func(operation string, in any) []string {
			if operation == "CreateLogGroup" {
				return nil
			}

			return []string{
				wire.StringMember(in, "LogGroupName"),
				s.nameFromARN(wire.StringMember(in, "ResourceArn")),
			}
		},
		NotFound: func(string, string) error { return newNotFoundError("The specified log group does not exist.") },
		Listed: map[string]func(any) string{
			"LogGroups": visibility.IDsByMember("", "LogGroupName"),
		},
	}
}
