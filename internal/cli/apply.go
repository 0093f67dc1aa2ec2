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
	var o targetOptions
	cmd := &cobra.Command{
		Use:   "apply [NAME | FILE]",
		Short: "Make AWS what a cluster's manifests say",
		Long: `Show the plan, publish what machines read, then make, change and remove resources, as many at a time as their order
allows. A failure stops only what depends on it. Running it again resumes a run that failed or was killed: what exists is
found by its tags.

Given a FILE that 'slipway plan --out' wrote, it does exactly what that plan says, or refuses if anything has changed since.
An argument with a dot or a slash in it is a file; write ./NAME for one without.

Machines that run already keep their launch template's version until they are replaced.` + exitStatus(),
		Example: "  slipway apply demo --yes\n  slipway apply demo.plan --yes",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && isPlanFile(args[0]) {
				return a.applySaved(cmd.Context(), args[0], o)
			}
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}
			return a.apply(cmd.Context(), name, o)
		},
	}
	targetFlags(cmd, &o)
	buildFlags(cmd, &o)
	a.yesFlag(cmd)
	a.lockFlag(cmd)
	return cmd
}

// apply plans and applies under the cluster's lock. Where nobody can agree to it, it only plans, and locks nothing.
func (a *app) apply(ctx context.Context, name string, o targetOptions) error {
	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	once := func(ctx context.Context, op *operation.Op, guarded store.Store) error {
		t, d, err := a.prepare(ctx, name, o)
		if made, ok := errors.AsType[stackMadeError](err); ok {
			if err := recorded(ctx, op); err != nil {
				return err
			}
			return a.applyStack(ctx, op, guarded, made.d, o)
		}
		if t != nil {
			t.op, t.state = op, guarded
			defer t.report()
		}
		if err != nil {
			return err
		}
		return t.apply(ctx, d)
	}
	if !a.canAsk() {
		return once(ctx, nil, s)
	}
	exists := func(ctx context.Context) error { return a.mustExist(ctx, s, name) }
	return a.operateIf(ctx, opening{s, name, "apply", exists, true}, once)
}

// recorded waits until an operation, if it is one, has its record.
func recorded(ctx context.Context, op *operation.Op) error {
	if op == nil {
		return nil
	}
	return op.Save(ctx)
}

func (t *target) apply(ctx context.Context, d *desired) error {
	if err := t.a.printPlan(formatTable, t.name, d); err != nil {
		return err
	}
	if d.plan.Empty() && len(d.missing) == 0 {
		return t.keepApplied(ctx, d)
	}
	if err := t.a.confirm("Apply this to cluster " + t.name + "?"); err != nil {
		return err
	}
	if err := t.begun(ctx, d, d.plan, len(d.missing)); err != nil {
		return err
	}
	start := t.a.Now()
	if err := t.noteZones(ctx, d, false); err != nil {
		return err
	}
	if err := t.publishAndWalk(ctx, d); err != nil {
		return withHint(err, "what was made stays; mend the cause and run it again: it takes up where it stopped")
	}
	if err := t.keepApplied(ctx, d); err != nil {
		return err
	}
	if err := t.noteZones(ctx, d, true); err != nil {
		return err
	}
	t.a.say("applied in %s; see: slipway validate cluster %s --wait 10m", t.a.Now().Sub(start).Round(100*time.Millisecond), t.name)
	return nil
}

// noteWay notes that this cluster is made by us alone.
func (t *target) noteWay(ctx context.Context, d *desired) error {
	if d.view == nil || t.state == nil {
		return nil
	}
	if have, err := readWay(ctx, d.view, t.name); err != nil || have != "" {
		return err
	}
	o, err := beginWay(ctx, t.state, t.name, viaDirect)
	if err == nil && o.ETag != "" {
		d.view.Add(o)
	}
	return err
}

