// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// appliedKey is where it lies what was brought to AWS last.
func appliedKey(cluster string) string { return cluster + "/applied.json" }

// madeResources are the resources that a walk has made or changed. Many goroutines add to it.
type madeResources struct {
	mu     sync.Mutex
	byAddr map[graph.Addr]graph.Resource
}

func (m *madeResources) add(a graph.Addr, r graph.Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byAddr == nil {
		m.byAddr = map[graph.Addr]graph.Resource{}
	}
	m.byAddr[a] = r
}

// readApplied returns what was applied last, and its version in the store; false if nothing is recorded.
func readApplied(ctx context.Context, s store.Store, cluster string) (plan.Applied, store.Object, error) {
	key := appliedKey(cluster)
	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return plan.Applied{}, store.Object{}, nil
	}
	if err != nil {
		return plan.Applied{}, o, err
	}
	a, err := plan.ParseApplied(o.Body)
	if err != nil {
		return a, o, withHint(fmt.Errorf("%s in %s %w", key, s.URL(), err), "'slipway apply "+cluster+"' writes it anew")
	}
	return a, o, nil
}

// lastApplied is what the state store has of it, as this run read or wrote it last.
type lastApplied struct {
	plan.Applied
	at    store.Object
	known bool
}

// readLast returns what was applied last. Where the view shows that nothing is recorded, the store is not asked.
func (t *target) readLast(ctx context.Context, d *desired) (lastApplied, error) {
	if t.last.known {
		return t.last, nil
	}
	if d.view != nil {
		if holds, known := d.view.Holds(appliedKey(t.name)); known && !holds {
			return lastApplied{known: true}, nil
		}
	}
	a, at, err := readApplied(ctx, t.state, t.name)
	if err != nil && at.ETag == "" { // else it cannot be read, and is written anew
		return lastApplied{}, err
	}
	return lastApplied{a, at, true}, nil
}

func (t *target) writeApplied(ctx context.Context, a plan.Applied, was store.Object) error {
	body, err := a.Encode()
	if err != nil || bytes.Equal(body, was.Body) {
		return err
	}
	o, err := putOver(ctx, t.state, store.Object{Key: appliedKey(t.name), Body: body}, was)
	if err == nil {
		t.last = lastApplied{a, o, true}
	}
	return err
}

// putOver writes an object in the place of the one that was read, or as a new one if none was. It returns what it wrote.
func putOver(ctx context.Context, s store.Store, o, was store.Object) (_ store.Object, err error) {
	if was.ETag == "" {
		o.ETag, err = s.Create(ctx, o.Key, o.Body)
	} else {
		o.ETag, err = s.Update(ctx, o.Key, o.Body, was.ETag)
	}
	return o, err
}

// keepAttempt writes down what is about to be changed in AWS, so that a later look at it does not take our own half-done
// work for somebody else's.
func (t *target) keepAttempt(ctx context.Context, d *desired, p plan.Plan) error {
	if p.Empty() {
		return nil
	}
	last, err := t.readLast(ctx, d)
	if err != nil {
		return err
	}
	return t.writeApplied(ctx, last.Begun(t.op.Token(), p), last.at)
}

// keepApplied writes down what AWS is now, after an apply that succeeded.
func (t *target) keepApplied(ctx context.Context, d *desired) error {
	if t.op == nil {
		return nil // nothing was to be changed, so nothing is written either
	}
	last, err := t.readLast(ctx, d)
	if err != nil {
		return err
	}
	now := plan.Applied{Token: t.op.Token(), When: t.a.Now().UTC(), By: t.a.who("").Owner, Tool: toolVersion(), MachineStore: d.machine.URL()}
	if now.Resources, err = d.plan.Resources(t.made.byAddr); err != nil {
		return err
	}
	if now.Documents, err = documentDigests(ctx, d.view, t.name); err != nil {
		return err
	}
	for _, o := range d.objects {
		now.Objects = append(now.Objects, o.Key)
	}
	for _, name := range pki.KeyNames() {
		now.Objects = append(now.Objects, pki.SecretKey(t.name, name))
	}
	slices.Sort(now.Objects)
	if len(last.Attempts) == 0 && same(last.Applied, now) {
		return nil
	}
	return t.writeApplied(ctx, now, last.at)
}

// same says that two records differ in nothing but who wrote them when.
func same(a, b plan.Applied) bool {
	b.Token, b.When, b.By, b.Tool = a.Token, a.When, a.By, a.Tool
	x, errX := a.Encode()
	y, errY := b.Encode()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
