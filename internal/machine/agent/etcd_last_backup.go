// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// The only control-plane machine of a cluster ends when etcd moves to another zone. So that the backup from which the next machine
// starts has every write, its API server stops before the backup is taken: nothing else writes to etcd.

// takeLast stops the API server and takes a backup for a request. If that fails, the API server starts again at once.
func (b *etcdBackup) takeLast(ctx context.Context, r backup.Request) (id string, err error) {
	if !r.IsSigned {
		return "", errors.New("the request stops the API server, and nobody who has the key of the cluster has signed it: it is ignored")
	}

	if others := len(b.agent.doc.Slots) - 1; others > 0 {
		return "", fmt.Errorf("%d other control-plane machines write to etcd: stopping the API server of this one ends no writes", others)
	}

	wasStopped := !b.startsAPIAt.IsZero()
	b.startsAPIAt = b.now().Add(backup.MaxAPIStop)
	b.agent.Log.Warn("the API server is stopped, so that a backup of etcd has every write",
		slog.String("by", r.By), slog.Time("startsAgain", b.startsAPIAt))
	if err := b.stopAPI(ctx); err != nil {
		return "", errors.Join(err, b.startAPI())
	}

	if wasStopped {
		if id, err := b.findPresent(ctx); err != nil || id != "" {
			return id, err
		}
	}

	if id, err = b.takeOnce(ctx, r); err != nil {
		return "", errors.Join(err, b.startAPI())
	}

	return id, nil
}

// stopAPI stops the static pods, and returns once the API server has ended.
func (b *etcdBackup) stopAPI(ctx context.Context) error {
	if err := (slotRelease{member: b.member}).stopControlPlane(ctx); err != nil {
		return err
	}

	if findListener(b.agent.Root, kube.APIPort) != "" {
		return fmt.Errorf("the API server still listens on port %s %s after it was stopped: it may write to etcd", kube.APIPort, apiStopPatience)
	}

	return nil
}

// findPresent returns the id of a backup that was taken of the present revision of etcd's data, empty if there is none.
func (b *etcdBackup) findPresent(ctx context.Context) (string, error) {
	status, err := b.agent.newEtcdManager().Status(ctx, b.url)
	if err != nil {
		return "", err
	}

	generation, err := b.member.dataGeneration(etcd.DataDir)
	if err != nil {
		return "", err
	}

	listing, err := b.catalog.List(ctx)
	if err != nil {
		return "", err
	}

	for _, taken := range listing.Backups {
		if taken.Reason == backup.ReasonMove && taken.IsSigned && taken.Generation == generation && taken.Revision == status.Revision {
			return taken.ID, nil
		}
	}

	return "", nil
}

// startAPI starts the static pods again.
func (b *etcdBackup) startAPI() error {
	if b.startsAPIAt.IsZero() {
		return nil
	}

	if err := b.agent.writeStaticPods(); err != nil {
		return fmt.Errorf("start the API server again: %w", err)
	}

	b.startsAPIAt = time.Time{}
	b.agent.Log.Info("the API server starts again")

	return nil
}

// endAPIStop starts the API server if it was stopped for too long: whoever has asked for it has gone away.
func (b *etcdBackup) endAPIStop() error {
	if b.startsAPIAt.IsZero() || b.now().Before(b.startsAPIAt) {
		return nil
	}

	b.agent.Log.Warn("the machine was not replaced in time")

	return b.startAPI()
}
