// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/cluster/validate"
)

// exitUnhealthy is the exit code of validate for an unhealthy cluster, as in kops.
const exitUnhealthy = 2

type validateOptions struct {
	name, format string
	wait         time.Duration
	watch        bool
	schema       bool
}

func newValidateClusterCommand(a *app) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Check machines, etcd, the API, load balancers, nodes and system pods",
		Long: `Check that a cluster is healthy: every machine runs and its agent reports, every etcd member works, every API server is
ready, the load balancers reach them, every kubelet reports, every system pod runs, and no certificate is about to expire.
Each problem is printed with its machine, its cause and the next step, the most severe first. When the API does not answer,
the agents' reports on the machines' consoles say what of etcd still works. SSH is not needed.

With --wait, check again until the cluster is healthy or the time is over. With --watch, check again every few seconds until
Ctrl-C: a terminal shows the current state, other outputs get one line for each change, or with -o json one document.

'slipway validate cluster --schema' prints the JSON Schema of the JSON output.` +
			exitStatusHelp(
				"2  the cluster is not healthy",
			),
		Example: "  slipway validate cluster demo\n  slipway validate cluster demo --wait 10m\n" +
			"  slipway validate cluster demo --watch\n" +
			"  slipway validate cluster demo -o json | jq '.checks[] | select(.ok | not)'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.schema {
				_, err := a.Stdout.Write(health.Schema())
				return err
			}

			if o.watch && o.wait > 0 {
				return withHint(errors.New("--watch and --wait exclude each other"), "use one of them")
			}

			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			if o.watch {
				return healthPrinter{a}.watchHealth(cmd.Context(), name, o.format)
			}

			return healthPrinter{a}.runValidateCluster(cmd.Context(), name, o)
		},
	}

	addNameFlag(cmd, &o.name)
	addFormatFlag(cmd, &o.format)
	cmd.Flags().DurationVar(
		&o.wait, "wait", 0,
		"check again until the cluster is healthy, for at most this long",
	)
	cmd.Flags().BoolVarP(
		&o.watch, "watch", "w", false,
		"check again every few seconds and show what changes",
	)
	cmd.Flags().BoolVar(&o.schema, "schema", false, "print the JSON Schema of the JSON output")

	return cmd
}

// healthPrinter checks a cluster and prints its health.
type healthPrinter struct{ *app }

// runValidateCluster checks the cluster, waits until it is healthy if asked to, and prints the last report.
func (a healthPrinter) runValidateCluster(ctx context.Context, name string, o validateOptions) error {
	r, err := validate.Wait(ctx, a.newClusterEnv(), validate.Request{Name: name, Wait: o.wait})
	if err != nil {
		return err
	}

	if err := a.printHealth(name, o.format, r); err != nil {
		return err
	}

	if !r.Valid {
		return ExitError{Code: exitUnhealthy}
	}

	return nil
}

// printHealth prints the report of a cluster. The last line, whether it is healthy, is a message.
func (a healthPrinter) printHealth(name, format string, r health.Report) error {
	if format != formatTable {
		return a.printValue(format, r)
	}

	lines := r.Lines(name)
	for _, line := range lines[:len(lines)-1] {
		fmt.Fprintln(a.Stdout, a.colorSeverity(line))
	}

	last := lines[len(lines)-1]
	if !a.quiet { // the report has left out control characters
		fmt.Fprintln(a.Stderr, a.colorText(a.Stderr, severityColor(last.Severity), last.Text))
	}

	return nil
}

// colorSeverity colours a line for stdout by its severity.
func (a healthPrinter) colorSeverity(line health.Line) string {
	return a.colorText(a.Stdout, severityColor(line.Severity), line.Text)
}

func severityColor(s health.Severity) string {
	switch s {
	case health.OK:
		return green
	case health.Warning:
		return yellow
	default:
		return red
	}
}

// clearScreen moves the cursor of a terminal to its top left corner and clears what follows.
const clearScreen = "\x1b[H\x1b[2J"

// watchHealth shows the health of a cluster until ctx ends. A terminal always shows the current report. Other
// outputs get the first report, and then a line for each change.
func (a healthPrinter) watchHealth(ctx context.Context, name, format string) error {
	live := isTerminal(a.Stdout) && a.Getenv("TERM") != "dumb" && format == formatTable
	var before *health.Report

	return validate.Watch(ctx, a.newClusterEnv(), validate.Request{Name: name}, func(r health.Report) error {
		defer func() { before = &r }()

		switch {
		case live:
			fmt.Fprintf(a.Stdout, "%s%s  slipway validate cluster %s --watch (Ctrl-C ends it)\n\n", clearScreen,
				a.Now().Format(time.TimeOnly), name)

			return a.printHealth(name, format, r)

		case before == nil:
			return a.printHealth(name, format, r)
		case format != formatTable:
			if len(health.Changes(*before, r)) > 0 {
				return a.printValue(format, r)
			}

			return nil

		default:
			a.printChanges(name, *before, r)
			return nil
		}
	})
}

// printChanges prints a line for each change, and one when the cluster becomes healthy or unhealthy.
func (a healthPrinter) printChanges(name string, before, after health.Report) {
	at := a.Now().Format(time.TimeOnly)
	for _, c := range health.Changes(before, after) {
		if c.Resolved {
			what := c.Check.Kind + " " + c.Check.Name
			if c.Check.Cause != "" { // the same machine may still have another problem
				what += ": " + c.Check.Cause
			}

			fmt.Fprintf(a.Stdout, "%s RESOLVED %s\n", at, what)

			continue
		}

		fmt.Fprintf(a.Stdout, "%s %s\n", at, c.Check.Line(after.Time))
	}

	if before.Valid != after.Valid {
		lines := after.Lines(name)
		fmt.Fprintf(a.Stdout, "%s %s\n", at, lines[len(lines)-1].Text)
	}
}
