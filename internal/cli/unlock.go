// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func newUnlockCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "unlock [NAME]",
		Short: "Show who holds a cluster's lock, and release it",
		Long: `Show who holds the lock of a cluster, since when and for what, and release it. It is for a lock whose owner is gone and
whose lease one does not want to wait for: a minute after its last sign of life a lock can be taken anyhow.

An owner that still works notices within seconds, changes nothing any more and says so. What it had begun in AWS just then
may still take effect; run 'slipway apply' afterwards to see and finish it. Unlocking is recorded in the history.` + exitStatusHelp(),
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
	if err := checkName(name); err != nil {
		return err
	}

	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}

	d, err := a.operationsOf(s, name)
	if err != nil {
		return err
	}

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
		name, h, formatTime(h.Since), h.Command, formatTime(h.Expires), lock.Token)
	if err := a.confirm("Take the lock away from " + h.Owner + "?"); err != nil {
		return err
	}

	if err := d.BreakLock(ctx, a.describeOperator("unlock"), lock.Token); err != nil {
		return err
	}

	a.printMessage("cluster %s is unlocked", name)

	return nil
}
