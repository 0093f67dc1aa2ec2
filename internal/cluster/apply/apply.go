// SPDX-License-Identifier: Apache-2.0

// Package apply makes AWS match the manifests of a cluster.
//
// An apply is a list of steps under the cluster's lock: load the manifests, choose the provisioner, plan,
// have the plan approved, record the start, publish what machines download while the plan is walked, and
// record what was applied. Two provisioners do it: direct calls to the AWS services, or a CloudFormation
// stack (package stackapply).
//
// A plan can also be saved in a file and applied later, if nothing that it depends on has changed.
package apply

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/destroy"
	"github.com/slipway-k8s/slipway/internal/cluster/explain"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/stackapply"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// Provisioner creates, changes and deletes the resources of one cluster for one request.
type Provisioner interface {
	// Propose plans the changes. Together with an error it may return a review, which then shows a plan that
	// cannot be executed.
	Propose(ctx context.Context) (*cluster.Review, error)
	// Record records what must be known before anything is changed.
	Record(ctx context.Context) error
	// Execute carries out what Propose returned.
	Execute(ctx context.Context) error
	// Unchanged ends a request for which there was nothing to do.
	Unchanged(ctx context.Context) error
	// Discard undoes Propose, for a proposal that is not executed.
	Discard(ctx context.Context) error
}

// Request asks to apply the manifests of a cluster.
type Request struct {
	// Name of the cluster.
	Name string
	// Provisioner to create the cluster with. Empty: the recorded one, else direct.
	Provisioner clusterstate.Provisioner
	// Stack are options for CloudFormation.
	Stack stackapply.Options
	// Options are the risks that the plan takes.
	Options cluster.PlanOptions
	// Preparation is done before the plan is carried out.
	Preparation Preparation
}

// Preparation is what a caller changes itself before a plan is carried out, under the same lock.
type Preparation struct {
	// Do is called once the plan is approved and its start is recorded, right before its first change. Nil: nothing.
	Do func(context.Context) error
	// Undo is called after Do if Do fails, or if the plan is not carried out to its end. It is not called when the process
	// is interrupted or has lost the lock. Nil: nothing.
	Undo func(context.Context) error
}

// Result is how a request ended.
type Result struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Changed is set if something was changed.
	Changed bool
	// OldMachines are the groups of which running machines keep former settings until they are replaced, sorted.
	OldMachines []string
	// Destroyed is how a deletion ended, if the plan was one.
	Destroyed destroy.Outcome
	// Took is how long it took after the approval.
	Took time.Duration
}

// Run plans and applies the manifests of a cluster under its lock. If Env.ReadOnly it plans and shows
// without the lock, and Hooks.Approve must refuse.
func Run(ctx context.Context, env *cluster.Env, req Request) (Result, error) {
	result := Result{Cluster: req.Name}
	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return result, err
	}

	if err := clusterstate.CheckName(req.Name); err != nil {
		return result, err
	}

	if env.ReadOnly {
		return runLocked(ctx, env, nil, state, req)
	}

	exists := func(ctx context.Context) error { return clusterstate.RequireCluster(ctx, state, req.Name) }
	operationRequest := cluster.OperationRequest{
		Store:              state,
		Cluster:            req.Name,
		Kind:               "apply",
		CheckReady:         exists,
		RecordInBackground: true,
	}

	err = env.RunOperation(
		ctx,
		operationRequest,
		func(ctx context.Context, op *operation.Operation, guarded store.Store) (err error) {
			result, err = runLocked(ctx, env, op, guarded, req)
			return err
		},
	)

	return result, err
}

// runLocked is Run under the lock of op; without an operation it cannot get past the approval.
func runLocked(
	ctx context.Context,
	env *cluster.Env,
	op *operation.Operation,
	guarded store.Store,
	req Request,
) (Result, error) {
	r, err := load(ctx, env, req)
	if err != nil {
		return Result{Cluster: req.Name}, err
	}

	r.preparation = req.Preparation
	r.session.UseOperation(op, guarded)
	review, err := r.provisioner.Propose(ctx)
	if err != nil {
		return Result{Cluster: req.Name}, err
	}

	return r.execute(ctx, *review)
}

// run is one request on one cluster.
type run struct {
	session     *cluster.Session
	desired     *cluster.Desired
	provisioner Provisioner
	usesStack   bool
	preparation Preparation
}

