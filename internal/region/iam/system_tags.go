// SPDX-License-Identifier: Apache-2.0

package iam

import "maps"

// SetSystemTags sets tags of a role whose keys begin with aws:, such as aws:cloudformation:stack-name. Requests cannot
// set them. Mark does nothing if the role does not exist.
func (s *IAM) SetSystemTags(role string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the tags
		if s.st.addSystemTags(role, tags) {
			s.store.MarkChanged()
		}

		return nil
	})
}

// addSystemTags adds tags to a role and reports whether it exists.
func (st *serviceState) addSystemTags(role string, tags map[string]string) bool {
	r, ok := st.Roles[role]
	if !ok {
		return false
	}

	own := maps.Clone(tags)
	maps.Copy(own, r.Tags)
	maps.Copy(own, tags)
	r.Tags = own

	return true
}
