// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/plan"
)

// exitChanges is what 'slipway plan' exits with when there is something to do.
const exitChanges = 2

func newPlanCommand(a *app) *cobra.Command {
	var o targetOptions
	var format string
	cmd := &cobra.Command{
		Use:   "plan [NAME]",
		Short: "Show what apply would change in AWS",
		Long: `Compare a cluster's manifests with what exists in AWS and show, resource by resource and property by property, what
'slipway apply' would do. Nothing is changed, in AWS or in the state store.

  +  is made       ~  is changed in place       -/+  is replaced       -  is destroyed

The JSON form (formatVersion 1) has steps with action, address, kind, id and changes (property, old, new,
forcesReplacement), machineStore with the objects that would be published, and a summary.

EXIT STATUS
  0  nothing to do
  1  it did not go well
  2  there are changes`,
		Example: "  slipway plan demo\n  slipway plan demo -o json | jq '.summary'",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, d, err := a.prepare(cmd.Context(), args, o)
			if t != nil {
				t.report()
			}
			if d == nil {
				return err
			}
			if printErr := a.printPlan(format, t.name, d.plan, d.missing); printErr != nil || err != nil {
				return firstOf(err, printErr)
			}
			if !d.plan.Empty() || len(d.missing) > 0 {
				return Exit{exitChanges}
			}
			return nil
		},
	}
	targetFlags(cmd, &o)
	buildFlags(cmd, &o)
	formatFlag(cmd, &format, formatTable, formatJSON)
	return cmd
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// planDocument is a plan's JSON form as printed: what happens in AWS, and what is published for machines.
type planDocument struct {
	plan.Document
	MachineStore []string `json:"machineStore"`
}

func (a *app) printPlan(format, name string, p plan.Plan, missing []string) error {
	if format != formatTable {
		doc := planDocument{Document: p.Document(name), MachineStore: missing}
		if doc.MachineStore == nil {
			doc.MachineStore = []string{}
		}
		return a.printValue(format, doc)
	}
	for _, key := range missing {
		fmt.Fprintf(a.Stdout, "  + object/%s\n", strings.TrimPrefix(key, name+"/machine/"))
	}
	if p.Empty() && len(missing) > 0 {
		fmt.Fprintf(a.Stdout, "Plan: %d objects to publish\n", len(missing))
		return nil
	}
	return p.Print(a.Stdout)
}
