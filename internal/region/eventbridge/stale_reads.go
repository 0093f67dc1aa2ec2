// SPDX-License-Identifier: Apache-2.0

package eventbridge

import (
	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// SetVisibility delays the visibility of new rules: calls that come too early do not see a new one that they name or would
// list. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// unseenRules are how operations treat rules that are not visible yet.
func (s *Service) unseenRules() visibility.Rules {
	return visibility.Rules{
		Named: func(operation string, in any) []string {
			if operation == "PutRule" || operation == "DeleteRule" { // a rule that does not exist is no error
				return nil
			}

			return []string{s.requestedRule(in)}
		},
		NotFound: func(_, name string) error { return newNotFoundError(name) },
		Listed: map[string]func(any) string{
			"Rules": visibility.IDsByMember("", "Name"),
		},
	}
}
