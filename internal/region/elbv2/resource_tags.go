// SPDX-License-Identifier: Apache-2.0

package elbv2

import "maps"

// ResourceTags returns the tags of load balancers, target groups and listeners, by ARN.
func (s *Service) ResourceTags() map[string]map[string]string {
	out := map[string]map[string]string{}
	s.store.View(func() {
		for arn, tags := range s.st.Tags {
			out[arn] = maps.Clone(tags)
		}
	})

	return out
}
