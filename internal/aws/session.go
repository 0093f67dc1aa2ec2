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

	"github.com/slipway-k8s/slipway/internal/graph"
	"github.com/slipway-k8s/slipway/internal/plan"
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

// find adds a reader that finds resources of kinds by their tags, or through what is found so.
func (c *Cloud) find(r reader, kinds ...graph.Resource) {
	if c.finders == nil {
		c.finders = map[string]int{}
	}
	for _, k := range kinds {
		c.finders[k.Kind().Name] = len(c.readers)
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
	open := map[int]map[string]bool{} // identities that are not seen yet, by reader
	for kind, ids := range c.made.take() {
		i, ok := c.finders[kind]
		if !ok {
			continue
		}
		if open[i] == nil {
			open[i] = map[string]bool{}
		}
		for _, id := range ids {
			if id != ruleExists {
				open[i][id] = true
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

func unseenOf(open map[int]map[string]bool) string {
	var out []string
	for _, ids := range open {
		out = slices.AppendSeq(out, maps.Keys(ids))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// look reads once and takes out of open what it sees.
func (c *Cloud) look(ctx context.Context, open map[int]map[string]bool) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for i, ids := range maps.Clone(open) {
		wg.Go(func() {
			list, err := c.readers[i](ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && ctx.Err() == nil {
				errs = append(errs, err)
			}
			for _, a := range list {
				delete(ids, a.ID)
			}
			if len(ids) == 0 {
				delete(open, i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
