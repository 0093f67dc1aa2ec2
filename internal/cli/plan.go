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
		Long: `Compare a cluster's manifests with what exists in AWS and show, resource by resource and property by property, what
'slipway apply' would do. Nothing is changed, in AWS or in the state store.

  +  is made       ~  is changed in place       -/+  is replaced       -  is destroyed

With --out the plan is also saved. 'slipway apply FILE' does exactly what it says, or refuses if anything that it was made
from has changed: a manifest, a resource in AWS, the agent, slipway itself. --destroy plans the cluster's deletion.

The JSON form is described by a JSON Schema: 'slipway plan --schema'.

EXIT STATUS
  0  nothing to do
  1  it did not go well
  2  there are changes`,
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
			return a.plan(cmd.Context(), name, o)
		},
	}
	targetFlags(cmd, &o.targetOptions)
	buildFlags(cmd, &o.targetOptions)
	formatFlag(cmd, &o.format)
	cmd.Flags().StringVar(&o.out, "out", "", "file to save the plan in, for 'slipway apply FILE'")
	cmd.Flags().BoolVar(&o.destroy, "destroy", false, "plan the cluster's deletion")
	cmd.Flags().BoolVar(&o.schema, "schema", false, "print the JSON Schema of a plan")
	return cmd
}

// planOptions are the flags of 'slipway plan'.
type planOptions struct {
	targetOptions
	format, out     string
	destroy, schema bool
}

func (a *app) plan(ctx context.Context, name string, o planOptions) error {
	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	t, d, err := a.prepareEither(ctx, s, name, o.targetOptions, o.destroy)
	if made, ok := errors.AsType[stackMadeError](err); ok {
		return a.planStack(ctx, made.d, o)
	}
	if t != nil {
		t.report()
	}
	if d == nil {
		return err
	}
	if d.nothing() {
		return noClusterAnywhere(name)
	}
	if printErr := a.printPlan(o.format, name, d); printErr != nil || err != nil {
		return firstOf(err, printErr)
	}
	if d.destroy {
		a.tellDemise(d.demise)
	}
	if o.out != "" {
		if err := t.save(ctx, s, d, o.out); err != nil {
			return err
		}
	}
	if !d.empty() {
		return Exit{exitChanges}
	}
	return nil
}

// prepareEither plans a cluster's deletion, or what its manifests say.
func (a *app) prepareEither(ctx context.Context, s store.Store, name string, o targetOptions, destroy bool) (*target, *desired, error) { //nolint:revive // it is the user's flag
	if destroy {
		return a.prepareDestroy(ctx, s, name, o)
	}
	return a.prepare(ctx, name, o)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// document is d's plan in its JSON form: what happens in AWS, and what is published for machines.
func (d *desired) document(name string) plan.Document {
	doc := d.plan.Document(name)
	doc.Destroy = d.destroy
	doc.MachineStore = append(doc.MachineStore, d.missing...)
	return doc
}

func (a *app) printPlan(format, name string, d *desired) error {
	if format != formatTable {
		return a.printValue(format, d.document(name))
	}
	for _, key := range d.missing {
		fmt.Fprintf(a.Stdout, "  + object/%s\n", strings.TrimPrefix(key, name+"/machine/"))
	}
	if d.plan.Empty() && len(d.missing) > 0 {
		fmt.Fprintf(a.Stdout, "Plan: %d objects to publish\n", len(d.missing))
		return nil
	}
	return d.plan.Print(a.Stdout)
}
