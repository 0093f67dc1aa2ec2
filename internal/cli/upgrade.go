// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/upgrade"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

func newUpgradeClusterCommand(a *app) *cobra.Command {
	var req upgrade.Request
	var automatic bool
	var format string
	var drainLimit time.Duration
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Upgrade Kubernetes on a running cluster",
		Long: `Show the steps of an upgrade and, once that is confirmed, carry them out: write the version into the manifests, apply
them, and replace machines one after the other, first those of the control plane, then workers. Until the control plane is
upgraded, the groups of workers keep their version (spec.kubernetesVersion of the InstanceGroup), so that no new worker is
newer than an API server. Add-ons follow when the last machine of the control plane is upgraded.

Checked first: Kubernetes is upgraded one minor version at a time, kubelets are not newer than API servers and at most three
minor versions older, etcd is upgraded one minor version at a time, no client has used an API that the version does not have,
the ranges of the add-ons (kubernetesVersion of their channel) contain the version, and what 'slipway preflight' checks.
The asset catalogue (--assets, else SLIPWAY_ASSETS, else the one in slipway) also sets the versions of etcd, containerd, the CNI
plugins and the add-ons.

A backup of etcd is taken before the first step. Each step is derived from the manifests, the last apply and the nodes. After
a failure or a kill, rerun the command to continue. There is no way back to an earlier version but that backup.

With --automatic, the command upgrades to the newest patch of the cluster's minor version, if spec.upgrade of the Cluster
allows it and a maintenance window is open, and otherwise does nothing. Have a timer run it, with --yes.

With -o json, stdout has one JSON object for each step and each event of a rolling update, on a line of its own, and no plan.` + exitStatusHelp(),
		Example: "  slipway upgrade cluster demo\n  slipway upgrade cluster demo --kubernetes-version 1.36.3 --yes\n" +
			"  slipway upgrade cluster demo --automatic --yes\n" +
			"  slipway upgrade cluster demo --yes -o json | jq -r '[.type, .remainingSeconds, .message] | @tsv'",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, req.Name)
			if err != nil {
				return err
			}

			req.Name = name
			req.DrainTimeout = drainTimeout(cmd.Flags(), drainLimit)

			return upgradeCommand{app: a, automatic: automatic, format: format}.run(cmd.Context(), req)
		},
	}

	addUpgradeFlags(a, cmd, &req)
	addDrainTimeoutFlag(cmd.Flags(), &drainLimit)
	addFormatFlag(cmd, &format, formatTable, formatJSON)
	cmd.Flags().BoolVar(
		&automatic,
		"automatic",
		false,
		"upgrade to the newest patch if spec.upgrade allows it now; otherwise do nothing",
	)

	excludeFlags(cmd, "automatic", "kubernetes-version")
	excludeFlags(cmd, "automatic", "ignore-removed-apis")
	excludeFlags(cmd, "automatic", "ignore-addon-versions")

	return cmd
}

// addUpgradeFlags adds the flags of an upgrade.
func addUpgradeFlags(a *app, cmd *cobra.Command, req *upgrade.Request) {
	addNameFlag(cmd, &req.Name)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	a.addAssetsFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(
		&req.Version,
		"kubernetes-version",
		"",
		"version to upgrade to, such as 1.36.3, or 1.36 for its newest patch (default: the newest patch of the next minor version in the asset catalogue)",
	)

	flags.BoolVar(
		&req.IgnoreRemovedAPIs,
		"ignore-removed-apis",
		false,
		"upgrade although clients use APIs that the version does not have",
	)

	flags.BoolVar(
		&req.IgnoreAddonVersions,
		"ignore-addon-versions",
		false,
		"upgrade although add-ons are for other versions of Kubernetes",
	)

	flags.BoolVar(&req.SkipBackup, "skip-backup", false, "do not take a backup of etcd first")
	flags.DurationVar(
		&req.JoinTimeout,
		"join-timeout",
		defaultJoinTimeout,
		"stop if a new machine is not Ready after this time",
	)
}

// upgradeCommand upgrades a cluster.
type upgradeCommand struct {
	*app

	// automatic asks for what spec.upgrade allows at this time only.
	automatic bool
	// format is that of the steps: a table for people, or JSON.
	format string
}

