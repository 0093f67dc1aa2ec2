// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func newDiffCommand(a *app) *cobra.Command {
	var o clusterOptions
	var format, file string
	cmd := &cobra.Command{
		Use:   "diff [NAME]",
		Short: "Show what an edit of the manifests would change in AWS",
		Long: `Show what applying the manifests of a file would change: the fields of the manifests and the properties in AWS. Nothing is
written. As with 'slipway replace', a file may contain the cluster, some of its groups, or both. Without -f, the manifests of
the state store are used. The command changes and locks nothing, so it can run on every pull request.

Differences that are not from the edit are marked as drift: they were changed in AWS since the last apply.

EXIT STATUS
  0  no changes
  1  error
  2  changes`,
		Example: "  slipway diff -f demo.yaml\n  slipway diff demo -o json | jq '.plan.summary'",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}

			return a.runDiff(cmd.Context(), cmp.Or(name, o.name), file, format, o)
		},
	}

	addClusterFlags(cmd, &o)
	addBuildFlags(cmd, &o)
	addFormatFlag(cmd, &format)
	cmd.Flags().StringVarP(
		&file,
		"filename",
		"f",
		"",
		"manifest file, or - for stdin (default: the state store's)",
	)

	return cmd
}

// diffReport is what diff prints.
type diffReport struct {
	Cluster string `json:"cluster"`
	// Manifests are the fields that the file changes, one line each.
	Manifests []string `json:"manifests"`
	// Plan is what applying it would do.
	Plan plan.Document `json:"plan"`
	// Drift are those addresses and properties of the plan that no edit changes; null if no apply is recorded.
	Drift []string `json:"drift"`
}

func (a *app) runDiff(ctx context.Context, name, file, format string, o clusterOptions) error {
	d, lines, err := a.loadDiffInput(ctx, name, file)
	if err != nil {
		return err
	}

	t, d, err := a.planLoaded(ctx, d, o)
	if t != nil {
		t.printCalls()
	}

	if d == nil {
		return err
	}

	r := diffReport{Cluster: t.name, Manifests: append([]string{}, lines...), Plan: d.planDocument(t.name)}
	drift, driftErr := a.driftInPlan(ctx, d, t.name)
	if driftErr != nil {
		return driftErr
	}

	r.Drift = drift
	if printErr := a.printDiff(format, r, d); printErr != nil || err != nil {
		return firstError(err, printErr)
	}

	if !d.isEmpty() || len(lines) > 0 {
		return Exit{exitChanges}
	}

	return nil
}

// loadDiffInput loads the manifests in the state and puts those of the file in their place.
func (a *app) loadDiffInput(ctx context.Context, name, file string) (*desiredState, []string, error) {
	if file == "" {
		name, err := a.clusterName(nil, name)
		if err != nil {
			return nil, nil, err
		}

		d, err := a.loadDesiredState(ctx, name)

		return d, nil, err
	}

	given, findings, err := a.readManifestFile(file)
	if err != nil {
		return nil, nil, err
	}

	of, err := a.clusterNameIn(given, name)
	if err != nil {
		return nil, nil, err
	}

	if name != "" && name != of {
		return nil, nil, withHint(
			fmt.Errorf("the file is about cluster %s, not %s", of, name),
			"leave NAME out",
		)
	}

	d, err := a.loadDesiredState(ctx, of)
	if err != nil {
		return nil, nil, err
	}

	c, err := a.loadChange(ctx, d.stateView, of)
	if err != nil {
		return nil, nil, err
	}

	after, findings := c.checkManifests(given, findings)
	if err := findings.Err(); err != nil {
		return nil, nil, err
	}

	lines := manifest.Diff(manifest.Default(c.before), after)
	d.manifests = after

	return d, lines, nil
}

// driftInPlan lists what of d's plan no edit has changed since the last apply; nil if none is recorded.
func (a *app) driftInPlan(ctx context.Context, d *desiredState, name string) ([]string, error) {
	applied, _, err := readAppliedRecord(ctx, d.stateView, name)
	if err != nil || len(applied.Resources) == 0 {
		return nil, err
	}

	g, err := applied.ToGraph(awskind.AllKinds())
	if err != nil {
		a.printMessage("what is drift is not known: %s", err)
		return nil, nil
	}

	edited := d.plan.ManifestChanges(g)
	out := []string{}

	for _, s := range d.plan.Steps {
		if edited[string(s.Addr)] {
			continue
		}

		if len(s.Changes) == 0 {
			out = append(out, string(s.Addr))
		}

		for _, c := range s.Changes {
			if key := string(s.Addr) + " " + c.Property; !edited[key] && c.New != plan.Unknown {
				out = append(out, key)
			}
		}
	}

	return out, nil
}

func (a *app) printDiff(format string, r diffReport, d *desiredState) error {
	if format != formatTable {
		return a.printValue(format, r)
	}

	if len(r.Manifests) > 0 {
		fmt.Fprintf(a.Stdout, "In the manifests:\n  %s\n\nIn AWS:\n", strings.Join(r.Manifests, "\n  "))
	}

	if err := a.printPlan(formatTable, r.Cluster, d); err != nil {
		return err
	}

	if len(r.Drift) > 0 {
		fmt.Fprintf(
			a.Stdout,
			"\nOf these, no edit but drift since the last apply:\n  %s\n",
			strings.Join(r.Drift, "\n  "),
		)
	}

	return nil
}
