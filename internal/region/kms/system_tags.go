// SPDX-License-Identifier: Apache-2.0

package kms

import "maps"

// SetSystemTags sets tags of a key whose keys begin with aws:, such as aws:cloudformation:stack-name. Requests cannot
// set them. Mark does nothing if the key does not exist.
func (s *Service) SetSystemTags(id string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the tags
		s.addSystemTags(id, tags)
		return nil
	})
}

func (s *Service) addSystemTags(id string, tags map[string]string) {
	k, ok := s.st.Keys[id]
	if !ok {
		return
	}

	s.keepMarks(k)
	own := maps.Clone(k.Tags)
	if own == nil {
		own = map[string]string{}
	}

	maps.Copy(own, tags)
	k.Tags = own
	s.store.MarkChanged()
}
