// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// zonesKey is where the state says in which existing hosted zones the cluster may have records. A zone that a manifest
// names no more is among them until an apply has succeeded without it.
func zonesKey(cluster string) string { return cluster + "/zones.json" }

// readZones returns the zones, and the object they were read from; none if no manifest ever named one.
func readZones(ctx context.Context, s store.Store, cluster string) ([]string, store.Object, error) {
	o, err := s.Get(ctx, zonesKey(cluster))
	if errors.Is(err, store.ErrNotFound) {
		return nil, store.Object{}, nil
	}

	if err != nil {
		return nil, o, err
	}

	var zones []string
	if err := json.Unmarshal(o.Body, &zones); err != nil {
		return nil, o, fmt.Errorf("read %s of %s: %w", zonesKey(cluster), s.URL(), err)
	}

	return zones, o, nil
}

// recordZones writes down where records may be: before an apply also where they were, after it (done) where they are.
func (t *clusterSession) recordZones(
	ctx context.Context,
	d *desiredState,
	done bool,
) error {
	if d.stateView == nil || t.guardedState == nil {
		return nil
	}

	have, was, err := readZones(ctx, d.stateView, t.name)
	if err != nil && was.ETag == "" { // else it cannot be read, and is written anew
		return err
	}

	want := model.UnmanagedZones(d.manifests.Cluster.Spec)
	if !done {
		want = append(want, have...)
	}

	slices.Sort(want)
	want = slices.Compact(want)
	if slices.Equal(want, have) {
		return nil
	}

	o := store.Object{Key: zonesKey(t.name)}
	if o.Body, err = json.Marshal(append([]string{}, want...)); err != nil {
		return fmt.Errorf("print %s: %w", o.Key, err)
	}

	if o, err = replaceObject(ctx, t.guardedState, o, was); err == nil {
		d.stateView.AddObject(o)
	}

	return err
}
