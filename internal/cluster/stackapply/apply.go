// SPDX-License-Identifier: Apache-2.0

// Package stackapply creates, changes and deletes a cluster by a CloudFormation stack: an apply is a change
// set that is shown, approved and executed; a deletion deletes the stack and then the resources that it
// leaves.
package stackapply

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/publish"
	"github.com/slipway-k8s/slipway/internal/infra/cost"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
)

// Options are what a caller may choose for an apply by a stack.
type Options struct {
	// Parameters of the template, as NAME=VALUE.
	Parameters []string
	// ResetParameters sets all other parameters to the manifest's values, also those that were set in the
	// console.
	ResetParameters bool
	// ContinueRollback continues a rollback of the stack that failed, after it is approved. Without it such a
	// stack is only reported.
	ContinueRollback bool
	// Risks are the risks that the plan takes.
	Risks cluster.PlanOptions
}

// Applier applies the manifests of a cluster by its stack. It implements apply.Provisioner.
type Applier struct {
	session      *cluster.Session
	desired      *cluster.Desired
	options      Options
	client       stack.Stack
	progress     cluster.Progress
	templateBody []byte
	proposal     proposal
	// existing are the cluster's resources in AWS before the change.
	existing []plan.ActualResource
	// hasOwnParameters is set if a parameter of the stack has another value than the manifest gives it.
	hasOwnParameters bool
	// lost are the etcd volumes that Execute creates again.
	lost cluster.LostVolumes
}

// New returns an applier of d. It calls nothing.
func New(session *cluster.Session, d *cluster.Desired, options Options) *Applier {
	return &Applier{session: session, desired: d, options: options}
}

// Propose builds the template and has CloudFormation compute a change set, which remains until Discard or
// Execute.
func (c *Applier) Propose(ctx context.Context) (*cluster.Review, error) {
	if op := c.session.Operation; op != nil { // to create a change set is a change, too
		if err := op.SaveRecord(ctx); err != nil {
			return nil, err
		}
	}

	if err := c.buildGraph(ctx); err != nil {
		return nil, err
	}

	changes, err := c.session.CheckManifestChanges(ctx, c.desired)
	if err != nil {
		return nil, err
	}

	if err := changes.Err(); err != nil {
		return nil, err
	}

	c.existing, err = c.session.ReadResources(ctx, c.desired.View, c.desired.Manifests)
	if err != nil {
		return nil, err
	}

	if err := c.session.CheckTrust(ctx, c.desired, c.existing); err != nil {
		return nil, err
	}

	p, err := c.proposeChange(ctx)
	if err != nil {
		return nil, err
	}

	if stack.PhaseOf(p.info.Status) == stack.PhaseRollbackFailed && c.options.ContinueRollback {
		if p, err = c.continueRollback(ctx, p); err != nil {
			return nil, err
		}
	}

	p.Steps = c.session.ExplainSteps(ctx, c.desired, p.Steps, true)
	c.proposal = p
	c.desired.Plan = plan.Plan{Steps: slices.Concat(c.recreationSteps(), p.Steps)}
	review := c.reviewOf(cluster.ReviewApplyStack, p)

	return &review, nil
}

// buildGraph builds the graph, and connects to the stack with the names of the graph's resources.
func (c *Applier) buildGraph(ctx context.Context) error {
	c.desired.ForStack = true
	if err := c.session.ResolveMachineStore(ctx, c.desired); err != nil {
		return err
	}

	if err := c.session.BuildGraph(ctx, c.desired); err != nil {
		return err
	}

	ids, err := cloudformation.LogicalIDs(c.desired.Graph)
	if err != nil {
		return err
	}

	names := newStackNames()
	for i, n := range c.desired.Graph.Nodes() {
		names.AddrByLogicalID[ids[n.Addr]] = n.Addr
		names.OrderByAddr[n.Addr] = i
	}

	c.client, c.progress = newStackClient(c.session, names)

	return nil
}

// reviewOf returns a proposal for approval.
func (c *Applier) reviewOf(kind cluster.ReviewKind, p proposal) cluster.Review {
	return cluster.Review{
		Kind:        kind,
		Cluster:     c.session.Name,
		Plan:        plan.Plan{Steps: slices.Concat(c.recreationSteps(), p.Steps)},
		Unpublished: c.desired.Unpublished,
		Unsigned:    c.desired.Unsigned,
		Stack:       cluster.StackReview{Name: c.client.Name, Info: p.info, Recreate: p.recreate},
		Cost:        c.estimateCost(),
	}
}

