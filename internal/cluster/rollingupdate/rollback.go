// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// goodVersions are the launch template versions with which the groups of a cluster served last: those of the last
// update that succeeded. They are kept in the state store.
type goodVersions struct {
	store    store.Store
	cluster  string
	versions map[string]string // by group and slot
	failed   map[string]string // the versions from which a rollback has returned, by group and slot
	forced   *forcedUpdate     // nil if none has begun that did not end
	object   store.Object
}

// goodRecord is the object in the state store.
type goodRecord struct {
	// Versions of launch templates by GROUP/SLOT; the slot is empty for workers.
	Versions map[string]string `json:"versions"`
	// Failed are the versions from which a rollback has returned, by GROUP/SLOT. No update moves to them again by itself.
	Failed map[string]string `json:"failed,omitempty"`
	// Forced is the forced update that has begun and not ended.
	Forced *forcedUpdate `json:"forced,omitempty"`
}

// forcedUpdate is an update with --force: it replaces the machines that were launched before it began.
type forcedUpdate struct {
	Since  time.Time `json:"since"`
	Groups []string  `json:"groups,omitempty"` // empty: all
}

// maxForcedAge is how long after its beginning a forced update that was interrupted is continued by the same command. A later
// command begins anew.
const maxForcedAge = 24 * time.Hour

// key returns the key of the object.
func (g *goodVersions) key() string { return g.cluster + "/rolling-update.json" }

// readRecord reads the record and its object. Without one, both are zero.
func (g *goodVersions) readRecord(ctx context.Context) (goodRecord, store.Object, error) {
	var record goodRecord
	object, err := g.store.Get(ctx, g.key())
	if errors.Is(err, store.ErrNotFound) {
		return record, object, nil
	}

	if err != nil {
		return record, object, err
	}

	if err := json.Unmarshal(object.Body, &record); err != nil {
		return record, object, diag.WithHint(
			fmt.Errorf("read %s in %s: %w", g.key(), g.store.URL(), err),
			"delete the object: it is written again by the next rolling update",
		)
	}

	return record, object, nil
}

// read reads the record. Groups without a record get the version of most machines that serve.
func (g *goodVersions) read(ctx context.Context, o rollout.Observation) error {
	record, object, err := g.readRecord(ctx)
	if err != nil {
		return err
	}

	g.object = object
	g.versions = cloneVersions(record.Versions)
	g.failed = cloneVersions(record.Failed)
	g.forced = record.Forced

	for _, group := range o.Groups {
		key := groupKey(group.Name, group.Slot)
		if serving := rollout.ServingVersion(o, group); g.versions[key] == "" && serving != "" {
			g.versions[key] = serving
		}
	}

	return nil
}

// cloneVersions returns a copy of versions by group that can be changed.
func cloneVersions(versions map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, versions)

	return out
}

// load reads the record, and writes it if it has something new, so that a rollback knows it after an update that was
// killed.
func (g *goodVersions) load(ctx context.Context, o rollout.Observation) error {
	if err := g.read(ctx, o); err != nil {
		return err
	}

	return g.write(ctx)
}

// write writes the record if it differs from the stored one.
func (g *goodVersions) write(ctx context.Context) error {
	body, err := json.Marshal(goodRecord{Versions: g.versions, Failed: g.failed, Forced: g.forced})
	if err != nil {
		return fmt.Errorf("encode %s: %w", g.key(), err)
	}

	if bytes.Equal(body, g.object.Body) {
		return nil
	}

	g.object, err = clusterstate.ReplaceObject(ctx, g.store, store.Object{Key: g.key(), Body: body}, g.object)
	if err != nil {
		return fmt.Errorf("record the launch template versions that serve: %w", err)
	}

	return nil
}

// save records that the updated groups serve with the versions of an observation, or with those in set.
func (g *goodVersions) save(
	ctx context.Context,
	o rollout.Observation,
	only []string,
	set map[string]string,
) error {
	for _, group := range o.Groups {
		if len(only) > 0 && !slices.Contains(only, group.Name) {
			continue
		}

		key := groupKey(group.Name, group.Slot)
		g.versions[key] = group.Version
		if v := set[key]; v != "" {
			g.versions[key] = v
		}

		if g.failed[key] == g.versions[key] {
			delete(g.failed, key) // it was tried again
		}
	}

	return g.write(ctx)
}

