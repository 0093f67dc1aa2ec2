// SPDX-License-Identifier: Apache-2.0

package kms

import "maps"

// ResourceTags returns the tags of keys by ARN, also of those that are deleted later.
func (s *Service) ResourceTags() map[string]map[string]string {
	out := map[string]map[string]string{}
	s.store.View(func() {
		for id, k := range s.st.Keys {
			if _, err := s.findKey(&id); err == nil {
				out[s.keyARN(id)] = maps.Clone(k.Tags)
			}
		}
	})

	return out
}