// estimateCost returns the monthly cost before and after the change. It is zero if a parameter has another value
// than the manifest: types and sizes of machines are parameters.
func (c *Applier) estimateCost() plan.MonthlyCost {
	if c.hasOwnParameters || c.desired.Graph == nil {
		return plan.MonthlyCost{}
	}

	// Findings of this plan do not matter: CloudFormation has its own rules for replacements.
	direct, _ := plan.Compute(c.desired.Graph, c.existing, plan.Options{})

	return cost.Estimate(cost.ListPrices(), c.session.Config.Region, cost.Resources{
		Existing: direct.ExistingResources(),
		Desired:  direct.Desired(),
	})
}

// Record records nothing more: Execute records the provisioner.
func (c *Applier) Record(context.Context) error { return nil }

// Execute creates lost volumes again, publishes what machines download, executes the change set, protects data
// with a stack policy, and records the manifests.
func (c *Applier) Execute(ctx context.Context) error {
	if err := c.recreateVolumes(ctx); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, c.proposal))
	}

	if err := c.publishAndExecute(ctx, c.proposal); err != nil {
		return err
	}

	return c.session.RecordApplied(ctx, c.desired)
}

// Unchanged ends an apply that has nothing to do: it deletes the change set and records the manifests.
func (c *Applier) Unchanged(ctx context.Context) error {
	if err := c.Discard(ctx); err != nil {
		return err
	}

	return c.session.RecordApplied(ctx, c.desired)
}

// Discard deletes the change set.
func (c *Applier) Discard(ctx context.Context) error { return c.discardChangeSet(ctx, c.proposal) }

// continueRollback continues a failed rollback, if that is approved, and proposes the change again.
func (c *Applier) continueRollback(
	ctx context.Context,
	p proposal,
) (proposal, error) {
	if err := c.session.Env.Approve(ctx, c.reviewOf(cluster.ReviewContinueRollback, p)); err != nil {
		return p, err
	}

	err := c.client.ContinueRollback(ctx, p.info)
	c.progress.End()
	if err != nil {
		return p, c.addMachineReports(ctx, err)
	}

	return c.proposeChange(ctx)
}

// publishAndExecute publishes what machines download, then executes the change set.
func (c *Applier) publishAndExecute(ctx context.Context, p proposal) error {
	err := clusterstate.EnsureProvisioner(
		ctx,
		c.session.State,
		c.session.Name,
		clusterstate.CloudFormation,
	)
	if err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if err := publish.WriteObjects(ctx, c.session, c.desired); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if err := publish.WriteReturning(ctx, c.session, c.desired); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if len(p.Steps) == 0 {
		return errors.Join(c.discardChangeSet(ctx, p), publish.WriteRevisions(ctx, c.session, c.desired))
	}

	policy, err := cloudformation.StackPolicy(c.desired.Graph)
	if err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if p.recreate {
		if p, err = c.recreateStack(ctx, p); err != nil {
			return err
		}
	}

	if err := c.session.MarkOwnership(ctx); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	err = c.client.ExecuteChangeSet(ctx, p.ChangeSet)
	c.progress.End()
	if err != nil {
		return c.addMachineReports(ctx, err)
	}

	if err := c.session.MarkCreated(ctx); err != nil {
		return err
	}

	// The stack has replaced the machines whose document changed. The revisions come after that, so that no machine
	// changes while the stack replaces it.
	if err := publish.WriteRevisions(ctx, c.session, c.desired); err != nil {
		return err
	}

	return c.client.Protect(ctx, string(policy))
}

// recreateStack deletes a stack that cannot be updated and proposes a new one.
func (c *Applier) recreateStack(ctx context.Context, p proposal) (proposal, error) {
	err := c.client.Delete(ctx, p.info, 0)
	c.progress.End()
	if err != nil {
		return p, c.addMachineReports(ctx, err)
	}

	p.ChangeSet, err = c.createChangeSet(ctx, p.template, stack.Info{})

	return p, err
}
