// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/apply"
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

The command shows what it does, what will be lost and the plan of 'slipway apply', and changes nothing until that is confirmed. While
etcd works, it takes a backup and waits until it was tested; otherwise it restores the newest one. Then the API server of a machine that
works stops, so that a last backup has everything. The volume of the former zone is set aside, the manifests are applied, that
machine ends, and the backup is restored. What was written after the backup is lost, if there is no such last one. The volume that is set
aside keeps its data until you delete it.

If the apply is refused, the volume gets its tags back, and the API server starts again. If the command is killed, rerun it: it
continues. The API server starts by itself after 15 minutes.` + exitStatusHelp(),
		Example: "  slipway edit group control-plane --name demo    # spec.subnets: [public-b]\n" +
			"  slipway etcd move demo --yes\n  slipway etcd move demo --zone-is-down --snapshot 20261122t121500z-ab12cd",
		RunE: func(cmd *cobra.Command, args []string) error {
			return etcdCommand{a}.move(cmd.Context(), args, o)
		},
	}

	addNameFlag(cmd, &o.name)
	cmd.Flags().StringVar(&o.nodeBinary, "node-binary", "",
		"the agent for machines (SLIPWAY_NODE_BINARY; default: slipway-node next to slipway)")
	cmd.Flags().StringVar(
		&o.snapshot, "snapshot", "",
		"the backup to restore (default: a new one, tested, if etcd works, or else the newest)",
	)
	cmd.Flags().BoolVar(&o.lostZone, "zone-is-down", false,
		"do not wait until the machine in the former zone has ended: its zone is down")
	cmd.Flags().DurationVar(
		&o.timeout, "timeout", 15*time.Minute,
		"give up waiting for the restoration after this time",
	)
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

	switch {
	case plan.Done:
		a.printMessage("etcd of cluster %s has its data in zone %s: there is nothing to move", name, plan.Zone)
		return nil
	case plan.Returns:
		return a.returnVolume(ctx, admin, plan)
	}

	a.showMove(plan)
	moved, err := admin.Move(ctx, etcdadmin.MoveRequest{
		Plan:     plan,
		LostZone: o.lostZone,
		Timeout:  o.timeout,
		Confirm: func() error {
			return a.confirm(fmt.Sprintf("Move etcd of cluster %s to zone %s?", name, plan.Zone))
		},
		Apply: func(ctx context.Context, within etcdadmin.MovedApply) error {
			return a.applyMove(ctx, plan, within, o.clusterOptions)
		},
	})
	if err != nil {
		return err
	}

	lost := "nothing is lost, since the API server had stopped before it was taken"
	if !moved.Everything {
		lost = "what was written after " + cluster.FormatTime(moved.Backup.TakenAt) + " is lost"
	}

	a.printMessage("moved etcd of cluster %s to zone %s, from backup %s; %s", name, plan.Zone, moved.Backup.ID, lost)

	return nil
}

// returnVolume gives a volume back that was set aside in the zone that the manifest names again.
func (a etcdCommand) returnVolume(ctx context.Context, admin *etcdadmin.Admin, p etcdadmin.MovePlan) error {
	fmt.Fprintf(a.Stdout, "Volume %s in zone %s was set aside by a move of etcd of cluster %s that has not ended.\n\n"+
		"1. it gets its tags back: machines and plans find it, with its data\n\n", p.Volume, p.VolumeZone, p.Cluster)
	if err := a.confirm("Use volume " + p.Volume + " again?"); err != nil {
		return err
	}

	if err := admin.ReturnVolume(ctx, p); err != nil {
		return err
	}

	a.printMessage("next: slipway apply %s", p.Cluster)

	return nil
}

// applyMove applies the manifests, planned without the volume that is set aside.
func (a etcdCommand) applyMove(
	ctx context.Context,
	p etcdadmin.MovePlan,
	within etcdadmin.MovedApply,
	o clusterOptions,
) error {
	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	env.Hooks.Approve = func(ctx context.Context, _ cluster.Review) error { return within.Approve(ctx) }
	o.recreateLostVolumes = true
	req := o.applyRequest(p.Cluster)
	req.Options.AbsentVolume = p.Volume
	req.Preparation = apply.Preparation{Do: within.Prepare, Undo: within.Undo}
	_, err = apply.Run(ctx, o.withAgent(env), req)

	return err
}

// showMove prints a plan.
func (a etcdCommand) showMove(p etcdadmin.MovePlan) {
	fmt.Fprintf(a.Stdout, "Move etcd of cluster %s to zone %s\n\n%s\n\n", p.Cluster, p.Zone, a.describeMovedBackup(p))
	for n, step := range listMoveSteps(p) {
		fmt.Fprintf(a.Stdout, "%d. %s\n", n+1, step)
	}

	fmt.Fprintln(a.Stdout)
}

// describeMovedBackup says which backup is restored, and what is lost.
func (a etcdCommand) describeMovedBackup(p etcdadmin.MovePlan) string {
	if p.TakesBackup {
		if len(p.Machines) == 0 {
			return "The backup that is taken first is restored. What is written after it is lost."
		}

		return "The last backup is restored. It has everything, since the API server stops before it is taken: the API does not answer " +
			"from then on."
	}

	text := "Backup " + a.describeBackup(p.Backup)
	if p.Backup.Verification == nil {
		text += ", not tested"
	}

	return text + " is restored. Everything that was written after " + cluster.FormatTime(p.Backup.TakenAt) + " is lost."
}

// listMoveSteps describes the steps of a move, in their order.
func listMoveSteps(p etcdadmin.MovePlan) []string {
	var steps []string
	if p.TakesBackup {
		steps = append(steps, "etcd-"+p.Slot+" takes a backup and tests it")
	}

	if p.TakesBackup && len(p.Machines) > 0 {
		steps = append(steps, "the API server stops; etcd-"+p.Slot+" takes a last backup, with everything, and tests it")
	}

	switch {
	case p.Aside:
		steps = append(steps, fmt.Sprintf("volume %s in zone %s stays set aside, as an earlier run left it; to use it again, name a subnet of "+
			"its zone and rerun", p.Volume, p.VolumeZone))
	case p.Volume != "":
		steps = append(steps, fmt.Sprintf("volume %s in zone %s is set aside: it keeps its data, and no machine uses it", p.Volume, p.VolumeZone))
	}

	steps = append(steps, "the manifests are applied: zone "+p.Zone+" has an empty volume then, and AWS may end the machine of another zone")
	if len(p.Machines) > 0 {
		steps = append(steps, "machine "+strings.Join(p.Machines, ", ")+" is terminated: the API does not answer from now on")
	}

	return append(steps, "a machine in zone "+p.Zone+" restores the backup", "the API server starts")
}
