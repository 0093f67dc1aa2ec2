// SPDX-License-Identifier: Apache-2.0

// Package destroy deletes a cluster: its resources in AWS, which it finds by their tags, then its objects
// in the machine store and in the state store. It works for clusters that were created in part, and for
// those whose state is lost. Data of programs in the cluster is retained unless the request says otherwise.
package destroy

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/stackapply"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/cost"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Request asks for the deletion of a cluster.
type Request struct {
	// Name of the cluster.
	Name string
	// DestroyData deletes also volumes of claims and their snapshots; by CloudFormation, etcd's volumes and
	// their key too.
	DestroyData bool
}

// Outcome is how a deletion ended.
type Outcome int

// The outcomes.
const (
	// Nothing: there was nothing to delete.
	Nothing Outcome = iota
	// DataRetained: the cluster was deleted, except its data and the state that is needed to read the data.
	DataRetained
	// Deleted: the cluster was deleted.
	Deleted
)

// Destruction is a planned deletion.
type Destruction struct {
	// Review is what is deleted and what is retained.
	Review cluster.Review

	session     *cluster.Session
	inState     bool        // the state store has the cluster
	view        *store.View // of the cluster's part of the state store; nil: it is read object by object
	destroyData bool
}

// Session returns the session of the cluster.
func (d *Destruction) Session() *cluster.Session { return d.session }

// IsUnknown reports whether neither AWS nor the state store has anything of the cluster.
func (d *Destruction) IsUnknown() bool {
	return !d.inState && len(d.Review.Deletion.Retained) == 0 && d.Review.IsEmpty()
}

// Run shows and deletes a cluster under its lock. If Env.ReadOnly it shows without the lock, and
// Hooks.Approve must refuse. It takes no lock, and records nothing, for a cluster of which nothing exists.
func Run(ctx context.Context, env *cluster.Env, req Request) (Outcome, error) {
	if err := clusterstate.CheckName(req.Name); err != nil {
		return Nothing, err
	}

	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return Nothing, err
	}

	exists := false
	if !env.ReadOnly {
		if exists, err = hasRemains(ctx, env, state, req); err != nil {
			return Nothing, err
		}
	}

	if !exists {
		return runLocked(ctx, env, nil, state, req)
	}

	outcome := Nothing
	err = env.RunOperation(
		ctx,
		cluster.OperationRequest{Store: state, Cluster: req.Name, Kind: "delete"},
		func(ctx context.Context, op *operation.Operation, guarded store.Store) (err error) {
			outcome, err = runLocked(ctx, env, op, guarded, req)
			return err
		},
	)

	return outcome, err
}

// hasRemains reports whether the state store or AWS has anything to delete of a cluster. The state may have
// lost it.
func hasRemains(ctx context.Context, env *cluster.Env, s store.Store, req Request) (bool, error) {
	err := clusterstate.RequireCluster(ctx, s, req.Name)
	if !errors.Is(err, store.ErrNotFound) {
		return err == nil, err
	}

	keys, err := s.List(ctx, req.Name+"/")
	if err != nil || len(keys) > 0 {
		return true, err
	}

	session, err := cluster.Open(ctx, env, req.Name, "")
	if err != nil {
		return false, err
	}

	actual, err := session.ReadResources(ctx, s, manifest.Set{})
	if err != nil {
		return false, err
	}

	leftovers, err := session.Cloud.FindLeftovers(ctx, actual)
	var deletion cluster.Deletion

	return len(selectDeletable(&deletion, actual, leftovers, req.DestroyData)) > 0, err
}

// runLocked is Run under the lock of op; without an operation it cannot get past the approval.
func runLocked(
	ctx context.Context,
	env *cluster.Env,
	op *operation.Operation,
	guarded store.Store,
	req Request,
) (Outcome, error) {
	d, err := Plan(ctx, env, guarded, req)
	if err != nil {
		return Nothing, err
	}

	d.session.UseOperation(op, guarded)
	byStack, err := stackapply.HasStack(ctx, d.session, d.view, d.inState)
	if err != nil {
		return Nothing, err
	}

	if byStack {
		return d.runByStack(ctx, op)
	}

	return d.Run(ctx, op, guarded)
}

// Plan finds everything that exists of a cluster, in AWS and in the stores. It changes nothing.
func Plan(ctx context.Context, env *cluster.Env, s store.Store, req Request) (*Destruction, error) {
	view, err := openView(ctx, env, s, req.Name)
	if err != nil {
		return nil, err
	}

	set, err := clusterstate.ReadClusterDocument(ctx, view, req.Name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}

	d := &Destruction{inState: err == nil, destroyData: req.DestroyData, view: view}
	d.session, err = cluster.Open(ctx, env, req.Name, set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return nil, err
	}

	d.session.SkipZonesIfNone(ctx, view, set)
	actual, err := d.session.ReadResources(aws.WithoutDetails(ctx), view, set)
	if err != nil {
		return nil, err
	}

	if err := checkDeletionProtection(set, req.Name, actual); err != nil {
		return nil, err
	}

	leftovers, err := d.session.Cloud.FindLeftovers(ctx, actual)
	if err != nil {
		return nil, err
	}

	made := slices.Clone(leftovers.Resources)
	if req.DestroyData {
		made = append(made, leftovers.Data...)
	}

	if err := d.session.CheckLeftovers(ctx, made); err != nil {
		return nil, err
	}

	d.Review = cluster.Review{Kind: cluster.ReviewDestroy, Cluster: req.Name, Destroy: true}
	deletable := selectDeletable(&d.Review.Deletion, actual, leftovers, req.DestroyData)
	var findings diag.Findings
	d.Review.Plan, findings = plan.Compute(&graph.Graph{}, deletable, plan.Options{DestroyData: true})
	if err := findings.Err(); err != nil {
		return nil, err
	}

	d.Review.Cost = cost.Estimate(cost.ListPrices(), d.session.Config.Region, cost.Resources{
		Existing:  d.Review.Plan.ExistingResources(),
		Templates: readTemplates(ctx, view, req.Name),
		Kept:      d.Review.Deletion.Retained,
	})

	d.Review.Deletion.Objects, err = listObjects(ctx, d.session, s, view, set)

	return d, err
}

