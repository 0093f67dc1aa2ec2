// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SetVisibility delays the visibility of new hosted zones: calls that come too early do not see a new one that they name or
// would list. Records of a visible zone are listed at once, as AWS documents. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// unseenRules are how operations treat hosted zones that are not visible yet.
func unseenRules() visibility.Rules {
	idOf := func(member string) func(any) string {
		return func(entry any) string { return trimIDPath(wire.StringMember(entry, member)) }
	}

	return visibility.Rules{
		Named: func(operation string, in any) []string {
			if operation == "ListHostedZonesByName" { // it has the id where a page begins
				return nil
			}

			var ids []string
			for _, text := range wire.Strings(in, "CallerReference", "AddTags") {
				ids = append(ids, trimIDPath(text))
			}

			return ids
		},
		NotFound: func(_, id string) error { return newNotFoundError(id) },
		Listed: map[string]func(any) string{
			"HostedZones":         idOf("Id"),
			"HostedZoneSummaries": idOf("HostedZoneId"),
		},
	}
}
