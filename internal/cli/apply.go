// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/apply"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
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

Running machines apply those settings themselves that need no new machine; the plan says which. For all others the command names
the groups whose machines are to be replaced, with 'slipway rolling-update cluster'.` + exitStatusHelp(),
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
	addTakeOverFlag(cmd, &a.takeOver)
	addBuildFlags(cmd, &o)
	addCostFlag(cmd, &a.costDetails)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

// runApply applies the manifests of a cluster.
func (a *app) runApply(ctx context.Context, name string, o clusterOptions) error {
	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	defer a.printCalls(o)
	req := o.applyRequest(name)
	req.Stack.ContinueRollback = true
	result, err := apply.Run(ctx, o.withAgent(env), req)
	if err != nil {
		return err
	}

	a.printApplied(result)

	return nil
}

// applySavedPlan applies the plan in a file.
func (a *app) applySavedPlan(ctx context.Context, path string, o clusterOptions) error {
	saved, err := readPlanFile(path)
	if err != nil {
		return err
	}

	if err := a.checkPlanFlags(saved, path, o); err != nil {
		return err
	}

	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	defer a.printCalls(o)
	result, err := apply.RunSaved(ctx, o.withAgent(env), apply.SavedRequest{
		File:        saved,
		Path:        path,
		Provisioner: clusterstate.Provisioner(o.provisioner),
	})
	if refused, ok := errors.AsType[*apply.RefusedError](err); ok {
		a.printRefusals(refused.Reasons)
	}

	if err != nil {
		return err
	}

	a.printDestroyed(result.Cluster, result.Destroyed)
	a.printApplied(result)

	return nil
}

// printApplied prints how an apply ended, if it changed something, and the next step.
func (a *app) printApplied(result apply.Result) {
	if !result.Changed {
		return
	}

	if len(result.OldMachines) > 0 {
		a.printMessage(
			"machines of %s need to be replaced for some of this; see which: slipway rolling-update cluster %s",
			strings.Join(result.OldMachines, ", "),
			result.Cluster,
		)
	}

	a.printMessage(
		"applied in %s; see: slipway validate cluster %s --wait 10m",
		result.Took.Round(100*time.Millisecond),
		result.Cluster,
	)
}

// printRefusals prints why a saved plan was refused, one reason a line.
func (a *app) printRefusals(reasons []string) {
	for _, reason := range reasons {
		a.printLabelled(red, "refused:", reason)
	}
}
