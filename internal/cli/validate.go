// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
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
}

func newValidateClusterCommand(a *app) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Check machines, etcd, the API, nodes and system pods",
		Long: `Check that a cluster is healthy: every machine runs, every etcd member is healthy, the API answers, every machine has a
Ready node, every system pod runs. Each problem is printed with its cause, from the machines' boot reports on their consoles;
SSH is not needed. With --wait, check again until the cluster is healthy or the time is over.` +
			exitStatusHelp(
				"2  the cluster is not healthy",
			),
		Example: "  slipway validate cluster demo\n  slipway validate cluster demo --wait 10m\n  slipway validate cluster demo -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return a.runValidateCluster(cmd.Context(), name, o)
		},
	}

	addNameFlag(cmd, &o.name)
	addFormatFlag(cmd, &o.format)
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "check again until the cluster is healthy, for at most this long")

	return cmd
}

// runValidateCluster checks the cluster, waits until it is healthy if asked to, and prints the last report.
func (a *app) runValidateCluster(ctx context.Context, name string, o validateOptions) error {
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

// printHealth prints the report of a cluster: failed checks first.
func (a *app) printHealth(name, format string, r health.Report) error {
	if format != formatTable {
		return a.printValue(format, r)
	}

	var rows [][]string
	for _, ok := range []bool{false, true} {
		for _, c := range r.Checks {
			if c.OK != ok {
				continue
			}

			state := "ok"
			if !ok {
				state = "FAILED"
			}

			cause := c.Cause
			if c.Hint != "" {
				cause += " (" + c.Hint + ")"
			}

			rows = append(rows, []string{c.Kind, c.Name, state, cause})
		}
	}

	a.printTable([]string{"KIND", "NAME", "STATE", "CAUSE"}, rows)
	if r.Valid {
		a.printMessage("%s", a.colorText(a.Stderr, green, "cluster "+name+" is healthy"))
	} else {
		a.printMessage("%s", a.colorText(a.Stderr, red, "cluster "+name+" is not healthy"))
	}

	return nil
}
