// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

func newApplyCommand(a *app) *cobra.Command {
	var o clusterOptions
	cmd := &cobra.Command{
		Use:   "apply [NAME | FILE]",
		Short: "Apply a cluster's manifests to AWS",
		Long: `Show the plan, publish what machines read, then create, change and delete resources, as many in parallel as their
dependencies allow. A failure stops only the steps that depend on it. After a failure or a kill, rerun the command to
resume: existing resources are found by their tags.

With a FILE from 'slipway plan --out', apply exactly that plan, or fail if any of its inputs has changed since. An argument
with a dot or a slash is a file; write ./NAME for a file without either.

Running machines keep the version of their launch template until they are replaced.` + exitStatusHelp(),
		Example: "  slipway apply demo --yes\n  slipway apply demo.plan --yes",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && isPlanFile(args[0]) {
				return a.applySavedPlan(cmd.Context(), args[0], o)
			}

			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return a.runApply(cmd.Context(), name, o)
		},
	}

	addClusterFlags(cmd, &o)
	addBuildFlags(cmd, &o)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

// runApply plans and applies under the cluster's lock. Where nobody can agree to it, it only plans, and locks nothing.
func (a *app) runApply(ctx context.Context, name string, o clusterOptions) error {
	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}

	if err := checkName(name); err != nil {
		return err
	}

	once := func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
		t, d, err := a.planCluster(ctx, name, o)
		if made, ok := errors.AsType[stackManagedError](err); ok {
			if err := saveRecord(ctx, op); err != nil {
				return err
			}

			return a.applyStack(ctx, op, guarded, made.desired, o)
		}

		if t != nil {
			t.operation = op
			t.guardedState = guarded
			defer t.printCalls()
		}

		if err != nil {
			return err
		}

		return t.applyDesired(ctx, d)
	}
	if !a.canConfirm() {
		return once(ctx, nil, s)
	}

	exists := func(ctx context.Context) error { return a.requireCluster(ctx, s, name) }

	return a.runOperationIf(ctx, operationRequest{s, name, "apply", exists, true}, once)
}

// saveRecord waits until an operation, if it is one, has its record.
func saveRecord(ctx context.Context, op *operation.Operation) error {
	if op == nil {
		return nil
	}

	return op.SaveRecord(ctx)
}

func (t *clusterSession) applyDesired(ctx context.Context, d *desiredState) error {
	if err := t.app.printPlan(formatTable, t.name, d); err != nil {
		return err
	}

	if d.plan.IsEmpty() && len(d.unpublished) == 0 {
		return t.recordApplied(ctx, d)
	}

	if err := t.app.confirm("Apply this to cluster " + t.name + "?"); err != nil {
		return err
	}

	if err := t.recordStart(ctx, d, d.plan, len(d.unpublished)); err != nil {
		return err
	}

	start := t.app.Now()
	if err := t.recordZones(ctx, d, false); err != nil {
		return err
	}

	if err := t.publishAndApply(ctx, d); err != nil {
		return withHint(
			err,
			"what was made stays; mend the cause and run it again: it takes up where it stopped",
		)
	}

	if err := t.recordApplied(ctx, d); err != nil {
		return err
	}

	if err := t.recordZones(ctx, d, true); err != nil {
		return err
	}

	t.app.printMessage(
		"applied in %s; see: slipway validate cluster %s --wait 10m",
		t.app.Now().Sub(start).Round(100*time.Millisecond),
		t.name,
	)

	return nil
}

// recordProvisioner notes that this cluster is made by us alone.
func (t *clusterSession) recordProvisioner(ctx context.Context, d *desiredState) error {
	if d.stateView == nil || t.guardedState == nil {
		return nil
	}

	if have, err := readProvisioner(ctx, d.stateView, t.name); err != nil || have != "" {
		return err
	}

	o, err := createProvisionerRecord(ctx, t.guardedState, t.name, provisionerDirect)
	if err == nil && o.ETag != "" {
		d.stateView.AddObject(o)
	}

	return err
}

