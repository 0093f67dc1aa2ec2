// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/node"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/plan"
)

func newApplyCommand(a *app) *cobra.Command {
	var o targetOptions
	cmd := &cobra.Command{
		Use:   "apply [NAME]",
		Short: "Make AWS what a cluster's manifests say",
		Long: `Show the plan, publish what machines read, then make, change and remove resources, as many at a time as their order
allows. A failure stops only what depends on it. Running it again resumes a run that failed or was killed: what exists is
found by its tags.

Machines that run already keep their launch template's version until they are replaced.` + exitStatus(),
		Example: "  slipway apply demo --yes",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, d, err := a.prepare(cmd.Context(), args, o)
			if t != nil {
				defer t.report()
			}
			if err != nil {
				return err
			}
			return t.apply(cmd.Context(), d)
		},
	}
	targetFlags(cmd, &o)
	buildFlags(cmd, &o)
	a.yesFlag(cmd)
	return cmd
}

func (t *target) apply(ctx context.Context, d *desired) error {
	if err := t.a.printPlan(formatTable, t.name, d.plan, d.missing); err != nil {
		return err
	}
	if d.plan.Empty() && len(d.missing) == 0 {
		return nil
	}
	if err := t.a.confirm("Apply this to cluster " + t.name + "?"); err != nil {
		return err
	}
	start := t.a.Now()
	if err := t.publish(ctx, d); err != nil {
		return err
	}
	if err := t.walk(ctx, d.plan); err != nil {
		return withHint(err, "what was made stays; mend the cause and run it again: it takes up where it stopped")
	}
	t.a.say("applied in %s; see: slipway validate cluster %s --wait 10m", t.a.Now().Sub(start).Round(100*time.Millisecond), t.name)
	return nil
}

// publish writes what machines read before there are machines.
func (t *target) publish(ctx context.Context, d *desired) error {
	if len(d.missing) == 0 {
		return nil
	}
	if _, err := node.Publish(ctx, d.machine, d.objects); err != nil {
		return err
	}
	s, sealer, err := t.a.openStore(ctx)
	if err != nil {
		return err
	}
	bundle, err := pki.Load(ctx, s, sealer, t.name)
	if err != nil {
		return err
	}
	if _, err := pki.Publish(ctx, bundle, d.machine, d.sealer); err != nil {
		return err
	}
	t.a.say("published %d objects in %s", len(d.missing), d.machine.URL())
	return nil
}

// walk carries a plan out and shows its progress.
func (t *target) walk(ctx context.Context, p plan.Plan) error {
	show := t.a.newProgress()
	err := plan.Walk{
		Cloud: t.cloud, Now: t.a.Now, Jitter: rand.Float64, Events: show.event, Heartbeat: show.beat,
	}.Apply(ctx, p)
	show.end()
	return err
}
