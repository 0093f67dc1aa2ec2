// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"maps"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"
)

// ResourceTags returns the tags of stacks by ARN. Deleted stacks have none.
func (s *Service) ResourceTags() map[string]map[string]string {
	out := map[string]map[string]string{}
	s.store.View(func() {
		for arn, st := range s.state.Stacks {
			if st.Status != sdk.StackStatusDeleteComplete {
				out[arn] = maps.Clone(st.Tags)
			}
		}
	})

	return out
}
