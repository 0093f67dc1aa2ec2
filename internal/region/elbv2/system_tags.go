// SPDX-License-Identifier: Apache-2.0

package elbv2

import "strings"

// HasDNSName reports whether a load balancer has the DNS name in the hosted zone, which is AWS's zone for the
// load balancers of the region.
func (s *Service) HasDNSName(zone, name string) (found bool) {
	s.store.View(func() {
		for _, b := range s.st.Balancers {
			found = found ||
				*b.Shape.CanonicalHostedZoneId == zone && strings.EqualFold(*b.Shape.DNSName, name)
		}
	})

	return found
}

// SetSystemTags sets tags whose keys begin with aws:, such as aws:cloudformation:stack-name. Requests cannot set them.
// Mark does nothing if the resource does not exist.
func (s *Service) SetSystemTags(arn string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the tags
		if s.checkResourcesExist([]string{arn}) == nil {
			s.setTags(arn, tags)
			s.store.MarkChanged()
		}

		return nil
	})
}
