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

// lastAppliedKey is where it lies what was brought to AWS last.
func lastAppliedKey(cluster string) string { return cluster + "/applied.json" }

// resourceRecorder are the resources that a walk has made or changed. Many goroutines add to it.
type resourceRecorder struct {
	mu     sync.Mutex
	byAddr map[graph.Addr]graph.Resource
}

func (m *resourceRecorder) add(a graph.Addr, r graph.Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byAddr == nil {
		m.byAddr = map[graph.Addr]graph.Resource{}
	}

	m.byAddr[a] = r
}

// readAppliedRecord returns what was applied last, and its version in the store; false if nothing is recorded.
func readAppliedRecord(
	ctx context.Context,
	s store.Store,
	cluster string,
) (plan.LastApplied, store.Object, error) {
	key := lastAppliedKey(cluster)
	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return plan.LastApplied{}, store.Object{}, nil
	}

	if err != nil {
		return plan.LastApplied{}, o, err
	}

	a, err := plan.ParseLastApplied(o.Body)
	if err != nil {
		return a, o, withHint(
			fmt.Errorf("%s in %s %w", key, s.URL(), err),
			"'slipway apply "+cluster+"' writes it anew",
		)
	}

	return a, o, nil
}

// lastAppliedRecord is what the state store has of it, as this run read or wrote it last.
type lastAppliedRecord struct {
	plan.LastApplied
	object store.Object
	loaded bool
}

// readLastApplied returns what was applied last. Where the view shows that nothing is recorded, the store is not asked.
func (t *clusterSession) readLastApplied(ctx context.Context, d *desiredState) (lastAppliedRecord, error) {
	if t.lastApplied.loaded {
		return t.lastApplied, nil
	}

	if d.stateView != nil {
		if holds, known := d.stateView.HasObject(lastAppliedKey(t.name)); known && !holds {
			return lastAppliedRecord{loaded: true}, nil
		}
	}

	a, at, err := readAppliedRecord(ctx, t.guardedState, t.name)
	if err != nil && at.ETag == "" { // else it cannot be read, and is written anew
		return lastAppliedRecord{}, err
	}

	return lastAppliedRecord{a, at, true}, nil
}

func (t *clusterSession) writeLastApplied(ctx context.Context, a plan.LastApplied, was store.Object) error {
	body, err := a.Encode()
	if err != nil || bytes.Equal(body, was.Body) {
		return err
	}

	o, err := replaceObject(ctx, t.guardedState, store.Object{Key: lastAppliedKey(t.name), Body: body}, was)
	if err == nil {
		t.lastApplied = lastAppliedRecord{a, o, true}
	}

	return err
}

// replaceObject writes an object in the place of the one that was read, or as a new one if none was. It returns what it wrote.
func replaceObject(ctx context.Context, s store.Store, o, was store.Object) (_ store.Object, err error) {
	if was.ETag == "" {
		o.ETag, err = s.Create(ctx, o.Key, o.Body)
	} else {
		o.ETag, err = s.Update(ctx, o.Key, o.Body, was.ETag)
	}

	return o, err
}

// recordAttempt writes down what is about to be changed in AWS, so that a later look at it does not take our own half-done
// work for somebody else's.
func (t *clusterSession) recordAttempt(ctx context.Context, d *desiredState, p plan.Plan) error {
	if p.IsEmpty() {
		return nil
	}

	last, err := t.readLastApplied(ctx, d)
	if err != nil {
		return err
	}

	return t.writeLastApplied(ctx, last.WithAttempt(t.operation.Token(), p), last.object)
}

// recordApplied writes down what AWS is now, after an apply that succeeded.
func (t *clusterSession) recordApplied(ctx context.Context, d *desiredState) error {
	if t.operation == nil {
		return nil // nothing was to be changed, so nothing is written either
	}

	last, err := t.readLastApplied(ctx, d)
	if err != nil {
		return err
	}

	now := plan.LastApplied{
		Token:        t.operation.Token(),
		AppliedAt:    t.app.Now().UTC(),
		AppliedBy:    t.app.describeOperator("").Owner,
		Tool:         toolVersion(),
		MachineStore: d.machineStore.URL(),
	}
	if now.Resources, err = d.plan.AppliedResources(t.recorder.byAddr); err != nil {
		return err
	}

	if now.Documents, err = documentDigests(ctx, d.stateView, t.name); err != nil {
		return err
	}

	for _, o := range d.machineObjects {
		now.Objects = append(now.Objects, o.Key)
	}

	for _, name := range pki.KeyNames() {
		now.Objects = append(now.Objects, pki.MachineKeyObjectKey(t.name, name))
	}

	slices.Sort(now.Objects)
	if len(last.Attempts) == 0 && equalApplied(last.LastApplied, now) {
		return nil
	}

	return t.writeLastApplied(ctx, now, last.object)
}

// equalApplied says that two records differ in nothing but who wrote them when.
func equalApplied(a, b plan.LastApplied) bool {
	b.Token = a.Token
	b.AppliedAt = a.AppliedAt
	b.AppliedBy = a.AppliedBy
	b.Tool = a.Tool
	x, errX := a.Encode()
	y, errY := b.Encode()

	return errX == nil && errY == nil && bytes.Equal(x, y)
}
