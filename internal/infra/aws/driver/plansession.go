// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
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
// finds by their tags. A kind may have several readers.
func (c *Cloud) addReader(r resourceReader, kinds ...graph.Resource) {
	if c.readersByKind == nil {
		c.readersByKind = map[string][]int{}
	}

	for _, k := range kinds {
		name := k.Kind().Name
		c.readersByKind[name] = append(c.readersByKind[name], len(c.readers))
	}

	c.readers = append(c.readers, r)
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
// next plan would create again if AWS did not list them. Resources with a name that is unique in
// AWS are not waited for: they cannot be created twice. It fails if AWS does not list them within a
// minute.
func (c *Cloud) EndPlan(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	unlisted := c.drainUnlisted()
	for {
		if err := c.removeListed(ctx, unlisted); err != nil {
			return err
		}

		if len(unlisted) == 0 {
			return nil
		}

		if transport.Sleep(ctx, listInterval) != nil {
			return fmt.Errorf(
				"AWS does not list resources that were just created: %s; wait a minute before the next apply",
				joinUnlistedIDs(unlisted),
			)
		}
	}
}

// unlistedResource is a resource that was created and that AWS does not list yet.
type unlistedResource struct{ kind, id string }

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

func joinUnlistedIDs(unlisted map[unlistedResource]bool) string {
	var out []string
	for u := range unlisted {
		out = append(out, u.id)
	}

	slices.Sort(out)

	return strings.Join(out, ", ")
}

// removeListed calls the readers once, and removes the resources that they find from unlisted.
func (c *Cloud) removeListed(ctx context.Context, unlisted map[unlistedResource]bool) error {
	needed := map[int]bool{}
	for u := range unlisted {
		for _, i := range c.readersByKind[u.kind] {
			needed[i] = true
		}
	}

	readers := slices.Sorted(maps.Keys(needed))
	lists := make([][]plan.ActualResource, len(readers))
	errs := make([]error, len(readers))

	var wg sync.WaitGroup
	for n, i := range readers {
		wg.Go(func() { lists[n], errs[n] = c.readers[i](ctx) })
	}

	wg.Wait()

	for _, a := range slices.Concat(lists...) {
		delete(unlisted, unlistedResource{a.Resource.Kind().Name, a.ID})
	}

	if ctx.Err() == nil {
		return errors.Join(errs...)
	}

	return nil // EndPlan reports what is still unlisted
}
