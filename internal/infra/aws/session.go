// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// made are the identities of what this run made, by kind.
type made struct {
	mu     sync.Mutex
	byKind map[string][]string
}

func (m *made) add(kind, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byKind == nil {
		m.byKind = map[string][]string{}
	}
	m.byKind[kind] = append(m.byKind[kind], id)
}

// take returns what was made, and forgets it.
func (m *made) take() map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.byKind
	m.byKind = nil
	return out
}

// find adds a reader that finds resources of kinds by their tags, or through what is found so. A kind may have several.
func (c *Cloud) find(r reader, kinds ...graph.Resource) {
	if c.finders == nil {
		c.finders = map[string][]int{}
	}
	for _, k := range kinds {
		name := k.Kind().Name
		c.finders[name] = append(c.finders[name], len(c.readers))
	}
	c.readers = append(c.readers, r)
}

// Begin implements [plan.Session].
func (c *Cloud) Begin(p plan.Plan) {
	c.made.take()
	for _, f := range c.begins {
		f(p)
	}
}

// How long, and how often, End looks for what was made.
const (
	seenPatience = time.Minute
	seenPause    = 500 * time.Millisecond
)

// End implements [plan.Session]. It returns when AWS lists all that was made and would be made again if the next plan
// did not see it. What has a name of its own cannot be made twice.
func (c *Cloud) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, seenPatience)
	defer cancel()
	open := map[unlisted]bool{}
	for kind, ids := range c.made.take() {
		if len(c.finders[kind]) == 0 {
			continue
		}
		for _, id := range ids {
			if id != ruleExists {
				open[unlisted{kind, id}] = true
			}
		}
	}
	for {
		if err := c.look(ctx, open); err != nil {
			return err
		}
		if len(open) == 0 {
			return nil
		}
		if sleep(ctx, seenPause) != nil {
			return fmt.Errorf("AWS does not list yet what was made: %s; wait a minute before the next apply", unseenOf(open))
		}
	}
}

// unlisted is what was made and is not listed yet.
type unlisted struct{ kind, id string }

func unseenOf(open map[unlisted]bool) string {
	var out []string
	for u := range open {
		out = append(out, u.id)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// look reads once and takes out of open what it sees.
func (c *Cloud) look(ctx context.Context, open map[unlisted]bool) error {
	needed := map[int]bool{}
	for u := range open {
		for _, i := range c.finders[u.kind] {
			needed[i] = true
		}
	}
	readers := slices.Sorted(maps.Keys(needed))
	lists, errs := make([][]plan.Actual, len(readers)), make([]error, len(readers))
	var wg sync.WaitGroup
	for n, i := range readers {
		wg.Go(func() { lists[n], errs[n] = c.readers[i](ctx) })
	}
	wg.Wait()
	for _, a := range slices.Concat(lists...) {
		delete(open, unlisted{a.Resource.Kind().Name, a.ID})
	}
	if ctx.Err() == nil {
		return errors.Join(errs...)
	}
	return nil // End says what is not seen yet
}
