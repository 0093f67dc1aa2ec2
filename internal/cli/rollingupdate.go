// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// defaultJoinTimeout is 15 minutes, as in kops.
const defaultJoinTimeout = 15 * time.Minute

const rollingUpdateLong = `Show which machines do not have the newest launch template of their group and, once that is confirmed, replace them. Run it
after an apply that changed what machines are launched from: running machines keep their old configuration until then.

Control-plane machines are first, one at a time, and only while all others are Ready with a healthy etcd member. Workers
follow, all groups at once, in batches of --max-unavailable. A node is cordoned, its pods are evicted with respect for
their disruption budgets, and its machine is terminated; the Auto Scaling group launches the replacement. With --max-surge,
new machines start before old ones are drained. Pods without a controller and data in emptyDir volumes are lost. Etcd
volumes are kept: the replacement attaches the volume of its slot.

With three or more control-plane machines, a new one prepares everything while the old one serves, and then takes over its
volume and etcd member, which is missing for some seconds. --max-surge 0 turns this off, and so does a lack of capacity.

The flags override spec.rollingUpdate of the manifests, which also has gates: checks that must pass before each further
machine. The update stops if a new machine does not become Ready in time, so that a broken configuration costs one machine;
--rollback returns to the launch templates that served last, and takes back what running machines have applied themselves.
A document that running machines could not apply stops the update before it begins; --retry-refused lets them try again, if
the cause was temporary. What has begun is marked on the nodes: a rerun continues after an interruption, also by somebody else. An interrupt (Ctrl-C) stops after the machines that are being drained, a second one
at once. Bastions are not replaced.

Machines of groups with spec.manager Karpenter are replaced by Karpenter, after all others and within maxUnavailable: the command
has the control plane tell Karpenter what the last apply wanted, and does not wait. --force and --rollback are not about them.

With -o json, stdout has one JSON object for each event, on a line of its own, and no plan.`

// rollingUpdateOptions are the flags that are not part of the request.
type rollingUpdateOptions struct {
	format       string
	drainTimeout time.Duration
}

func newRollingUpdateClusterCommand(a *app) *cobra.Command {
	var req rollingupdate.Request
	var o rollingUpdateOptions
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Replace machines that have an older launch template, one after the other",
		Long:  rollingUpdateLong + exitStatusHelp(),
		Example: "  slipway rolling-update cluster demo\n  slipway rolling-update cluster demo --yes\n" +
			"  slipway rolling-update cluster demo --group workers --max-surge 25% --canary 1 --yes\n" +
			"  slipway rolling-update cluster demo --rollback --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, req.Name)
			if err != nil {
				return err
			}

			req.Name = name
			req.DrainTimeout = drainTimeout(cmd.Flags(), o.drainTimeout)

			return roller{app: a, format: o.format}.runRollingUpdate(cmd.Context(), req)
		},
	}

	addNameFlag(cmd, &req.Name)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	addFormatFlag(cmd, &o.format, formatTable, formatJSON)
	addRollingUpdateFlags(cmd.Flags(), &req, &o)

	return cmd
}

// addRollingUpdateFlags adds the flags of the request.
func addRollingUpdateFlags(flags *pflag.FlagSet, req *rollingupdate.Request, o *rollingUpdateOptions) {
	flags.StringSliceVar(&req.Groups, "group", nil, "only this group; repeatable (default: all groups)")
	flags.BoolVar(&req.Force, "force", false, "also replace machines that have the newest launch template")
	flags.BoolVar(
		&req.RetryRefused,
		"retry-refused",
		false,
		"let machines that could not apply their node document try it again first",
	)

	flags.BoolVar(&req.Retry, "retry", false, "also try launch templates again from which a rollback has returned")
	flags.BoolVar(&req.Rollback, "rollback", false, "return to the launch templates with which the groups served last")
	flags.BoolVar(
		&req.AutomaticRollback,
		"automatic-rollback",
		false,
		"roll back when the update stops because of failures",
	)

	flags.StringVar(
		&req.MaxUnavailable,
		"max-unavailable",
		"",
		"how many workers of a group may be missing at once: a number or a percentage (default: as in the manifest, else 1)",
	)

	flags.StringVar(
		&req.MaxSurge,
		"max-surge",
		"",
		"how many additional workers of a group may run: a number or a percentage (default: as in the manifest, else 0); "+
			"0 also lets no control-plane machine prepare in advance",
	)

	flags.StringVar(&req.Canary, "canary", "", "how many workers of a group are replaced before all others")
	flags.DurationVar(&req.PauseBetween, "pause", 0, "time between a new machine that serves and the next drain")
	flags.IntVar(&req.MaxFailures, "max-failures", 0, "stop after this many machines that do not become Ready (default 1)")
	addDrainTimeoutFlag(flags, &o.drainTimeout)
	flags.DurationVar(
		&req.JoinTimeout,
		"join-timeout",
		defaultJoinTimeout,
		"stop if a new machine is not Ready after this time",
	)
}

