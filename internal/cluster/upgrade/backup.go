// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/cluster/etcdadmin"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// needsBackup reports whether an upgrade changes the control plane, and so can damage what etcd contains: there is no way
// back to an earlier version but a backup.
func needsBackup(p Proposal, skip bool) bool { return !skip && len(p.Steps) > 0 }

// backUp takes a backup of etcd before the first step. A run that continues an upgrade takes another one: what changed
// meanwhile would be lost otherwise.
func (u *upgrader) backUp(ctx context.Context, p Proposal) error {
	if !p.Backup {
		return nil
	}

	admin, err := etcdadmin.Open(ctx, u.env, u.request.Name)
	if err != nil {
		return err
	}

	u.notifyf("taking a backup of etcd first")
	taken, err := admin.TakeSnapshot(ctx, etcdadmin.Request{Reason: backup.ReasonUpgrade})
	if err != nil {
		return diag.WithHint(
			fmt.Errorf("take a backup of etcd first: %w", err),
			"fix the cause; or set --skip-backup to upgrade without a way back",
		)
	}

	u.notifyf("took backup %s of etcd at revision %d", taken.ID, taken.Revision)

	return nil
}
