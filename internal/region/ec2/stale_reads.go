// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// SetStaleReads delays the visibility of new resources, as in AWS: the first n calls that name a new resource
// or would list it do not see it, and the first n filters see the former tags of a resource. 0, the default, makes changes
// visible at once.
func (s *Service) SetStaleReads(n int) {
	s.store.Lock()
	defer s.store.Unlock()
	s.staleReads = n
	s.unseenReads = map[string]int{}
	s.unseenTags = map[string]*formerTags{}
}

// trackNewID starts the delay of a new resource. The caller holds the lock.
func (s *Service) trackNewID(prefix, id string) {
	late := []string{"vpc", "dopt", "subnet", "igw", "eipalloc", "nat", "rtb", "sg", "vol", "lt", "pcx"}
	if s.staleReads > 0 && slices.Contains(late, prefix) {
		s.unseenReads[id] = s.staleReads
		s.unseenTags[id] = &formerTags{reads: s.staleReads}
	}
}

// formerTags are the tags of a resource before they were changed.
type formerTags struct {
	reads int // how many more calls see them
	tags  map[string]string
}

// keepTags makes filters see the present tags of a resource for a while, before they are changed. The caller holds the lock.
func (s *Service) keepTags(id string) {
	if s.staleReads == 0 {
		return
	}

	kept := &formerTags{reads: s.staleReads, tags: maps.Clone(s.st.Tags[id])}
	if former, young := s.unseenTags[id]; young {
		kept.tags = former.tags
	}

	s.unseenTags[id] = kept
}

// matchesSeenTags reports whether a resource matches with the tags that a call sees, and counts the call if these are the
// former ones. The caller holds the lock.
func (s *Service) matchesSeenTags(id string, matches func(tags map[string]string) bool) bool {
	former, young := s.unseenTags[id]
	now := matches(s.st.Tags[id])
	if !young || matches(former.tags) == now {
		return now
	}

	if former.reads--; former.reads == 0 {
		delete(s.unseenTags, id)
	}

	return !now
}

// consumeStaleRead reports whether a call about id comes too early to see the resource, and counts the call.
// The caller holds the lock.
func (s *Service) consumeStaleRead(id string) bool {
	n, young := s.unseenReads[id]
	if !young {
		return false
	}

	if n--; n == 0 {
		delete(s.unseenReads, id)
	} else {
		s.unseenReads[id] = n
	}

	return true
}

// checkStaleReads refuses a request that names a resource that is not visible yet. The caller holds the lock.
func (s *Service) checkStaleReads(in any) error {
	if len(s.unseenReads) == 0 {
		return nil
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return fmt.Errorf("read the ids of a request: %w", err)
	}

	named := sdkshape.CollectStrings(
		tree,
		isResourceID,
		"TagSpecifications",
		"Tags",
		"Filters",
		"Filter",
		"ClientToken",
		"UserData",
	)

	for _, id := range named {
		if s.consumeStaleRead(id) {
			return notFound(id)
		}
	}

	return nil
}
