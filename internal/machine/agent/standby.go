// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Times of a machine that waits for its slot's volume.
const (
	// volumeWait is the time between two attempts to take the volume.
	volumeWait = 2 * time.Second
	// standbyWait is that time for a machine that has prepared everything else: the member of its slot is missing
	// from the moment at which the other machine releases the volume.
	standbyWait = time.Second
	// announceInterval is the time between two announcements of a standby.
	announceInterval = 5 * time.Second
)

// heldVolumeError means that another machine of the slot has the volume, or that it was released for one. This
// machine is a standby.
type heldVolumeError struct{ notReadyError }

func (e heldVolumeError) Unwrap() error { return e.notReadyError }

// standby is a control-plane machine that waits for the volume of its slot, which another machine still uses. It
// announces itself with a Lease once everything else is prepared, so that a rolling update can have the other machine
// hand over the slot.
type standby struct {
	agent *Agent
	slot  string
	// api is a client of the API through the load balancer: the machine has no API server of its own yet.
	api func() kube.Client
	// announcedAt is the time of the last attempt to announce; zero before the first.
	announcedAt time.Time
	// announced is set once an announcement succeeded.
	announced bool
}

func newStandby(a *Agent, slot string) *standby {
	return &standby{agent: a, slot: slot, api: func() kube.Client {
		c := a.newAdminClient()
		c.Server = "https://" + a.Boot.API.Internal + ":" + kube.APIPort

		return c
	}}
}

// prepare does everything that needs no volume: it downloads files and secrets, writes the configuration
// and certificates, and starts containerd and the kubelet, which has no static pods yet.
func (s *standby) prepare(ctx context.Context) error {
	a := s.agent
	downloads, downloadsCtx := errgroup.WithContext(ctx)
	downloads.Go(func() error { return a.downloadFiles(downloadsCtx) })
	downloads.Go(func() error {
		return a.runCancellableStage(downloadsCtx, "secrets", func() error { return a.loadSecrets(downloadsCtx) })
	})

	if err := downloads.Wait(); err != nil {
		return err
	}

	if err := a.prepareHost(ctx); err != nil {
		return err
	}

	var changed map[string]bool
	err := a.runStage("write", func() error {
		var err error
		changed, err = a.writeControlPlane()

		return err
	})
	if err != nil {
		return err
	}

	return a.runCancellableStage(ctx, "start", func() error { return a.startControlPlane(ctx, changed) })
}

// takeVolume mounts the slot's volume as soon as no other machine has it. Once pulled is closed, everything else is
// prepared.
func (s *standby) takeVolume(ctx context.Context, m *etcdMember, pulled <-chan struct{}) error {
	a := s.agent
	a.Report.Running("volume", "")
	maker := newVolumeMaker(m)

	for {
		err := a.mountEtcdVolume(ctx, m)
		if _, missing := errors.AsType[missingVolumeError](err); missing && isClosed(pulled) { // secrets and hosts are there
			err = maker.create(ctx, err)
		}

		err = a.reportUnlessCancelled(ctx, "volume", err)
		if _, waiting := errors.AsType[notReadyError](err); !waiting {
			return err
		}

		pause := volumeWait
		if _, held := errors.AsType[heldVolumeError](err); held && isClosed(pulled) {
			s.announce(ctx)
			pause = standbyWait
		}

		if err := a.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// isClosed reports whether a channel that carries no values is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// leaseName returns the name of the Lease in kube-system.
func (s *standby) leaseName() string { return report.StandbyLeasePrefix + s.slot }

// announce writes the Lease, at most every announceInterval. A failure is not fatal: the next attempt follows, and a
// rolling update waits for it.
func (s *standby) announce(ctx context.Context) {
	a := s.agent
	now := a.Now()
	if now.Sub(s.announcedAt) < announceInterval || a.handOver.successor != "" {
		return // a machine that has released its slot is no standby
	}

	s.announcedAt = now
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	l := lease{name: s.leaseName(), holder: a.instance.ID, now: now}
	if err := l.applyTo(ctx, s.api()); err != nil {
		a.Log.Info("cannot announce this machine as standby", slog.Any("error", err))
		return
	}

	s.announced = true
}

// withdraw deletes the Lease after the machine has taken over its slot.
func (s *standby) withdraw(ctx context.Context) {
	if !s.announced {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	path := "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/" + s.leaseName()
	if _, err := s.api().Do(ctx, http.MethodDelete, path, "", nil); err != nil && !errors.Is(err, kube.ErrNotFound) {
		s.agent.Log.Info("cannot delete the lease of the standby; it expires", slog.Any("error", err))
	}

	s.announced = false
}
