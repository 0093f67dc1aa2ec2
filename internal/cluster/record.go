// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// resourceRecorder collects the resources that a walk created or changed. Several goroutines add to it.
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

// lastAppliedRecord is the last-applied record as this run read or wrote it last.
type lastAppliedRecord struct {
	plan.LastApplied
	object store.Object
	loaded bool
}

// readLastApplied returns the last-applied record. If the view shows that there is none, the store is not
// read.
func (session *Session) readLastApplied(ctx context.Context, view *store.View) (lastAppliedRecord, error) {
	if session.lastApplied.loaded {
		return session.lastApplied, nil
	}

	if view != nil {
		if has, known := view.HasObject(clusterstate.LastAppliedKey(session.Name)); known && !has {
			return lastAppliedRecord{loaded: true}, nil
		}
	}

	from, _, err := session.Env.Stores.State(ctx)
	if err != nil {
		return lastAppliedRecord{}, err
	}

	if view != nil {
		from = view
	}

	a, at, err := clusterstate.ReadLastApplied(ctx, from, session.Name)
	if err != nil && at.ETag == "" { // else it cannot be parsed, and is overwritten
		return lastAppliedRecord{}, err
	}

	session.lastApplied = lastAppliedRecord{a, at, true}

	return session.lastApplied, nil
}

func (session *Session) writeLastApplied(ctx context.Context, a plan.LastApplied, was store.Object) error {
	body, err := a.Encode()
	if err != nil || bytes.Equal(body, was.Body) {
		return err
	}

	record := store.Object{Key: clusterstate.LastAppliedKey(session.Name), Body: body}
	o, err := clusterstate.ReplaceObject(ctx, session.State, record, was)
	if err == nil {
		session.lastApplied = lastAppliedRecord{a, o, true}
	}

	return err
}

// recordAttempt records what is about to change in AWS, so that drift detection does not blame others for
// changes of an apply that did not finish, and with which manifests, because machines may run with them from now on.
func (session *Session) recordAttempt(ctx context.Context, view *store.View, review Review) error {
	if review.Plan.IsEmpty() {
		return nil
	}

	last, err := session.readLastApplied(ctx, view)
	if err != nil {
		return err
	}

	now := last.WithAttempt(session.Operation.Token(), review.Plan)
	if review.Manifests.Cluster.Kind != "" {
		now.Attempted = string(manifest.EncodeYAML(review.Manifests))
	}

	return session.writeLastApplied(ctx, now, last.object)
}

// RecordPublished records with which manifests machines of a rendered template may run from now on. Slipway does not see
// when the template is applied.
func (session *Session) RecordPublished(ctx context.Context, d *Desired) error {
	last, err := session.readLastApplied(ctx, d.View)
	if err != nil {
		return err
	}

	now := last.LastApplied
	now.Attempted = string(manifest.EncodeYAML(d.Manifests))
	if now.Attempted == now.Manifests {
		return nil
	}

	return session.writeLastApplied(ctx, now, last.object)
}

// RecordApplied records what AWS has now, after an apply that succeeded. Without an operation it does
// nothing.
func (session *Session) RecordApplied(ctx context.Context, d *Desired) error {
	if session.Operation == nil {
		return nil // a run without a lock writes nothing
	}

	last, err := session.readLastApplied(ctx, d.View)
	if err != nil {
		return err
	}

	now := plan.LastApplied{
		Token:        session.Operation.Token(),
		AppliedAt:    session.Env.Now().UTC(),
		AppliedBy:    session.Env.Operator.Owner,
		Tool:         session.Env.Tool,
		Manifests:    string(manifest.EncodeYAML(d.Manifests)),
		MachineStore: d.MachineStore.URL(),
	}
	if now.Resources, err = d.Plan.AppliedResources(session.recorder.byAddr); err != nil {
		return err
	}

	if now.Documents, err = clusterstate.HashDocuments(ctx, d.View, session.Name); err != nil {
		return err
	}

	for _, o := range d.MachineObjects {
		now.Objects = append(now.Objects, o.Key)
	}

	for _, name := range pki.KeyNames() {
		now.Objects = append(now.Objects, pki.MachineKeyObjectKey(session.Name, name))
	}

	slices.Sort(now.Objects)
	if len(last.Attempts) == 0 && clusterstate.SameApplied(last.LastApplied, now) {
		return nil
	}

	if err := session.writeLastApplied(ctx, now, last.object); err != nil {
		return err
	}

	d.View.AddObject(session.lastApplied.object)

	return nil
}

// RecordZones records the existing hosted zones in which the cluster may have records: before an apply
// (done is false) those of the manifest and the former ones, after it those of the manifest.
func (session *Session) RecordZones(
	ctx context.Context,
	d *Desired,
	done bool,
) error {
	if d.View == nil || session.State == nil {
		return nil
	}

	if err := session.recordDNS(ctx, d); err != nil {
		return err
	}

	have, was, err := clusterstate.ReadZones(ctx, d.View, session.Name)
	if err != nil && was.ETag == "" { // else it cannot be parsed, and is overwritten
		return err
	}

	want := model.UnmanagedZones(d.Manifests.Cluster.Spec)
	if !done {
		want = append(want, have...)
	}

	slices.Sort(want)
	want = slices.Compact(want)
	if slices.Equal(want, have) {
		return nil
	}

	o := store.Object{Key: clusterstate.ZonesKey(session.Name)}
	if o.Body, err = json.Marshal(append([]string{}, want...)); err != nil {
		return fmt.Errorf("print %s: %w", o.Key, err)
	}

	if o, err = clusterstate.ReplaceObject(ctx, session.State, o, was); err == nil {
		d.View.AddObject(o)
	}

	return err
}

