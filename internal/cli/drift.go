// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/store"
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

// driftReport is what drift prints.
type driftReport struct {
	Cluster string `json:"cluster"`
	// Applied says when what is compared with was applied, and by whom; empty if no apply is recorded.
	Applied string `json:"applied,omitempty"`
	// Edited are the documents of the state store that were edited since.
	Edited []string         `json:"edited"`
	Drift  []plan.Deviation `json:"drift"`
}

func (a *app) runDrift(ctx context.Context, name, format string, o clusterOptions) error {
	d, err := a.loadDesiredState(ctx, name)
	if err != nil {
		return err
	}

	applied, _, err := readAppliedRecord(ctx, d.stateView, name)
	if err != nil {
		return err
	}

	report := driftReport{Cluster: name, Edited: []string{}, Drift: []plan.Deviation{}}
	if len(applied.Resources) == 0 {
		a.printMessage("no apply of cluster %s is recorded: what exists is compared with the manifests", name)
		err = a.compareWithManifests(ctx, d, applied, o, &report)
	} else {
		report.Applied = fmt.Sprintf("%s by %s", formatTime(applied.AppliedAt), applied.AppliedBy)
		err = a.compareWithApplied(ctx, d, applied, o, &report)
	}

	if err != nil {
		return err
	}

	if err := a.printDrift(format, report); err != nil {
		return err
	}

	if len(report.Drift) > 0 {
		return Exit{exitChanges}
	}

	return nil
}

// compareWithApplied compares what exists with what was applied. It needs neither agent nor image.
func (a *app) compareWithApplied(
	ctx context.Context,
	d *desiredState,
	applied plan.LastApplied,
	o clusterOptions,
	report *driftReport,
) error {
	t, err := a.newClusterSession(ctx, o, report.Cluster, d.manifests.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return err
	}

	defer t.printCalls()
	g, err := applied.ToGraph(awskind.AllKinds())
	if err != nil {
		return withHint(
			err,
			"another slipway wrote it; 'slipway apply "+t.name+"' with this one writes it anew",
		)
	}

	have, err := t.withRecordZones(ctx, d.stateView, d.manifests).Read(ctx)
	if err != nil {
		return err
	}

	p, _ := plan.Compute(
		g,
		have,
		plan.Options{DestroyData: true},
	) // that something could not be mended is no matter here

	report.Drift = append(report.Drift, p.Deviations(applied.Attempts, true)...)
	now, err := documentDigests(ctx, d.stateView, t.name)
	if err != nil {
		return err
	}

	all := maps.Clone(applied.Documents)
	maps.Copy(all, now)

	for _, key := range slices.Sorted(maps.Keys(all)) {
		if applied.Documents[key] != now[key] {
			report.Edited = append(report.Edited, key)
		}
	}

	gone, err := a.findMissingObjects(ctx, t.name, applied)
	report.Drift = append(report.Drift, gone...)

	return err
}

// findMissingObjects are the objects that machines need when they are born and that are not there any more.
func (a *app) findMissingObjects(
	ctx context.Context,
	name string,
	applied plan.LastApplied,
) ([]plan.Deviation, error) {
	machine, _, err := store.Open(ctx, applied.MachineStore, a.storeOptions())
	if err != nil {
		return nil, err
	}

	keys, err := machine.List(ctx, name+"/machine/")
	if err != nil {
		return nil, err
	}

	var out []plan.Deviation

	for _, key := range applied.Objects {
		if _, there := slices.BinarySearch(keys, key); !there {
			out = append(out, missingObject(name, key, plan.ExternalChange))
		}
	}

	return out, nil
}

func missingObject(name, key string, by plan.DriftCause) plan.Deviation {
	return plan.Deviation{
		Type:      plan.DeviationMissing,
		Addr:      graph.Addr("object/" + strings.TrimPrefix(key, name+"/machine/")),
		Kind:      "object",
		ID:        key,
		ChangedBy: by,
	}
}

// compareWithManifests compares what exists with what the manifests say.
func (a *app) compareWithManifests(
	ctx context.Context,
	d *desiredState,
	applied plan.LastApplied,
	o clusterOptions,
	report *driftReport,
) error {
	t, d, err := a.planLoaded(ctx, d, o)
	if t != nil {
		defer t.printCalls()
	}

	if d == nil {
		return err
	}

	report.Drift = append(report.Drift, d.plan.Deviations(applied.Attempts, false)...)
	for _, key := range d.unpublished {
		report.Drift = append(report.Drift, missingObject(report.Cluster, key, plan.NoApplyRecorded))
	}

	return nil
}

func (a *app) printDrift(format string, r driftReport) error {
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
			fmt.Fprintf(a.Stdout, "No drift: what exists is what was applied at %s.\n", r.Applied)
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
