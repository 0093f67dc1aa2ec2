// SPDX-License-Identifier: Apache-2.0

package elbv2

import "strings"

// HasTarget says whether a load balancer has a name in the zone that AWS keeps for those of the region.
func (s *Service) HasTarget(zone, name string) (found bool) {
	_ = s.store.WithLock(func() error { // it changes nothing
		for _, b := range s.st.Balancers {
			found = found ||
				*b.Shape.CanonicalHostedZoneId == zone && strings.EqualFold(*b.Shape.DNSName, name)
		}

		return nil
	})

	return found
}

// Mark puts tags on a resource that only AWS itself may put there: their keys begin with aws:.
func (s *Service) Mark(arn string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // a state that cannot be saved shows at the next change
		if s.checkResourcesExist([]string{arn}) == nil {
			s.setTags(arn, tags)
			s.store.MarkChanged()
		}

		return nil
	})
}
