// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

const (
	// defaultDrainTimeout and defaultJoinTimeout are 15 minutes, as in kops.
	defaultDrainTimeout = 15 * time.Minute
	defaultJoinTimeout  = 15 * time.Minute
)

func newRollingUpdateClusterCommand(a *app) *cobra.Command {
	var req rollingupdate.Request
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Replace machines that have an older launch template, one after the other",
		Long: `Show which machines do not have the newest launch template of their group and, once that is confirmed, replace them. Run it
after an apply that changed what machines are launched from: running machines keep their old configuration until then.

Control-plane machines are first, one at a time, and only while all others are Ready with a healthy etcd member. Workers
follow, group by group, at most --max-unavailable at once in each. A node is cordoned, its pods are evicted with respect for
their disruption budgets, and its machine is terminated; the Auto Scaling group launches the replacement. Pods without a
controller and data in emptyDir volumes are lost. Etcd volumes are kept: the replacement attaches the volume of its slot.

The update stops if a new machine does not become Ready in time, so that a broken configuration costs one machine. What has
begun is marked on the nodes: a rerun continues after an interruption, also by somebody else. Bastions are not replaced.` +
			exitStatusHelp(),
		Example: "  slipway rolling-update cluster demo\n  slipway rolling-update cluster demo --yes\n" +
			"  slipway rolling-update cluster demo --group workers --max-unavailable 25% --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, req.Name)
			if err != nil {
				return err
			}

			req.Name = name

			return roller{a}.runRollingUpdate(cmd.Context(), req)
		},
	}

	addNameFlag(cmd, &req.Name)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&req.Groups, "group", nil, "only this group; repeatable (default: all groups)")
	flags.BoolVar(&req.Force, "force", false, "also replace machines that have the newest launch template")
	flags.StringVar(
		&req.MaxUnavailable,
		"max-unavailable",
		"1",
		"how many workers of a group may be missing at once: a number or a percentage",
	)

	flags.DurationVar(
		&req.DrainTimeout,
		"drain-timeout",
		defaultDrainTimeout,
		"stop if the pods of a node are not evicted after this time; 0: wait forever",
	)

	flags.DurationVar(
		&req.JoinTimeout,
		"join-timeout",
		defaultJoinTimeout,
		"stop if a new machine is not Ready after this time",
	)

	return cmd
}

// roller replaces the machines of a cluster.
type roller struct{ *app }

// runRollingUpdate shows and replaces the outdated machines of a cluster.
func (a roller) runRollingUpdate(ctx context.Context, req rollingupdate.Request) error {
	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	req.Show = a.showOutdatedMachines
	req.Approve = func(n int) error {
		return a.confirm(fmt.Sprintf("Replace %d machines of cluster %s?", n, req.Name))
	}

	result, err := rollingupdate.Run(ctx, env, req)
	if err != nil {
		return err
	}

	if result.UpToDate {
		a.printMessage("every machine of cluster %s has the newest launch template", req.Name)
		return nil
	}

	a.printMessage("replaced %d machines in %s", result.Replaced, result.Took.Round(time.Second))

	return nil
}

// showOutdatedMachines prints the machines that will be replaced, in their order.
func (a roller) showOutdatedMachines(planned []rollout.Action) error {
	if len(planned) == 0 {
		return nil
	}

	var rows [][]string
	for _, p := range planned {
		group := p.Machine.Group
		if p.Machine.Slot != "" {
			group += " (slot " + p.Machine.Slot + ")"
		}

		rows = append(rows, []string{p.Machine.ID, p.Machine.NodeName, group, p.Machine.Zone, p.Reason})
	}

	a.printTable([]string{"MACHINE", "NODE", "GROUP", "ZONE", "REASON"}, rows)

	return nil
}
