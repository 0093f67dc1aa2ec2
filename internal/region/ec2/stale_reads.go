// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// SetVisibility delays the visibility of new resources, as in AWS: calls that come too early do not see a new resource that they
// name or would list, and filters see the former tags of a resource. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) {
	s.store.Lock()
	defer s.store.Unlock()
	s.delay = d
	s.unseen = map[string]*visibility.Pending{}
	s.unseenTags = map[string]*formerTags{}
}

// trackNewID starts the delay of a new resource. The caller holds the lock.
func (s *Service) trackNewID(prefix, id string) {
	late := []string{"vpc", "dopt", "subnet", "igw", "eipalloc", "nat", "rtb", "sg", "vol", "lt", "pcx"}
	if s.delay.IsZero() || !slices.Contains(late, prefix) {
		return
	}

	now := s.cfg.Now()
	maps.DeleteFunc(s.unseen, func(_ string, p *visibility.Pending) bool { return p.HasEnded(now) })
	maps.DeleteFunc(s.unseenTags, func(_ string, f *formerTags) bool { return f.pending.HasEnded(now) })
	s.unseen[id] = s.delay.Begin(now)
	s.unseenTags[id] = &formerTags{pending: s.delay.Begin(now)}
}

// formerTags are the tags of a resource before they were changed.
type formerTags struct {
	pending *visibility.Pending // until calls see the change
	tags    map[string]string
}

// keepTags makes filters see the present tags of a resource for a while, before they are changed. The caller holds the lock.
func (s *Service) keepTags(id string) {
	if s.delay.IsZero() {
		return
	}

	kept := &formerTags{pending: s.delay.Begin(s.cfg.Now()), tags: maps.Clone(s.st.Tags[id])}
	if former, young := s.unseenTags[id]; young && !former.pending.HasEnded(s.cfg.Now()) {
		kept.tags = former.tags
	}

	s.unseenTags[id] = kept
}

// matchesSeenTags reports whether a resource matches with the tags that a call sees, and counts the call if these are the
// former ones. The caller holds the lock.
func (s *Service) matchesSeenTags(id string, matches func(tags map[string]string) bool) bool {
	former, young := s.unseenTags[id]
	now := matches(s.st.Tags[id])
	if !young || matches(former.tags) == now || !former.pending.Hides(s.cfg.Now()) {
		return now
	}

	return !now
}

// isUnseen reports whether a call about id comes too early to see the resource, and counts the call.
// The caller holds the lock.
func (s *Service) isUnseen(id string) bool { return s.unseen[id].Hides(s.cfg.Now()) }

// checkVisible refuses a request that names a resource that is not visible yet. The caller holds the lock.
func (s *Service) checkVisible(in any) error {
	if len(s.unseen) == 0 {
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
		if s.isUnseen(id) {
			return notFound(id)
		}
	}

	return nil
}