// load loads the manifests, chooses the provisioner, and opens a session.
func load(ctx context.Context, env *cluster.Env, req Request) (*run, error) {
	desired, err := cluster.Load(ctx, env, req.Name)
	if err != nil {
		return nil, err
	}

	via, err := clusterstate.ChooseProvisioner(ctx, desired.View, req.Name, req.Provisioner)
	if err != nil {
		return nil, err
	}

	session, err := desired.OpenSession(ctx, env)
	if err != nil {
		return nil, err
	}

	r := &run{session: session, desired: desired}
	if req.Options.RecreateLostVolumes {
		if unpinned := cluster.FindUnpinned(ctx, session, desired); errors.Is(unpinned, asset.ErrNoDigest) {
			r.provisioner = &volumeRepair{session: session, desired: desired, unpinned: unpinned}
			return r, nil
		}
	}

	r.usesStack = via == clusterstate.CloudFormation
	if r.usesStack {
		req.Stack.Risks = req.Options
		r.provisioner = stackapply.New(session, desired, req.Stack)
	} else {
		r.provisioner = &direct{session: session, desired: desired, options: req.Options}
	}

	return r, nil
}

// execute shows a review, has it approved, records the start, and carries it out. Until then a failure
// discards the proposal.
func (r *run) execute(ctx context.Context, review cluster.Review) (Result, error) {
	result := Result{Cluster: review.Cluster}
	env := r.session.Env
	if err := env.Show(review); err != nil {
		return result, r.discardAfter(ctx, err)
	}

	if review.IsEmpty() {
		return result, r.endUnchanged(ctx, review)
	}

	if err := env.Approve(ctx, review); err != nil {
		return result, r.discardAfter(ctx, err)
	}

	records := []func(context.Context) error{r.provisioner.Record}
	if !r.desired.RepairsVolumesOnly() {
		review.Manifests = r.desired.Manifests
		adopt := func(ctx context.Context) error { return r.session.AdoptDocuments(ctx, r.desired) }
		records = append(records, adopt)
	}

	if err := r.session.RecordStart(ctx, r.desired.View, review, records...); err != nil {
		return result, r.discardAfter(ctx, err)
	}

	start := env.Now()
	if err := r.preparation.run(ctx, r.provisioner.Execute); err != nil {
		return result, err
	}

	result.Changed = true
	result.Took = env.Now().Sub(start)
	result.OldMachines = r.groupsWithOldMachines(review)

	return result, nil
}

// run does the preparation, then executes the plan, and undoes the preparation if either fails.
func (p Preparation) run(ctx context.Context, execute func(context.Context) error) error {
	var err error
	if p.Do != nil {
		err = p.Do(ctx)
	}

	if err == nil {
		err = execute(ctx)
	}

	if err == nil || p.Undo == nil || ctx.Err() != nil {
		return err
	}

	if undoErr := p.Undo(ctx); undoErr != nil {
		return errors.Join(err, undoErr)
	}

	return err
}

// endUnchanged ends a request for which there was nothing to do, and marks the documents as applied. Signing them is approved,
// too.
func (r *run) endUnchanged(ctx context.Context, review cluster.Review) error {
	if r.session.Operation != nil && len(review.Unsigned) > 0 {
		if err := r.session.Env.Approve(ctx, review); err != nil {
			return r.discardAfter(ctx, err)
		}
	}

	if err := r.session.AdoptDocuments(ctx, r.desired); err != nil {
		return err
	}

	if err := r.session.MarkRevision(ctx); err != nil {
		return err
	}

	return r.provisioner.Unchanged(ctx)
}

// groupsWithOldMachines returns the groups whose machines a rolling update replaces after the review was carried out.
// Bastions are none of them.
func (r *run) groupsWithOldMachines(review cluster.Review) []string {
	return slices.DeleteFunc(explain.GroupsWithOldMachines(review.Plan.Steps), func(name string) bool {
		g, exists := r.desired.Manifests.Group(name)

		return !exists || g.Spec.Role == v1alpha1.RoleBastion
	})
}

// discardAfter discards the proposal after a failure, and returns that failure.
func (r *run) discardAfter(ctx context.Context, failure error) error {
	if err := r.provisioner.Discard(ctx); err != nil {
		return errors.Join(failure, err)
	}

	return failure
}
