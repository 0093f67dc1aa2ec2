// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/preflight"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// exitFindings is the exit code of 'slipway preflight' if there are only warnings.
const exitFindings = 2

func newPreflightCommand(a *app) *cobra.Command {
	var o clusterOptions
	var format string
	cmd := &cobra.Command{
		Use:   "preflight [NAME]",
		Short: "Check the prerequisites of an apply",
		Long: `Check all prerequisites of an apply before it creates anything, and report all findings at once: STS answers and the clocks
agree, the state store can be read, the images exist and match their machine types, each machine type is offered in each zone
of its group, address ranges do not overlap, the account's quotas for VPCs, elastic IP addresses, vCPUs, security group rules,
load balancers, IAM roles and instance profiles suffice, a public DNS zone is delegated, and IAM allows every action of
'slipway iam operator-policy' (by simulation).

Nothing is changed.

EXIT STATUS
  0  no findings
  1  an apply would fail, or a check failed
  2  warnings only`,
		Example: "  slipway preflight demo\n  slipway preflight demo -o json | jq '.findings[]'",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return a.runPreflight(cmd.Context(), name, format, o)
		},
	}

	addClusterFlags(cmd, &o)
	addFormatFlag(cmd, &format, formatTable, formatJSON, formatYAML)

	return cmd
}

// runPreflight makes all checks and prints their findings.
func (a *app) runPreflight(ctx context.Context, name, format string, o clusterOptions) error {
	defer a.printCalls(o)
	findings, err := preflight.Run(ctx, a.newClusterEnv(), name)
	if err != nil {
		return err
	}

	return a.printPreflight(format, findings)
}

func (a *app) printPreflight(format string, fs diag.Findings) error {
	failed := slices.ContainsFunc(fs, func(f diag.Finding) bool { return f.Severity == diag.Error })
	switch {
	case format != formatTable:
		type finding struct {
			Severity string `json:"severity"`
			Field    string `json:"field"`
			Value    string `json:"value,omitempty"`
			Finding  string `json:"finding"`
			Fix      string `json:"fix,omitempty"`
		}

		list := []finding{}
		for _, f := range fs {
			list = append(list, finding{string(f.Severity), f.Path, f.Value, f.Message, f.Hint})
		}

		if err := a.printValue(format, map[string]any{"findings": list}); err != nil {
			return err
		}

	case len(fs) == 0:
		fmt.Fprintln(a.Stdout, "no findings")
	default:
		w := tabwriter.NewWriter(a.Stdout, 0, 8, 3, ' ', 0)
		fmt.Fprintln(w, "SEVERITY\tFIELD\tVALUE\tFINDING\tFIX")
		for _, f := range fs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Severity, f.Path, f.Value, f.Message, f.Hint)
		}

		if err := w.Flush(); err != nil {
			return fmt.Errorf("print findings: %w", err)
		}
	}

	switch {
	case failed:
		return ExitError{exitError}
	case len(fs) > 0:
		return ExitError{exitFindings}
	}

	return nil
}