// publishAndWalk publishes what machines read while AWS makes what comes before machines.
func (t *target) publishAndWalk(ctx context.Context, d *desired) error {
	machines := &afterPublication{Cloud: t.cloud, done: make(chan struct{})}
	var wg sync.WaitGroup
	var keepErr error
	wg.Go(func() {
		machines.err = t.publish(ctx, d)
		close(machines.done)
	})
	wg.Go(func() { keepErr = d.view.Keep(ctx) })
	err := t.walk(ctx, d.plan, machines)
	wg.Wait()
	if errors.Is(err, machines.err) { // it is in err for each group of machines that it held up
		machines.err = nil
	}
	return errors.Join(machines.err, err, keepErr)
}

// afterPublication is a cloud that makes and changes no group of machines before what machines read is published.
type afterPublication struct {
	*aws.Cloud
	done chan struct{}
	err  error
}

func (c *afterPublication) wait(ctx context.Context, t plan.Task) error {
	if t.Step.Kind != (awskind.AutoScalingGroup{}).Kind().Name {
		return nil
	}
	t.Waiting("what machines read is being published")
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Create implements [plan.Cloud].
func (c *afterPublication) Create(ctx context.Context, t plan.Task) (plan.Made, error) {
	if err := c.wait(ctx, t); err != nil {
		return plan.Made{}, err
	}
	return c.Cloud.Create(ctx, t)
}

// Update implements [plan.Cloud].
func (c *afterPublication) Update(ctx context.Context, t plan.Task) (plan.Made, error) {
	if err := c.wait(ctx, t); err != nil {
		return plan.Made{}, err
	}
	return c.Cloud.Update(ctx, t)
}

// publish writes what machines read before there are machines.
func (t *target) publish(ctx context.Context, d *desired) error {
	if len(d.missing) == 0 {
		return nil
	}
	s, sealer, err := t.a.openStore(ctx)
	if err != nil {
		return err
	}
	var objectErr, keyErr error
	var wg sync.WaitGroup
	wg.Go(func() { _, objectErr = node.Publish(ctx, d.machine, d.objects) })
	wg.Go(func() {
		var bundle pki.Bundle
		if bundle, keyErr = pki.Load(ctx, s, sealer, t.name); keyErr == nil {
			_, keyErr = pki.Publish(ctx, bundle, d.machine, d.sealer)
		}
	})
	wg.Wait()
	if err := errors.Join(objectErr, keyErr); err != nil {
		return err
	}
	t.a.say("published %d objects in %s", len(d.missing), d.machine.URL())
	return nil
}

// walk carries a plan out and shows its progress.
func (t *target) walk(ctx context.Context, p plan.Plan, cloud plan.Cloud) error {
	show := t.a.newProgress()
	done := 0
	events := func(e plan.Event) {
		if e.State == plan.Done {
			done++
		}
		show.event(e)
	}
	err := plan.Walk{
		Cloud: cloud, Now: t.a.Now, Jitter: rand.Float64, Events: events, Heartbeat: show.beat, Applied: t.made.add,
	}.Apply(ctx, p)
	show.end()
	if t.op != nil {
		t.op.Note(func(r *operation.Record) {
			r.Done, r.Calls = done, t.a.calls.Calls()
			_, r.Mutating = t.a.calls.Total()
		})
	}
	return err
}

// begun writes down what is about to be done, before anything is.
func (t *target) begun(ctx context.Context, d *desired, p plan.Plan, publish int) error {
	if t.op == nil {
		return nil
	}
	s := p.Summary()
	who, err := t.whoAmI(ctx)
	if err != nil {
		return err
	}
	t.op.Note(func(r *operation.Record) {
		r.Principal = who.ARN
		r.Plan = &operation.Changes{Add: s.Add, Change: s.Change, Destroy: s.Destroy, Publish: publish}
	})
	var wg sync.WaitGroup
	var errs [3]error
	wg.Go(func() { errs[0] = t.op.Save(ctx) })
	wg.Go(func() { errs[1] = t.keepAttempt(ctx, d, p) })
	if !d.destroy && !d.stack {
		wg.Go(func() { errs[2] = t.noteWay(ctx, d) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}
