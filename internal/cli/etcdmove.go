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
)

// moveOptions are the flags of 'slipway etcd move'.
type moveOptions struct {
	clusterOptions
	snapshot string
	lostZone bool
	timeout  time.Duration
}

func newEtcdMoveCommand(a *app) *cobra.Command {
	var o moveOptions
	cmd := &cobra.Command{
		Use:   "move [NAME]",
		Short: "Move a single control-plane machine to the zone of its manifest",
		Long: `Move etcd of a cluster with one control-plane machine to the zone of the subnet that its manifest names, as after the loss of
a zone. A volume cannot leave its zone: so a backup is restored on a new one. Name the subnet first, with 'slipway edit group'.

The command shows what it does and what will be lost and, once that is confirmed, sets the volume of the former zone aside, applies
the manifests, takes a backup if etcd works, ends the machine in the former zone, and restores the backup. What is written
after the backup is lost. The volume that is set aside keeps its data until you delete it.

If the command is killed, rerun it: it continues.` + exitStatusHelp(),
		Example: "  slipway edit group control-plane --name demo    # spec.subnets: [public-b]\n" +
			"  slipway etcd move demo --yes\n  slipway etcd move demo --zone-is-down --snapshot 20261122t121500z-ab12cd",
		RunE: func(cmd *cobra.Command, args []string) error {
			return etcdCommand{a}.move(cmd.Context(), args, o)
		},
	}

	addNameFlag(cmd, &o.name)
	cmd.Flags().StringVar(&o.nodeBinary, "node-binary", "",
		"the agent for machines (SLIPWAY_NODE_BINARY; default: slipway-node next to slipway)")
	cmd.Flags().StringVar(&o.snapshot, "snapshot", "", "the backup to restore (default: a new one if etcd works, or else the newest)")
	cmd.Flags().BoolVar(&o.lostZone, "zone-is-down", false,
		"do not wait until the machine in the former zone has ended: its zone is down")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 15*time.Minute, "give up waiting for the restoration after this time")
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

// move shows a move and, once that is confirmed, carries it out.
func (a etcdCommand) move(ctx context.Context, args []string, o moveOptions) error {
	admin, name, err := a.open(ctx, args, o.name)
	if err != nil {
		return err
	}

	plan, err := admin.PlanMove(ctx, o.snapshot)
	if err != nil {
		return err
	}

	if plan.Done {
		a.printMessage("etcd of cluster %s has its data in zone %s: there is nothing to move", name, plan.Zone)
		return nil
	}

	takesBackup := plan.Works && o.snapshot == ""
	a.showMove(plan, takesBackup)
	if err := a.confirm(fmt.Sprintf("Move etcd of cluster %s to zone %s?", name, plan.Zone)); err != nil {
		return err
	}

	if err := admin.SetVolumeAside(ctx, plan); err != nil {
		return err
	}

	o.recreateLostVolumes = true
	if err := a.runApply(ctx, name, o.clusterOptions); err != nil {
		return fmt.Errorf("apply the manifests of cluster %s: %w", name, err)
	}

	return a.finishMove(ctx, plan, takesBackup, o)
}

// finishMove moves the data, after the manifests were applied.
func (a etcdCommand) finishMove(ctx context.Context, plan etcdadmin.MovePlan, takesBackup bool, o moveOptions) error {
	admin, name, err := a.open(ctx, []string{plan.Cluster}, "")
	if err != nil {
		return err
	}

	if takesBackup {
		taken, err := admin.TakeSnapshot(ctx, etcdadmin.Request{})
		if err != nil {
			return withHint(fmt.Errorf("take a backup of etcd of cluster %s: %w", name, err),
				"rerun the command with --snapshot and one that 'slipway etcd snapshots' lists")
		}

		plan.Backup = &taken
	}

	if err := admin.EndMachines(ctx, plan, o.lostZone); err != nil {
		return err
	}

	restore, err := admin.PlanRestore(ctx, etcdadmin.RestoreRequest{ID: plan.Backup.ID})
	if err != nil {
		return err
	}

	if err := admin.Restore(ctx, restore, o.timeout); err != nil {
		return fmt.Errorf("restore etcd of cluster %s: %w", name, err)
	}

	a.printMessage("moved etcd of cluster %s to zone %s; what was written after %s is lost", name, plan.Zone,
		cluster.FormatTime(plan.Backup.TakenAt))

	return nil
}

// showMove prints a plan.
func (a etcdCommand) showMove(p etcdadmin.MovePlan, takesBackup bool) {
	from := "a backup that is taken when its machine is about to end"
	lost := "What is written after that is lost."
	if !takesBackup {
		from = "backup " + a.describeBackup(p.Backup)
		lost = "Everything that was written after " + cluster.FormatTime(p.Backup.TakenAt) + " is lost."
	}

	fmt.Fprintf(a.Stdout, "Move etcd of cluster %s to zone %s, from %s\n\n%s\n\n", p.Cluster, p.Zone, from, lost)

	var steps []string
	if p.Volume != "" {
		steps = append(steps, fmt.Sprintf("volume %s in zone %s is set aside: it keeps its data, and no machine uses it", p.Volume, p.VolumeZone))
	}

	steps = append(steps, "the manifests are applied: an empty volume is created in zone "+p.Zone)
	if takesBackup {
		steps = append(steps, "etcd-"+p.Slot+" takes a backup")
	}

	if len(p.Machines) > 0 {
		steps = append(steps, "machine "+strings.Join(p.Machines, ", ")+" is terminated: the API does not answer from now on")
	}

	steps = append(steps, "a machine in zone "+p.Zone+" restores the backup", "the API server starts")
	for n, step := range steps {
		fmt.Fprintf(a.Stdout, "%d. %s\n", n+1, step)
	}
}
