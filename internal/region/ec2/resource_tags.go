// SPDX-License-Identifier: Apache-2.0

package ec2

import "maps"

// ResourceTags returns the tags of all resources that have some, by ARN.
func (s *Service) ResourceTags() map[string]map[string]string {
	out := map[string]map[string]string{}
	s.store.View(func() {
		for id, tags := range s.st.Tags {
			out[s.cfg.resourceARN(id)] = maps.Clone(tags)
		}
	})

	return out
}