// publishAndApply publishes what machines read while AWS makes what comes before machines.
func (t *clusterSession) publishAndApply(ctx context.Context, d *desiredState) error {
	machines := &publicationGate{Cloud: t.cloud, published: make(chan struct{})}
	var wg sync.WaitGroup
	var keepErr error
	wg.Go(func() {
		machines.err = t.publishObjects(ctx, d)
		close(machines.published)
	})

	wg.Go(func() { keepErr = d.stateView.SaveIndex(ctx) })
	err := t.executePlan(ctx, d.plan, machines)
	wg.Wait()
	if errors.Is(err, machines.err) { // it is in err for each group of machines that it held up
		machines.err = nil
	}

	return errors.Join(machines.err, err, keepErr)
}

// publicationGate is a cloud that makes and changes no group of machines before what machines read is published.
type publicationGate struct {
	*aws.Cloud
	published chan struct{}
	err       error
}

func (c *publicationGate) waitForPublication(ctx context.Context, t plan.Task) error {
	if t.Step.Kind != (awskind.AutoScalingGroup{}).Kind().Name {
		return nil
	}

	t.ReportWaiting("what machines read is being published")
	select {
	case <-c.published:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Create implements [plan.Cloud].
func (c *publicationGate) Create(ctx context.Context, t plan.Task) (plan.StepResult, error) {
	if err := c.waitForPublication(ctx, t); err != nil {
		return plan.StepResult{}, err
	}

	return c.Cloud.Create(ctx, t)
}

// Update implements [plan.Cloud].
func (c *publicationGate) Update(ctx context.Context, t plan.Task) (plan.StepResult, error) {
	if err := c.waitForPublication(ctx, t); err != nil {
		return plan.StepResult{}, err
	}

	return c.Cloud.Update(ctx, t)
}

// publishObjects writes what machines read before there are machines.
func (t *clusterSession) publishObjects(ctx context.Context, d *desiredState) error {
	if len(d.unpublished) == 0 {
		return nil
	}

	s, sealer, err := t.app.openStore(ctx)
	if err != nil {
		return err
	}

	var objectErr, keyErr error
	var wg sync.WaitGroup
	wg.Go(func() { _, objectErr = node.PublishObjects(ctx, d.machineStore, d.machineObjects) })
	wg.Go(func() {
		var bundle pki.Bundle
		if bundle, keyErr = pki.LoadBundle(ctx, s, sealer, t.name); keyErr == nil {
			_, keyErr = pki.PublishMachineKeys(ctx, bundle, d.machineStore, d.machineSealer)
		}
	})

	wg.Wait()
	if err := errors.Join(objectErr, keyErr); err != nil {
		return err
	}

	t.app.printMessage("published %d objects in %s", len(d.unpublished), d.machineStore.URL())

	return nil
}

// executePlan carries a plan out and shows its progress.
func (t *clusterSession) executePlan(ctx context.Context, p plan.Plan, cloud plan.Cloud) error {
	show := t.app.newProgressPrinter()
	done := 0
	events := func(e plan.Event) {
		if e.State == plan.Done {
			done++
		}

		show.handleEvent(e)
	}

	err := plan.Applier{
		Cloud:            cloud,
		Now:              t.app.Now,
		Jitter:           rand.Float64,
		OnEvent:          events,
		ProgressInterval: show.heartbeat,
		OnApplied:        t.recorder.add,
	}.Apply(ctx, p)

	show.endLine()
	if t.operation != nil {
		t.operation.UpdateRecord(func(r *operation.Record) {
			r.CompletedSteps, r.Calls = done, t.app.calls.Calls()
			_, r.MutatingCalls = t.app.calls.TotalCalls()
		})
	}

	return err
}

// recordStart writes down what is about to be done, before anything is.
func (t *clusterSession) recordStart(ctx context.Context, d *desiredState, p plan.Plan, publish int) error {
	if t.operation == nil {
		return nil
	}

	s := p.Summary()
	who, err := t.callerIdentity(ctx)
	if err != nil {
		return err
	}

	t.operation.UpdateRecord(func(r *operation.Record) {
		r.Principal = who.ARN
		r.Plan = &operation.ChangeCounts{
			Add:     s.Add,
			Change:  s.Change,
			Destroy: s.Destroy,
			Publish: publish,
		}
	})

	var wg sync.WaitGroup
	var errs [3]error
	wg.Go(func() { errs[0] = t.operation.SaveRecord(ctx) })
	wg.Go(func() { errs[1] = t.recordAttempt(ctx, d, p) })
	if !d.destroy && !d.forStack {
		wg.Go(func() { errs[2] = t.recordProvisioner(ctx, d) })
	}

	wg.Wait()

	return errors.Join(errs[:]...)
}
