// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/sleep"
)

// createdIDs are the ids of the resources that were created since the plan began.
type createdIDs struct {
	mu     sync.Mutex
	byKind map[string][]string
}

func (s *createdIDs) add(kind, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKind == nil {
		s.byKind = map[string][]string{}
	}

	s.byKind[kind] = append(s.byKind[kind], id)
}

// drain returns the ids by kind, and clears them.
func (s *createdIDs) drain() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.byKind
	s.byKind = nil

	return out
}

// addReader adds a reader that finds resources of kinds by their tags, or through resources that it
// finds by their tags. EndPlan waits until a reader of a kind lists the created resources of that kind: it asks the readers
// in the order in which they were added.
func (c *Cloud) addReader(r resourceReader, kinds ...graph.Resource) {
	if c.readersByKind == nil {
		c.readersByKind = map[string][]int{}
	}

	c.readers = append(c.readers, r)
	for _, k := range kinds {
		name := k.Kind().Name
		c.readersByKind[name] = append(c.readersByKind[name], len(c.readers)-1)
	}
}

// BeginPlan implements [plan.BatchSession].
func (c *Cloud) BeginPlan(p plan.Plan) {
	c.created.drain()
	for _, f := range c.planHooks {
		f(p)
	}
}

const (
	// listTimeout is how long EndPlan waits until AWS lists the created resources.
	listTimeout = time.Minute
	// listInterval is the pause between two lists.
	listInterval = 500 * time.Millisecond
)

// EndPlan implements [plan.BatchSession]. It returns when AWS lists all created resources that the
// next plan would create again if AWS did not list them. AWS lists auto scaling groups at once. It fails if
// AWS does not list the others within a minute.
func (c *Cloud) EndPlan(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	unlisted := c.drainUnlisted()
	for len(unlisted) > 0 {
		if err := c.removeListed(ctx, unlisted); err != nil {
			return err
		}

		if len(unlisted) > 0 && sleep.For(ctx, listInterval) != nil {
			return fmt.Errorf(
				"AWS does not list resources that were just created: %s; wait a minute before the next apply",
				joinUnlistedIDs(unlisted),
			)
		}
	}

	return nil
}

// unlistedResource is a resource that was created and that AWS does not list yet.
type unlistedResource struct{ kind, id string }

// mustBeListed reports whether EndPlan waits until AWS lists a created resource. It does not wait for the associations and
// routes of the cluster's tables: they cannot be created twice, see findInTable, and are deleted with their table. A route to
// a peering may be in an unmanaged table.
func mustBeListed(r graph.Resource) bool {
	route, isRoute := r.(awskind.Route)
	_, isAssociation := r.(awskind.RouteTableAssociation)

	return !isAssociation && (!isRoute || route.Peering.Literal() != "")
}

// drainUnlisted returns the created resources that EndPlan has to wait for.
func (c *Cloud) drainUnlisted() map[unlistedResource]bool {
	unlisted := map[unlistedResource]bool{}
	for kind, ids := range c.created.drain() {
		if len(c.readersByKind[kind]) == 0 {
			continue
		}

		for _, id := range ids {
			if id != existingRuleID {
				unlisted[unlistedResource{kind, id}] = true
			}
		}
	}

	return unlisted
}

// maxUnlistedIDs is how many ids the error of EndPlan contains.
const maxUnlistedIDs = 10

// unlistedIDs returns the ids of resources, sorted.
func unlistedIDs(unlisted map[unlistedResource]bool) []string {
	var out []string
	for u := range unlisted {
		out = append(out, u.id)
	}

	slices.Sort(out)

	return out
}

func joinUnlistedIDs(unlisted map[unlistedResource]bool) string {
	out := unlistedIDs(unlisted)
	if more := len(out) - maxUnlistedIDs; more > 0 {
		out = append(out[:maxUnlistedIDs], fmt.Sprintf("and %d more", more))
	}

	return strings.Join(out, ", ")
}

// removeListed removes from unlisted what AWS lists now. A reader finds the resources of a cluster by
// their tags, so one list of these tags takes the place of a list of each kind. Resources that have no
// tags, such as routes, are listed by the readers of their kinds.
func (c *Cloud) removeListed(ctx context.Context, unlisted map[unlistedResource]bool) error {
	tagged, err := c.listTagged(ctx, unlistedIDs(unlisted))
	if err != nil {
		return unlessEnded(ctx, err)
	}

	for u := range unlisted {
		if tagged[u.id] {
			delete(unlisted, u)
		}
	}

	for turn := 0; ; turn++ {
		readers := c.nextReaders(unlisted, turn)
		if len(readers) == 0 {
			return nil
		}

		found, err := readEach(readers, func(i int) ([]plan.ActualResource, error) {
			return c.readers[i](WithoutDetails(ctx))
		})

		for _, a := range found {
			delete(unlisted, unlistedResource{a.Resource.Kind().Name, a.ID})
		}

		if err != nil {
			return unlessEnded(ctx, err)
		}
	}
}

// unlessEnded returns err, or nil if ctx has ended: then EndPlan reports what is still unlisted.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}

	return nil
}

// nextReaders returns the indexes of the readers that come at turn for the kinds of unlisted.
func (c *Cloud) nextReaders(unlisted map[unlistedResource]bool, turn int) []int {
	var out []int
	for u := range unlisted {
		if all := c.readersByKind[u.kind]; turn < len(all) && !slices.Contains(out, all[turn]) {
			out = append(out, all[turn])
		}
	}

	slices.Sort(out)

	return out
}
