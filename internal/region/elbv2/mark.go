// SPDX-License-Identifier: Apache-2.0

package elbv2

// Mark puts tags on a resource that only AWS itself may put there: their keys begin with aws:.
func (s *Service) Mark(arn string, tags map[string]string) {
	_ = s.book.Do(func() error { // a state that cannot be saved shows at the next change
		if s.tagged([]string{arn}) == nil {
			s.setTags(arn, tags)
			s.book.Dirty()
		}
		return nil
	})
}
