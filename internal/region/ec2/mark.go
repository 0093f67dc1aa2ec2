// SPDX-License-Identifier: Apache-2.0

package ec2

// Mark puts tags on a resource that only AWS itself may put there: their keys begin with aws:. What is not there, or
// takes no tags, is left alone.
func (s *Service) Mark(id string, tags map[string]string) {
	_ = s.locked(func() error { // a state that cannot be saved shows at the next change
		if s.exists(id) {
			s.setTags(id, tags)
			s.changed()
		}
		return nil
	})
}
