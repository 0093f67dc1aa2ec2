// SPDX-License-Identifier: Apache-2.0

package route53

import "maps"

// ResourceTags returns the tags of hosted zones by ARN.
func (s *Service) ResourceTags() map[string]map[string]string {
	out := map[string]map[string]string{}
	s.store.View(func() {
		for id, z := range s.st.Zones {
			out["arn:aws:route53:::hostedzone/"+id] = maps.Clone(z.Tags)
		}
	})

	return out
}
