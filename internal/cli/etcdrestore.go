// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdadmin"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// restoreOptions are the flags of 'slipway etcd restore'.
type restoreOptions struct {
	etcdadmin.RestoreRequest
	name    string
	timeout time.Duration
}

func newEtcdRestoreCommand(a *app) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT [NAME]",
		Short: "Restore etcd from a backup",
		Long: `Show what will be lost and what happens and, once that is confirmed, restore etcd from a backup: all members stop and set
their data aside, one machine restores the backup as a new cluster of etcd, the others join it, and the API servers restart.
Members that return later with older data are stopped and join too. It needs no working etcd: it is the way back after
the loss of a majority of the volumes, and after the deletion of data.

Before anything stops, the command reads the whole backup, decrypts it and compares it with its hashes, and compares its size with
that of the volumes. --skip-verification omits the former: the machine then finds out whether the backup is damaged when all members
have stopped.

Everything that was written after the backup is lost. Pods run on; controllers create and delete what differs from the backup.
The data from before stays in /var/lib/slipway/etcd/before-restore of each machine until the next restoration.

With --from, the backup is one of another cluster of the same state store, which need not run: the backup is copied, and its
encryption key, so that Secrets can be read. The cluster keeps its own certificates, and gets a new identity of etcd. Both must have
the same ranges of Services and pods and the same DNS domain. The objects name what the other cluster created in AWS, such as
volumes and load balancers: see docs/operations/etcd.md before both clusters run.

The machines do the work. If the command is killed, they go on; rerun it to continue waiting. If the machine that restores is
lost, or its volume, begin again with --again, or with --slot and another slot.` + exitStatusHelp(),
		Example: "  slipway etcd snapshots demo\n  slipway etcd restore 20261122t121500z-ab12cd demo --yes\n" +
			"  slipway etcd restore 20261122t121500z-ab12cd demo2 --from demo",
		Args: requireFirstArgument("SNAPSHOT", 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.ID = args[0]
			return etcdCommand{a}.restore(cmd.Context(), args[1:], o)
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "the cluster (SLIPWAY_CLUSTER)")
	flags.StringVar(&o.From, "from", "", "the cluster that the backup is of (default: the cluster itself)")
	flags.StringVar(&o.Slot, "slot", "", "control-plane slot whose machine restores the backup (default: the first that runs)")
	flags.BoolVar(&o.Again, "again", false, "restore it once more although its restoration has not ended")
	flags.BoolVar(&o.SkipVerification, "skip-verification", false, "do not read and check the backup before all members stop")
	flags.DurationVar(&o.timeout, "timeout", 20*time.Minute, "stop waiting after this time")
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

// restore shows a restoration and, once that is confirmed, carries it out. The arguments after that of the backup name the
// cluster, as those of the other commands of etcd do.
func (a etcdCommand) restore(ctx context.Context, args []string, o restoreOptions) error {
	admin, name, err := a.open(ctx, args, o.name)
	if err != nil {
		return err
	}

	plan, err := admin.PlanRestore(ctx, o.RestoreRequest)
	if err != nil {
		return err
	}

	a.showRestore(plan)
	if err := a.confirm(fmt.Sprintf("Restore etcd of cluster %s from backup %s?", name, describeOrigin(plan))); err != nil {
		return err
	}

	start := a.Now()
	if err := admin.Restore(ctx, plan, o.timeout); err != nil {
		return fmt.Errorf("restore etcd of cluster %s: %w", name, err)
	}

	lost := "what was written after " + cluster.FormatTime(plan.Backup.TakenAt) + " is lost"
	if plan.From != "" {
		lost = "next: see docs/operations/etcd.md, \"Restore into another cluster\""
	}

	a.printMessage("restored etcd of cluster %s from backup %s in %s; %s", name, describeOrigin(plan),
		a.Now().Sub(start).Round(time.Second), lost)

	return nil
}

// describeOrigin names the backup of a plan.
func describeOrigin(p etcdadmin.RestorePlan) string {
	if p.From == "" {
		return p.Backup.ID
	}

	return p.OriginID() + " of cluster " + p.From
}

// describeLoss says what a restoration loses.
func describeLoss(p etcdadmin.RestorePlan) string {
	if p.From == "" {
		return "Everything that was written after " + cluster.FormatTime(p.Backup.TakenAt) + " is lost."
	}

	return fmt.Sprintf("All objects of cluster %s are replaced by those that cluster %s had at %s.", p.Cluster, p.From,
		cluster.FormatTime(p.Backup.TakenAt))
}

// describeReplaced says which data is deleted for that which is set aside.
func describeReplaced(p etcdadmin.RestorePlan) string {
	if p.Generation == etcd.FirstRestoration {
		return ""
	}

	return "; in its place, what they had before the last restoration is deleted: copy /var/lib/slipway/etcd/before-restore first if it is needed"
}

// showRestore prints a plan.
func (a etcdCommand) showRestore(p etcdadmin.RestorePlan) {
	shown := p.Backup
	shown.ID = describeOrigin(p)
	fmt.Fprintf(a.Stdout, "Restore etcd of cluster %s from backup %s\n\n%s\n\n", p.Cluster, a.describeBackup(&shown), describeLoss(p))
	if p.Continues {
		fmt.Fprintf(a.Stdout, "This restoration has begun already, on the machine of slot %s: wait until it has ended.\n"+
			"If that machine or its volume is lost, begin again: --again, or --slot with another slot.\n", p.Slot)
		return
	}

	var names []string
	for _, m := range p.Members {
		names = append(names, m.Name)
	}

	var steps []string
	if p.From != "" {
		steps = append(steps, "copy the backup and the encryption key of cluster "+p.From+" to the store of cluster "+p.Cluster)
	}

	check := "read all parts of the backup, and compare them with their hashes, before anything stops"
	if p.SkipVerification {
		check = "the backup is not checked first (--skip-verification): if it is damaged, etcd is down until another one is restored"
	}

	steps = append(steps,
		check,
		strings.Join(names, ", ")+" stop and set their data aside"+describeReplaced(p),
		"etcd-"+p.Slot+fmt.Sprintf(" restores the backup as generation %d of the cluster", p.Generation),
	)
	if len(names) > 1 {
		steps = append(steps, "the others join etcd-"+p.Slot+", one after the other")
	}

	for n, step := range append(steps, "API servers restart") {
		fmt.Fprintf(a.Stdout, "%d. %s\n", n+1, step)
	}
}
