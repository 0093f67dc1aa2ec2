// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/drift"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
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

What the edit changes and drift, which is what was changed in AWS since the last apply, are shown in two sections.

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

func (a *app) runDiff(ctx context.Context, name, file, format string, o clusterOptions) error {
	req, err := a.newDiffRequest(name, file)
	if err != nil {
		return err
	}

	defer a.printCalls(o)
	req.Options = o.planOptions()
	report, err := drift.Diff(ctx, o.withAgent(a.newClusterEnv()), req)
	if report == nil {
		return err
	}

	if printErr := a.printDiff(format, report); printErr != nil || err != nil {
		return firstError(err, printErr)
	}

	if !report.Review.IsEmpty() || len(report.Manifests) > 0 {
		return ExitError{exitChanges}
	}

	return nil
}

// newDiffRequest reads the manifest file, if one is given, and finds the cluster that it is about.
func (a *app) newDiffRequest(name, file string) (drift.DiffRequest, error) {
	req := drift.DiffRequest{Name: name, Catalog: a.catalogSource()}
	var err error
	if file == "" {
		req.Name, err = a.clusterName(nil, name)
		return req, err
	}

	given, findings, err := a.readManifestFile(file)
	if err != nil {
		return req, err
	}

	req.Given = &given
	req.Findings = findings
	req.Name, err = a.clusterNameIn(given, name)
	if err == nil && name != "" && name != req.Name {
		err = withHint(
			fmt.Errorf("the file is about cluster %s, not %s", req.Name, name),
			"leave NAME out",
		)
	}

	return req, err
}

func (a *app) printDiff(format string, r *drift.DiffReport) error {
	if format != formatTable {
		return a.printValue(format, r)
	}

	if len(r.Manifests) > 0 {
		fmt.Fprintf(a.Stdout, "In the manifests:\n  %s\n\n", strings.Join(r.Manifests, "\n  "))
	}

	if len(r.DriftSteps) == 0 {
		if len(r.Manifests) > 0 {
			fmt.Fprintln(a.Stdout, "In AWS:")
		}

		return a.printPlan(formatTable, r.Review)
	}

	objects := formatObjects(r.Review)
	if len(r.EditSteps) > 0 || objects != "" {
		fmt.Fprintf(a.Stdout, "In AWS, by the edit:\n%s%s\n", objects, plan.FormatSteps(r.EditSteps))
	}

	summary := r.Plan.Summary
	fmt.Fprintf(
		a.Stdout,
		"In AWS, drift since the last apply, which an apply reverts:\n%s%s\n",
		plan.FormatSteps(r.DriftSteps),
		summary,
	)

	return nil
}
