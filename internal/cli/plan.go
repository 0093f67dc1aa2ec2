// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// exitChanges is what 'slipway plan' exits with when there is something to do.
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

'slipway plan --schema' prints the JSON Schema of the JSON output.

EXIT STATUS
  0  no changes
  1  error
  2  changes`,
		Example: "  slipway plan demo\n  slipway plan demo -o json | jq '.summary'\n  slipway plan demo --out demo.plan && slipway apply demo.plan --yes\n  slipway plan demo --destroy",
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
	addBuildFlags(cmd, &o.clusterOptions)
	addFormatFlag(cmd, &o.format)
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
	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}

	t, d, err := a.planApplyOrDestroy(ctx, s, name, o.clusterOptions, o.destroy)
	if made, ok := errors.AsType[stackManagedError](err); ok {
		return a.planStack(ctx, made.desired, o)
	}

	if t != nil {
		t.printCalls()
	}

	if d == nil {
		return err
	}

	if d.nothingToDestroy() {
		return noClusterAnywhereError(name)
	}

	if printErr := a.printPlan(o.format, name, d); printErr != nil || err != nil {
		return firstError(err, printErr)
	}

	if d.destroy {
		a.printDeletionNotes(d.deletion)
	}

	if o.out != "" {
		if err := t.savePlanFile(ctx, s, d, o.out); err != nil {
			return err
		}
	}

	if !d.isEmpty() {
		return Exit{exitChanges}
	}

	return nil
}

// planApplyOrDestroy plans a cluster's deletion, or what its manifests say.
func (a *app) planApplyOrDestroy(
	ctx context.Context,
	s store.Store,
	name string,
	o clusterOptions,
	destroy bool,
) (*clusterSession, *desiredState, error) {
	if destroy {
		return a.planDestroy(ctx, s, name, o)
	}

	return a.planCluster(ctx, name, o)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	return nil
}

// planDocument is d's plan in its JSON form: what happens in AWS, and what is published for machines.
func (d *desiredState) planDocument(name string) plan.Document {
	doc := d.plan.Document(name)
	doc.Destroy = d.destroy
	doc.MachineStore = append(doc.MachineStore, d.unpublished...)

	return doc
}

func (a *app) printPlan(format, name string, d *desiredState) error {
	if format != formatTable {
		return a.printValue(format, d.planDocument(name))
	}

	for _, key := range d.unpublished {
		fmt.Fprintf(a.Stdout, "  + object/%s\n", strings.TrimPrefix(key, name+"/machine/"))
	}

	if d.plan.IsEmpty() && len(d.unpublished) > 0 {
		fmt.Fprintf(a.Stdout, "Plan: %d objects to publish\n", len(d.unpublished))
		return nil
	}

	return d.plan.Print(a.Stdout)
}
