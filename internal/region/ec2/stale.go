// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// SetStale makes EC2 tell of new resources late, as AWS may: the first n calls that name one, or would list it, do not
// see it. 0 is the beginning, and all is seen at once.
func (s *Service) SetStale(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale, s.young = n, map[string]int{}
}

// born notes a new id. The caller holds mu.
func (s *Service) born(prefix, id string) {
	late := []string{"vpc", "subnet", "igw", "eipalloc", "nat", "rtb", "sg", "vol", "lt"}
	if s.stale > 0 && slices.Contains(late, prefix) {
		s.young[id] = s.stale
	}
}

// hidden says whether a call that is about id comes too early to see it. The caller holds mu.
func (s *Service) hidden(id string) bool {
	n, young := s.young[id]
	if !young {
		return false
	}
	if n--; n == 0 {
		delete(s.young, id)
	} else {
		s.young[id] = n
	}
	return true
}

// seen refuses a request that names what is not seen yet. The caller holds mu.
func (s *Service) seen(in any) error {
	if len(s.young) == 0 {
		return nil
	}
	tree, err := record.Fields(in)
	if err != nil {
		return fmt.Errorf("look at the ids of a request: %w", err)
	}
	for _, id := range record.Texts(tree, isID, "TagSpecifications", "Tags", "Filters", "Filter", "ClientToken", "UserData") {
		if s.hidden(id) {
			return notFound(id)
		}
	}
	return nil
}
