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

// createdIDs are the identities of what this run made, by kind.
type createdIDs struct {
	mu     sync.Mutex
	byKind map[string][]string
}

func (m *createdIDs) add(kind, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byKind == nil {
		m.byKind = map[string][]string{}
	}

	m.byKind[kind] = append(m.byKind[kind], id)
}

// drain returns what was made, and forgets it.
func (m *createdIDs) drain() map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.byKind
	m.byKind = nil

	return out
}

// addReader adds a reader that finds resources of kinds by their tags, or through what is found so. A kind may have several.
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

// BeginPlan implements [plan.Session].
func (c *Cloud) BeginPlan(p plan.Plan) {
	c.created.drain()
	for _, f := range c.planHooks {
		f(p)
	}
}

// How long, and how often, End looks for what was made.
const (
	listTimeout  = time.Minute
	listInterval = 500 * time.Millisecond
)

// EndPlan implements [plan.Session]. It returns when AWS lists all that was made and would be made again if the next plan
// did not see it. What has a name of its own cannot be made twice.
func (c *Cloud) EndPlan(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	open := map[unlistedResource]bool{}

	for kind, ids := range c.created.drain() {
		if len(c.readersByKind[kind]) == 0 {
			continue
		}

		for _, id := range ids {
			if id != existingRuleID {
				open[unlistedResource{kind, id}] = true
			}
		}
	}

	for {
		if err := c.removeListed(ctx, open); err != nil {
			return err
		}

		if len(open) == 0 {
			return nil
		}

		if transport.Sleep(ctx, listInterval) != nil {
			return fmt.Errorf(
				"AWS does not list yet what was made: %s; wait a minute before the next apply",
				joinUnlistedIDs(open),
			)
		}
	}
}

// unlistedResource is what was made and is not listed yet.
type unlistedResource struct{ kind, id string }

func joinUnlistedIDs(open map[unlistedResource]bool) string {
	var out []string
	for u := range open {
		out = append(out, u.id)
	}

	slices.Sort(out)

	return strings.Join(out, ", ")
}

// removeListed reads once and takes out of open what it sees.
func (c *Cloud) removeListed(ctx context.Context, open map[unlistedResource]bool) error {
	needed := map[int]bool{}
	for u := range open {
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
		delete(open, unlistedResource{a.Resource.Kind().Name, a.ID})
	}

	if ctx.Err() == nil {
		return errors.Join(errs...)
	}

	return nil // End says what is not seen yet
}
