// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
)

func newUnlockCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "unlock [NAME]",
		Short: "Show who holds a cluster's lock, and release it",
		Long: `Show who holds the lock of a cluster, since when and for which command, and release it. Use it if the owner is gone and you
do not want to wait for the end of its lease: a lock can be taken over about a minute after its last renewal.

An owner that is still running notices within seconds, stops changing AWS, and reports that the lock is lost. Calls that it had
already sent may still take effect; run 'slipway plan' to see, and 'slipway apply' to finish. The history records the unlock.` + exitStatusHelp(),
		Example: "  slipway unlock demo\n  slipway unlock demo --yes",
		GroupID: groupState,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, name)
			if err != nil {
				return err
			}

			return a.runUnlock(cmd.Context(), name)
		},
	}

	addNameFlag(cmd, &name)
	a.addYesFlag(cmd)

	return cmd
}

func (a *app) runUnlock(ctx context.Context, name string) error {
	if err := clusterstate.CheckName(name); err != nil {
		return err
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	d := env.Coordinator(s, name)
	lock, err := d.ReadLock(ctx)
	if err != nil {
		return err
	}

	if lock.Holder == nil {
		a.printMessage("cluster %s is not locked", name)
		return nil
	}

	h := lock.Holder
	a.printMessage("cluster %s is locked by %s since %s\n  command  %s\n  lease    ends at %s\n  token    %d",
		name, h, cluster.FormatTime(h.Since), h.Command, cluster.FormatTime(h.Expires), lock.Token)
	if err := a.confirm("Take the lock away from " + h.Owner + "?"); err != nil {
		return err
	}

	if err := d.BreakLock(ctx, env.Initiator("unlock"), lock.Token); err != nil {
		return err
	}

	a.printMessage("cluster %s is unlocked", name)

	return nil
}
