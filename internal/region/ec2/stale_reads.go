// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// SetVisibility delays the visibility of new resources, as in AWS: calls that come too early do not see a new resource that they
// name or would list, and filters see the former tags of a resource. The address of a deleted NAT gateway cannot be released
// for as long. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) {
	s.store.Lock()
	defer s.store.Unlock()
	s.delay = d
	s.unseen.SetDelay(s.cfg.Now, d)
	s.freed.SetDelay(s.cfg.Now, d)
	s.unseenTags = map[string]*formerTags{}
}

// trackNewID starts the delay of a new resource. The caller holds the lock.
func (s *Service) trackNewID(prefix, id string) {
	if s.delay.IsZero() || isSeenAtOnce(prefix) {
		return
	}

	now := s.cfg.Now()
	maps.DeleteFunc(s.unseenTags, func(_ string, f *formerTags) bool { return f.pending.HasEnded(now) })
	s.unseen.Track(id)
	s.unseenTags[id] = &formerTags{pending: s.delay.Begin(now)}
}

// isSeenAtOnce reports whether calls see a new resource with an id of a prefix at once. No request names a reservation.
// Terraform's provider reads DHCP options, key pairs and snapshots in the call after the one that creates them, and does not
// try again.
func isSeenAtOnce(prefix string) bool {
	return slices.Contains([]string{dhcpOptionsPrefix, keyPairPrefix, reservationPrefix, snapshotPrefix}, prefix)
}

// templatePrefix is in front of the names of launch templates in [Service.unseen].
const templatePrefix = "launch-template "

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
	if s.seesAll || !young || matches(former.tags) == now || !former.pending.Hides(s.cfg.Now()) {
		return now
	}

	return !now
}

// isUnseen reports whether a call about id comes too early to see the resource, and counts the call.
// The caller holds the lock.
func (s *Service) isUnseen(id string) bool { return !s.seesAll && s.unseen.Hides(id) }

// checkVisible refuses a request that names a resource that is not visible yet. The caller holds the lock.
func (s *Service) checkVisible(in any) error {
	if s.unseen.HidesNothing() {
		return nil
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return fmt.Errorf("read the ids of a request: %w", err)
	}

	isAny := func(string) bool { return true }
	for _, id := range sdkshape.CollectStrings(tree, isAny, freeTextMembers()...) {
		if s.isUnseen(id) {
			return notFound(id)
		}
	}

	return s.checkNamesVisible(in, tree)
}

// freeTextMembers are the members of requests that name no resource.
func freeTextMembers() []string {
	return []string{"TagSpecifications", "Tags", "Filters", "Filter", "ClientToken", "UserData"}
}

// checkNamesVisible refuses a request with the name of a launch template that is not visible yet. A request that creates one
// need not see it.
func (s *Service) checkNamesVisible(in any, tree map[string]any) error {
	if _, creates := in.(*sdk.CreateLaunchTemplateInput); creates {
		return nil
	}

	for _, name := range collectMembers(tree, "LaunchTemplateName", "LaunchTemplateNames") {
		if s.isUnseen(templatePrefix + name) {
			return newMissingTemplateNameError()
		}
	}

	return nil
}

// collectMembers returns the texts of the members of some names in a request.
func collectMembers(v any, names ...string) []string {
	var out []string

	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			if slices.Contains(names, k) {
				out = append(out, sdkshape.CollectStrings(v[k], func(string) bool { return true })...)
			} else {
				out = append(out, collectMembers(v[k], names...)...)
			}
		}

	case []any:
		for _, e := range v {
			out = append(out, collectMembers(e, names...)...)
		}
	}

	return out
}