// loadRollback finds the versions to return to. It does not change anything.
func (u *updater) loadRollback(ctx context.Context, from updateSource) error {
	if err := u.refuseStack(ctx, from.state); err != nil {
		return err
	}

	if err := u.avoidFailed(ctx); err != nil {
		return err
	}

	o, err := u.observer.observe(ctx)
	if err != nil {
		return err
	}

	if err := u.good.read(ctx, o); err != nil {
		return err
	}

	u.findFormerVersions(o)
	if len(u.versions) == 0 && len(rollout.Plan(o, u.options(o))) > 0 {
		return nil // a rollback that was interrupted has set the versions already
	}

	if len(u.versions) == 0 {
		return diag.WithHint(
			errors.New("there is nothing to roll back: every group launches machines as it did when it served last"),
			"to undo a change of a manifest: slipway replace, then slipway apply "+u.request.Name,
		)
	}

	return u.refuseDowngrade(ctx, o)
}

// refuseStack returns an error if the cluster's groups belong to a CloudFormation stack: a template version that
// slipway sets would be drift of the stack, and the versions that served last are not known.
func (u *updater) refuseStack(ctx context.Context, state store.Store) error {
	provisioner, err := clusterstate.ReadProvisioner(ctx, state, u.request.Name)
	if err != nil || provisioner != clusterstate.CloudFormation {
		return err
	}

	return diag.WithHint(
		errors.New("the groups of this cluster belong to a CloudFormation stack, which rolls back by itself"),
		"replace the manifests with the former ones, then: slipway apply "+u.request.Name,
	)
}

// findFormerVersions finds the last good versions of the updated groups that have, or would get, another one.
func (u *updater) findFormerVersions(o rollout.Observation) {
	u.versions = map[string]string{}
	u.left = map[string]string{}
	for _, g := range o.Groups {
		if len(u.request.Groups) > 0 && !slices.Contains(u.request.Groups, g.Name) {
			continue
		}

		key := groupKey(g.Name, g.Slot)
		if good := u.good.versions[key]; good != "" && good != g.Version {
			u.versions[key] = good
			u.left[key] = g.Version
		}
	}
}

// setVersions makes the groups launch machines from the versions of a rollback, and waits until running machines have
// taken back what they had applied themselves. Without a rollback it does nothing.
func (u *updater) setVersions(ctx context.Context, o rollout.Observation) error {
	if len(u.versions) == 0 {
		return nil
	}

	if err := u.returnDocuments(ctx, o); err != nil {
		return err
	}

	maps.Copy(u.good.failed, u.left)
	if err := u.good.write(ctx); err != nil {
		return err
	}

	u.machines.Avoid(u.good.failed)
	for _, g := range o.Groups {
		version := u.versions[groupKey(g.Name, g.Slot)]
		if version == "" {
			continue
		}

		if err := u.machines.SetVersion(ctx, g, version); err != nil {
			return err
		}
	}

	_, err := u.awaitFollowers(ctx)

	return err
}

// rollBack returns the groups to their last good versions after a failure, and replaces the machines that have other
// ones. The error is that of the update in any case.
func (u *updater) rollBack(
	ctx context.Context,
	stop <-chan struct{},
	options rollout.Options,
	failure stoppedError,
) error {
	if err := u.refuseStack(ctx, u.good.store); err != nil {
		return fmt.Errorf("%w; not rolled back: %w", failure, err)
	}

	o, err := u.observer.observe(ctx)
	if err != nil {
		return errors.Join(failure, err)
	}

	u.findFormerVersions(o)
	if len(u.versions) == 0 {
		return fmt.Errorf("%w; there is no earlier launch template version to return to", failure)
	}

	if err := u.refuseDowngrade(ctx, o); err != nil {
		u.versions = nil
		return fmt.Errorf("%w; not rolled back: %w", failure, err)
	}

	u.report.tell(EventRollback, rollout.Machine{}, "rolling back: "+describeVersions(u.versions))
	if err := u.setVersions(ctx, o); err != nil {
		return errors.Join(failure, err)
	}

	options.Force = time.Time{} // only machines with the version that failed are replaced
	if err := u.replaceAll(ctx, stop, options); err != nil {
		return errors.Join(failure, fmt.Errorf("roll back: %w", err))
	}

	return diag.WithHint(
		fmt.Errorf("%w; rolled back", failure),
		"the manifests still ask for what failed: fix them before the next slipway apply "+u.request.Name,
	)
}

// describeVersions formats the versions of groups, sorted.
func describeVersions(versions map[string]string) string {
	var out bytes.Buffer
	for i, key := range slices.Sorted(maps.Keys(versions)) {
		if i > 0 {
			out.WriteString(", ")
		}

		group, slot, _ := bytes.Cut([]byte(key), []byte("/"))
		out.Write(group)
		if len(slot) > 0 {
			out.WriteString(" (slot " + string(slot) + ")")
		}

		out.WriteString(" to launch template version " + versions[key])
	}

	return out.String()
}