// readTemplates returns what the launch templates of the groups of a cluster contain by its manifests, as far as it
// costs something: a deletion does not read the templates from AWS. Without manifests it returns none.
func readTemplates(ctx context.Context, view *store.View, name string) map[string]awskind.LaunchTemplateData {
	text, _, err := clusterstate.ReadDocuments(ctx, view, name)
	if err != nil {
		return nil
	}

	set, _ := manifest.Parse(text) // what is wrong with them does not matter here
	out := map[string]awskind.LaunchTemplateData{}
	for _, g := range manifest.Default(set).Groups {
		root := g.Spec.RootVolume
		out[g.Metadata.Name] = awskind.LaunchTemplateData{
			InstanceType: g.Spec.MachineType,
			BlockDevices: []awskind.BlockDevice{{EBS: awskind.EBS{
				VolumeType: root.Type,
				VolumeSize: root.Size,
				IOPS:       root.IOPS,
				Throughput: root.Throughput,
			}}},
		}
	}

	return out
}

// openView returns a view of the cluster's part of the state store s, which may be guarded by a lock: a view only
// reads.
func openView(ctx context.Context, env *cluster.Env, s store.Store, name string) (*store.View, error) {
	unguarded, _, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	if unguarded.URL() == s.URL() {
		s = unguarded
	}

	return store.OpenView(ctx, s, name+"/")
}

// selectDeletable returns the resources that are deleted, and sets what is retained and what blocks the
// deletion.
func selectDeletable(
	deletion *cluster.Deletion,
	actual []plan.ActualResource,
	leftovers cleanup.Leftovers,
	destroyData bool,
) []plan.ActualResource {
	deletion.Blockers = leftovers.Blockers
	actual = append(cleanup.DisarmLaunchersFirst(actual), leftovers.Resources...)
	if destroyData {
		return append(actual, leftovers.Data...)
	}

	rest, keys := cleanup.SplitDataKeys(actual, leftovers.Data)
	deletion.Retained = slices.Concat(leftovers.Data, keys)

	return rest
}

// Run shows the deletion, has it approved, and carries it out as the holder of op's lock.
func (d *Destruction) Run(
	ctx context.Context,
	op *operation.Operation,
	guarded store.Store,
) (Outcome, error) {
	session := d.session
	session.UseOperation(op, guarded)
	guardObjects(op, d.Review.Deletion.Objects)
	if d.IsUnknown() {
		return Nothing, clusterstate.NewNowhereError(session.Name)
	}

	if err := session.Env.Show(d.Review); err != nil || d.Review.IsEmpty() {
		return Nothing, err
	}

	if err := session.Env.Approve(ctx, d.Review); err != nil {
		return Nothing, err
	}

	if err := session.RecordStart(ctx, d.view, d.Review); err != nil {
		return Nothing, err
	}

	if err := session.Walk(ctx, d.Review.Plan, session.Cloud); err != nil {
		return Nothing, diag.WithHint(err, "fix the cause and rerun to delete the rest")
	}

	if err := deleteObjects(ctx, d.Review.Deletion.Objects, session.Name); err != nil {
		return Nothing, err
	}

	return Deleted, nil
}

// runByStack is Run for a cluster that CloudFormation created. The state store keeps the cluster as long as
// data is retained.
func (d *Destruction) runByStack(ctx context.Context, op *operation.Operation) (Outcome, error) {
	session := d.session
	deleter := stackapply.NewDeleter(session, d.destroyData)
	objects := d.Review.Deletion.Objects
	guardObjects(op, objects)
	if err := deleter.Plan(ctx); err != nil {
		return Nothing, err
	}

	review := deleter.Review()
	hasData := len(review.Deletion.RetainedSteps) > 0
	if !hasData {
		review.Deletion.Objects = objects
	}

	if err := session.Env.Show(review); err != nil || review.Plan.IsEmpty() && hasData {
		return Nothing, err
	}

	if err := session.Env.Approve(ctx, review); err != nil {
		return Nothing, err
	}

	if err := session.RecordStart(ctx, nil, review); err != nil {
		return Nothing, err
	}

	if err := deleter.Delete(ctx); err != nil {
		return Nothing, diag.WithHint(err, "fix the cause and rerun to delete the rest")
	}

	if deleter.RetainsData() {
		return DataRetained, nil
	}

	if err := deleteObjects(ctx, objects, session.Name); err != nil {
		return Nothing, err
	}

	return Deleted, nil
}
