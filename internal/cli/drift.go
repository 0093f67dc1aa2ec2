// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/drift"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

func newDriftCommand(a *app) *cobra.Command {
	var o clusterOptions
	var format string
	cmd := &cobra.Command{
		Use:   "drift [NAME]",
		Short: "Show changes in AWS since the last apply",
		Long: `Compare AWS with the result of the last 'slipway apply', and print each resource and property that is different, missing
or new, and who changed it. Edits of the manifests are not drift: use 'slipway diff' for those. The command changes and locks
nothing, so it can run at any time, for example from cron.

  changedBy  outside slipway           neither slipway nor a manifest changed it
             an unfinished apply       an interrupted apply may have changed it; rerun it
             unknown                   no apply is recorded; AWS was compared with the manifests

'slipway apply' reverts all drift.

EXIT STATUS
  0  no drift
  1  error
  2  drift`,
		Example: "  slipway drift demo\n  slipway drift demo -o json | jq '.drift[].address'\n  0 * * * *  slipway drift demo -q || mail -s 'demo: drift' ops",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return a.runDrift(cmd.Context(), name, format, o)
		},
	}

	addClusterFlags(cmd, &o)
	cmd.Flags().StringVar(
		&o.nodeBinary,
		"node-binary",
		"",
		"the agent for machines (SLIPWAY_NODE_BINARY), needed if no apply is recorded",
	)

	addFormatFlag(cmd, &format)

	return cmd
}

func (a *app) runDrift(ctx context.Context, name, format string, o clusterOptions) error {
	defer a.printCalls(o)
	report, err := drift.Detect(ctx, o.withAgent(a.newClusterEnv()), name)
	if err != nil {
		return err
	}

	if err := a.printDrift(format, report); err != nil {
		return err
	}

	if len(report.Drift) > 0 {
		return ExitError{exitChanges}
	}

	return nil
}

func (a *app) printDrift(format string, r drift.Report) error {
	if format != formatTable {
		return a.printValue(format, r)
	}

	if len(r.Edited) > 0 {
		a.printMessage(
			"edited since the last apply, and no drift: %s; see: slipway diff %s",
			strings.Join(r.Edited, ", "),
			r.Cluster,
		)
	}

	if len(r.Drift) == 0 {
		if r.Applied == "" {
			fmt.Fprintln(a.Stdout, "No drift: AWS matches the manifests.")
		} else {
			fmt.Fprintf(a.Stdout, "No drift: what exists is what was applied at %s.\n", plainerror.Printable(r.Applied))
		}

		return nil
	}

	rows := make([][]string, 0, len(r.Drift))
	for _, d := range r.Drift {
		rows = append(rows, driftRow(d))
	}

	a.printTable([]string{"RESOURCE", "FIELD", "WANT", "HAVE", "CHANGED BY"}, rows)

	return nil
}

func driftRow(d plan.Deviation) []string {
	switch d.Type {
	case plan.DeviationMissing:
		return []string{string(d.Addr), "", "it exists", "missing", string(d.ChangedBy)}
	case plan.DeviationUnexpected:
		return []string{
			string(d.Addr),
			"",
			"nothing",
			strings.TrimSpace("it exists (" + d.ID + ") " + d.Owner),
			string(d.ChangedBy),
		}

	case plan.DeviationChanged:
		return []string{
			string(d.Addr),
			d.Field,
			plan.FormatValue(d.Desired),
			plan.FormatValue(d.Actual),
			string(d.ChangedBy),
		}
	}

	return []string{string(d.Addr), string(d.Type), "", "", string(d.ChangedBy)}
}
