// SPDX-License-Identifier: Apache-2.0

package iam

import "maps"

// Mark puts tags on a role that only AWS itself may put there: their keys begin with aws:.
func (s *IAM) Mark(role string, tags map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.st.Roles[role]
	if !ok {
		return
	}

	own := maps.Clone(tags)
	maps.Copy(own, r.Tags)
	maps.Copy(own, tags)
	r.Tags = own
	_ = s.saveState() // a state that cannot be saved shows at the next change
}
