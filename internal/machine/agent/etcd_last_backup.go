// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// The only control-plane machine of a cluster ends when etcd moves to another zone. So that the backup from which the next machine
// starts has every write, its API server stops before the backup is taken: nothing else writes to etcd.

// apiEndPatience is how long the process of the API server may take to end. The kubelet ends it after 30 seconds.
const apiEndPatience = time.Minute

// takeLast stops the API server and takes a backup for a request. If that fails, the API server starts again at once.
func (b *etcdBackup) takeLast(ctx context.Context, r backup.Request) (id string, err error) {
	if others := len(b.agent.doc.Slots) - 1; others > 0 {
		return "", fmt.Errorf("%d other control-plane machines write to etcd: stopping the API server of this one ends no writes", others)
	}

	if err := beginAPIStop(b.agent, r.By); err != nil {
		return "", err
	}

	id, err = b.takeStopped(ctx, r)
	if _, runs := findAPIServer(b.agent); err == nil && (runs || !readAPIStop(b.agent).lasts(b.agent.Now())) {
		err = fmt.Errorf("backup %s took more than %s, and the API server has started meanwhile", id, backup.MaxAPIStop)
	}

	if err != nil {
		return "", errors.Join(err, startAPI(b.agent))
	}

	return id, nil
}

// takeStopped waits until the API server has ended, and returns the id of a backup with everything: a new one, unless one of the
// present data exists.
func (b *etcdBackup) takeStopped(ctx context.Context, r backup.Request) (string, error) {
	if err := b.stopAPI(ctx); err != nil {
		return "", err
	}

	if id, err := b.findPresent(ctx); err != nil || id != "" {
		return id, err
	}

	// Not the one that was taken for this request by an agent that was killed: the API server may have run since.
	taken, err := b.take(ctx, backup.Metadata{Reason: backup.ReasonMove, RequestID: r.ID})

	return taken.ID, err
}

// stopAPI stops the static pods, and returns once the process of the API server has ended. After it listens no more, it would finish the
// requests that it has accepted, for up to 30 seconds in which there is no API: it is killed, and clients learn that these failed.
func (b *etcdBackup) stopAPI(ctx context.Context) error {
	if err := (slotRelease{member: b.member}).stopControlPlane(ctx); err != nil {
		return err
	}

	deadline := b.agent.Now().Add(apiEndPatience)
	for {
		p, runs := findAPIServer(b.agent)

		switch {
		case !runs:
			return nil
		case b.agent.Now().After(deadline):
			return fmt.Errorf(
				"the API server, process %d, has not ended %s after it was stopped: it may write to etcd",
				p.pid,
				apiEndPatience,
			)
		case findAPIListener(b.agent.Root) == "":
			_, _ = b.agent.Run.Run(ctx, "kill", "-KILL", strconv.Itoa(p.pid)) // it may have ended by now
		}

		if err := b.agent.Wait(ctx, gateInterval); err != nil {
			return err
		}
	}
}

// findPresent returns the id of a backup that was taken of the present revision of etcd's data, and can be restored as far as it is
// known; empty if there is none.
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
		isMove := taken.Reason == backup.ReasonMove && taken.IsSigned && !taken.Broken() && !taken.Untestable()
		if isMove && taken.Generation == generation && taken.Revision == status.Revision {
			return taken.ID, nil
		}
	}

	return "", nil
}