// drainTimeoutFlag is the name of the flag that limits a drain.
const drainTimeoutFlag = "drain-timeout"

// addDrainTimeoutFlag adds the flag that limits a drain.
func addDrainTimeoutFlag(flags *pflag.FlagSet, limit *time.Duration) {
	flags.DurationVar(
		limit,
		drainTimeoutFlag,
		0,
		"stop if the pods of a node are not evicted after this time; 0: wait forever (default: as in the manifest, else 15m)",
	)
}

// drainTimeout returns the limit of drains for a request: zero if the manifests set it, negative for none.
func drainTimeout(flags *pflag.FlagSet, limit time.Duration) time.Duration {
	switch {
	case !flags.Changed(drainTimeoutFlag):
		return 0
	case limit == 0:
		return -1
	}

	return limit
}

// roller replaces the machines of a cluster.
type roller struct {
	*app
	format string
}

// runRollingUpdate shows and replaces the outdated machines of a cluster.
func (a roller) runRollingUpdate(ctx context.Context, req rollingupdate.Request) error {
	if !slices.Contains([]string{formatTable, formatJSON}, a.format) {
		return unknownEventFormat(a.format)
	}

	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	req.RunCommand = runGateCommand
	req.Show = a.showOutdatedMachines
	req.Approve = func(n int) error {
		switch {
		case n == 0 && req.Rollback:
			return a.confirm(fmt.Sprintf("Return cluster %s to its former settings without replacing machines?", req.Name))
		case n == 0:
			return a.confirm(fmt.Sprintf("Launch new machines of cluster %s from these versions, without replacing machines?", req.Name))
		}

		return a.confirm(fmt.Sprintf("Replace %d machines of cluster %s?", n, req.Name))
	}

	req.ApproveRetry = func(groups []string) error {
		return a.confirm(fmt.Sprintf("Let machines of %s of cluster %s try their node document again?",
			strings.Join(groups, ", "), req.Name))
	}

	live := a.liveTable()
	req.OnProgress = live.show
	req.OnEvent = a.printEvent
	result, err := rollingupdate.Run(ctx, env, req)
	live.clear()
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

// unknownEventFormat is the error for a format that events cannot be printed in.
func unknownEventFormat(format string) error {
	return withHint(fmt.Errorf("output format %q is not known", format), "use -o table or json")
}

// printEvent prints one step of the update: a line for people, or a JSON object.
func (a roller) printEvent(e rollingupdate.Event) {
	if a.format != formatJSON {
		a.printMessage("%s", e.Message)
		return
	}

	line, err := encodeJSON(e, "")
	if err != nil {
		return // cannot happen: an event is text and times
	}

	_, _ = a.Stdout.Write(line) // a closed pipe must not stop an update that has begun
}

// runGateCommand runs the command of a gate. It returns what the command printed.
func runGateCommand(ctx context.Context, argv []string) (string, error) {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout = &output
	cmd.Stderr = &output
	err := cmd.Run()

	return output.String(), err
}

// showOutdatedMachines prints the machines that will be replaced, in their order.
func (a roller) showOutdatedMachines(planned []rollout.Action) error {
	if len(planned) == 0 || a.format == formatJSON {
		return nil
	}

	var rows [][]string
	for _, p := range planned {
		group := formatGroup(p.Machine.Group, p.Machine.Slot)
		rows = append(rows, []string{p.Machine.ID, p.Machine.NodeName, group, p.Machine.Zone, p.Reason})
	}

	a.printTable([]string{"MACHINE", "NODE", "GROUP", "ZONE", "REASON"}, rows)

	return nil
}

// formatGroup formats the group of a machine with its slot.
func formatGroup(group, slot string) string {
	if slot == "" {
		return group
	}

	return group + " (slot " + slot + ")"
}
