// SPDX-License-Identifier: Apache-2.0

package kms

import "maps"

// Mark puts tags on a key that only AWS itself may put there: their keys begin with aws:.
func (s *Service) Mark(id string, tags map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.st.Keys[id]
	if !ok {
		return
	}

	own := maps.Clone(k.Tags)
	if own == nil {
		own = map[string]string{}
	}

	maps.Copy(own, tags)
	k.Tags = own
	_ = s.saveState() // a state that cannot be saved shows at the next change
}