// run shows and carries out an upgrade.
func (a upgradeCommand) run(ctx context.Context, req upgrade.Request) error {
	if !slices.Contains([]string{formatTable, formatJSON}, a.format) {
		return unknownEventFormat(a.format)
	}

	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	req = a.withTerminal(req)
	live := a.followEvents(&req)
	run := upgrade.Run
	if a.automatic {
		run = upgrade.RunAutomatic
	}

	result, err := run(ctx, env, req)
	live.clear()
	if err != nil {
		return err
	}

	a.printResult(req.Name, result)

	return nil
}

// withTerminal returns a request that uses the operator's terminal and computer.
func (a upgradeCommand) withTerminal(req upgrade.Request) upgrade.Request {
	req.Catalog = a.catalogSource()
	req.RunCommand = runGateCommand
	req.Show = a.showProposal
	req.Approve = func(p upgrade.Proposal) error {
		return a.confirm(fmt.Sprintf("Upgrade cluster %s to Kubernetes %s?", p.Cluster, p.To))
	}

	return req
}

// followEvents lets the events of an upgrade be printed, and on a terminal the machines that are replaced be shown.
func (a upgradeCommand) followEvents(req *upgrade.Request) liveTable {
	events := roller{app: a.app, format: a.format}
	live := events.liveTable()
	req.OnProgress = live.show
	req.OnEvent = func(e rollingupdate.Event) {
		if e.Type == upgrade.EventStep {
			live.clear()
		}

		events.printEvent(e)
	}

	return live
}

// printResult prints how an upgrade ended.
func (a upgradeCommand) printResult(name string, result upgrade.Result) {
	switch {
	case result.Reason != "":
		a.printMessage("cluster %s is not upgraded now: %s", name, result.Reason)
	case result.UpToDate:
		a.printMessage("cluster %s has Kubernetes %s on every machine", name, result.Version)
	default:
		a.printMessage(
			"upgraded cluster %s to Kubernetes %s in %s; %d machines were replaced",
			name,
			result.Version,
			result.Took.Round(time.Second),
			result.Replaced,
		)
	}
}

// describeUpgrade says in one line what an upgrade is from and to.
func describeUpgrade(p upgrade.Proposal) string {
	if p.From == p.To { // an interrupted upgrade, or one of other components
		return fmt.Sprintf("Upgrade of cluster %s to Kubernetes %s, which its control plane has", p.Cluster, p.To)
	}

	return fmt.Sprintf("Upgrade of cluster %s from Kubernetes %s to %s", p.Cluster, p.From, p.To)
}

// showProposal prints the steps of an upgrade and what was checked.
func (a upgradeCommand) showProposal(p upgrade.Proposal) error {
	if a.format == formatJSON {
		return nil
	}

	fmt.Fprintf(a.Stdout, "%s\n\n", describeUpgrade(p))

	if p.Backup {
		fmt.Fprint(a.Stdout, "First, a backup of etcd is taken.\n\n")
	}

	var rows [][]string
	for n, s := range p.Steps {
		rows = append(rows, []string{strconv.Itoa(n + 1), s.Describe()})
	}

	last := "replace machines that still have an older launch template"
	rows = append(rows, []string{strconv.Itoa(len(p.Steps) + 1), last})
	a.printTable([]string{"STEP", "WHAT"}, rows)

	for _, c := range p.Components {
		fmt.Fprintf(a.Stdout, "%s: %s, now %s\n", c.Name, c.To, c.From)
	}

	for _, gate := range p.Gates {
		fmt.Fprintln(a.Stdout, plainerror.Printable(gate))
	}

	for _, api := range p.Removed {
		fmt.Fprintf(a.Stdout, "in use: %s\n", plainerror.Printable(fmt.Sprint(api))) // as API servers say
	}

	for _, addon := range p.Unfit {
		fmt.Fprintf(a.Stdout, "add-on for other versions: %s\n", plainerror.Printable(fmt.Sprint(addon)))
	}

	if p.Servers > 0 && len(p.Removed) == 0 {
		fmt.Fprintf(a.Stdout, "no client has used an API that %s does not have (%d of %d API servers asked)\n",
			p.To, p.Asked, p.Servers)
	}

	return nil
}
