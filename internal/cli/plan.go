// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/apply"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// exitChanges is the exit code of 'slipway plan' if there are changes.
const exitChanges = 2

func newPlanCommand(a *app) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [NAME]",
		Short: "Show what apply would change in AWS",
		Long: `Compare a cluster's manifests with AWS and show, by resource and property, what 'slipway apply' would do. Nothing is
changed, neither in AWS nor in the state store.

  +  create       ~  change in place       -/+  replace       -  delete

With --out the plan is also saved. 'slipway apply FILE' applies exactly that plan, or fails if any of its inputs has changed:
a manifest, a resource in AWS, the agent, slipway itself. --destroy plans the deletion of the cluster.

--cost lists what the cluster costs in a month at AWS's list prices, and what the plan changes in it. The prices, their
dates and their sources are in the program; what is billed by use (traffic, requests, snapshots) is not in them.

'slipway plan --schema' prints the JSON Schema of the JSON output.

EXIT STATUS
  0  no changes
  1  error
  2  changes`,
		Example: "  slipway plan demo\n  slipway plan demo -o json | jq '.summary'\n  slipway plan demo --out demo.plan && slipway apply demo.plan --yes\n  slipway plan demo --cost\n  slipway plan demo --destroy",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.schema {
				_, err := a.Stdout.Write(plan.Schema())
				return err
			}

			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return a.runPlan(cmd.Context(), name, o)
		},
	}

	addClusterFlags(cmd, &o.clusterOptions)
	addTakeOverFlag(cmd, &a.takeOver)
	addBuildFlags(cmd, &o.clusterOptions)
	addFormatFlag(cmd, &o.format)
	addCostFlag(cmd, &a.costDetails)
	cmd.Flags().StringVar(&o.out, "out", "", "file to save the plan in, for 'slipway apply FILE'")
	cmd.Flags().BoolVar(&o.destroy, "destroy", false, "plan the deletion of the cluster")
	cmd.Flags().BoolVar(&o.schema, "schema", false, "print the JSON Schema of a plan")

	return cmd
}

// planOptions are the flags of 'slipway plan'.
type planOptions struct {
	clusterOptions
	format, out     string
	destroy, schema bool
}

func (a *app) runPlan(ctx context.Context, name string, o planOptions) error {
	defer a.printCalls(o.clusterOptions)
	planned, err := apply.Plan(ctx, o.withAgent(a.newClusterEnv()), apply.PlanRequest{
		Request: o.applyRequest(name),
		Destroy: o.destroy,
		Save:    o.out != "",
	})
	if planned == nil {
		return err
	}

	review := planned.Review
	a.printStackState(review.Stack)
	if printErr := a.printPlan(o.format, review); printErr != nil || err != nil {
		return firstError(err, printErr)
	}

	a.printDeletionNotes(review.Deletion)
	if o.out != "" {
		if err := a.savePlanFile(ctx, planned, o.out); err != nil {
			return err
		}
	}

	if review.HasChanges() {
		return ExitError{exitChanges}
	}

	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	return nil
}