// hasNoDNS reports whether the cluster has no hosted zone and no DNS record, and its plan creates none.
func (d *Desired) hasNoDNS() bool {
	return !mayHaveZones(d.Manifests) &&
		!slices.ContainsFunc(d.Plan.Steps, func(s plan.Step) bool {
			return s.Kind == (awskind.HostedZone{}).Kind().Name || s.Kind == (awskind.DNSRecord{}).Kind().Name
		})
}

// recordDNS records that the cluster may have DNS records from now on, if its manifest asks for some.
func (session *Session) recordDNS(ctx context.Context, d *Desired) error {
	if !mayHaveZones(d.Manifests) {
		return nil
	}

	o, err := clusterstate.RecordDNS(ctx, d.View, session.State, session.Name)
	if err == nil && o.ETag != "" {
		d.View.AddObject(o)
	}

	return err
}

// RecordProvisioner records that this cluster is created directly, without CloudFormation.
func (session *Session) RecordProvisioner(ctx context.Context, d *Desired) error {
	if d.View == nil || session.State == nil {
		return nil
	}

	if have, err := clusterstate.ReadProvisioner(ctx, d.View, session.Name); err != nil || have != "" {
		return err
	}

	state, err := operation.Fenced(ctx, session.State) // the record is created once
	if err != nil {
		return err
	}

	o, err := clusterstate.CreateProvisionerRecord(
		ctx,
		state,
		session.Name,
		clusterstate.Direct,
		d.hasNoDNS(),
	)
	if err == nil && o.ETag != "" {
		d.View.AddObject(o)
	}

	return err
}

// RecordStart records the operation and its plan before anything is changed. It runs also in parallel.
func (session *Session) RecordStart(
	ctx context.Context,
	view *store.View,
	review Review,
	also ...func(context.Context) error,
) error {
	if session.Operation == nil {
		return nil
	}

	s := review.Plan.Summary()
	who, err := session.CallerIdentity(ctx)
	if err != nil {
		return err
	}

	session.Operation.UpdateRecord(func(r *operation.Record) {
		r.Principal = who.ARN
		r.ClusterID = session.ownership.ID
		r.Plan = &operation.ChangeCounts{
			Add:     s.Add,
			Change:  s.Change,
			Destroy: s.Destroy,
			Publish: len(review.Unpublished),
		}
	})

	var wg sync.WaitGroup
	errs := make([]error, 3+len(also))
	wg.Go(func() { errs[0] = session.Operation.SaveRecord(ctx) })
	wg.Go(func() { errs[1] = session.recordAttempt(ctx, view, review) })
	wg.Go(func() { errs[2] = session.claimOwnership(ctx, view) })
	for i, record := range also {
		wg.Go(func() { errs[3+i] = record(ctx) })
	}

	wg.Wait()

	return errors.Join(errs...)
}

// RecordDeleted removes an instance group, and the resources that were deleted with it, from the record of what was
// applied, after an operation that deleted them and nothing else. Without an operation, or a record, it does nothing.
func (session *Session) RecordDeleted(
	ctx context.Context,
	group string,
	deleted func(graph.Addr) bool,
) error {
	return endAttempt(ctx, session, func(now *plan.LastApplied) {
		now.Resources = slices.DeleteFunc(
			slices.Clone(now.Resources),
			func(r plan.AppliedResource) bool { return deleted(r.Addr) },
		)

		now.Documents = maps.Clone(now.Documents)
		delete(now.Documents, manifest.GroupKey(session.Name, group))
		now.Manifests = withoutGroup(now.Manifests, group)
		now.Attempted = withoutGroup(now.Attempted, group)
	})
}

// endAttempt removes the attempt of this operation from the record of what was applied, and changes the record. Without an
// operation, or a record, it does nothing.
func endAttempt(ctx context.Context, session *Session, change func(now *plan.LastApplied)) error {
	if session.Operation == nil {
		return nil
	}

	last, err := session.readLastApplied(ctx, nil)
	if err != nil || last.object.ETag == "" {
		return err
	}

	now := last.LastApplied
	now.Attempts = slices.DeleteFunc(
		slices.Clone(now.Attempts),
		func(a plan.Attempt) bool { return a.Token == session.Operation.Token() },
	)

	change(&now)

	return session.writeLastApplied(ctx, now, last.object)
}

// withoutGroup returns manifests as YAML without one instance group. Text that cannot be parsed stays as it is: a later
// version of Slipway may have written it.
func withoutGroup(text, group string) string {
	set, findings := manifest.Parse([]byte(text))
	if _, exists := set.Group(group); !exists || findings.Err() != nil {
		return text
	}

	set.Groups = slices.DeleteFunc(set.Groups, func(g v1alpha1.InstanceGroup) bool { return g.Metadata.Name == group })

	return string(manifest.EncodeYAML(set))
}
