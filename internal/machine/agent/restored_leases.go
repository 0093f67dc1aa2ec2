// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	// leaseCleanInterval is how often restored leases are looked at, until none is left.
	leaseCleanInterval = 30 * time.Second
	// leaseUnchanged is for how long a lease must not have changed. An API server renews its own every 10 seconds.
	leaseUnchanged = time.Minute
	// apiServerLeases are the leases in which API servers publish that they exist.
	apiServerLeases = leasesPath + "?labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver"
)

// restoredLeases deletes the leases of API servers that have ended when etcd is restored. They come back with a backup, and API
// servers themselves delete them after one hour or two; until then other programs count API servers that do not exist. Everything else
// that a backup brings back ends by itself: see docs/operations/etcd.md.
//
// It compares no clocks: the time of a restoration is that of the operator's computer, and each API server has its own. A lease that does
// not change while this machine looks is of an API server that has ended.
type restoredLeases struct {
	agent *Agent
	api   kube.Client
	// seen are the leases as they were seen last, by name, since the restoration seenFor.
	seen    map[string]seenLease
	seenFor time.Time
	// doneFor is the restoration after which no such lease is left.
	doneFor time.Time
}

// seenLease is a lease as it was seen last.
type seenLease struct {
	version   string
	renewTime time.Time
	// at is when this version was seen first, by the clock of this machine.
	at time.Time
	// lives is set once the lease was renewed while this machine looked.
	lives bool
}

// update returns what is known of the lease now that it was listed as l. A renewal is later than the one before by the same clock;
// an earlier one means that etcd was restored meanwhile, or that the clock was set.
func (s seenLease) update(l apiServerLease, now time.Time) seenLease {
	isNew := s.version == "" || l.Spec.RenewTime.Before(s.renewTime)
	next := seenLease{
		version:   l.Metadata.ResourceVersion,
		renewTime: l.Spec.RenewTime,
		at:        now,
		lives:     !isNew && (s.lives || l.Spec.RenewTime.After(s.renewTime)),
	}
	if next.version == s.version {
		next.at = s.at
	}

	return next
}

// apiServerLease holds the fields of an API server's lease that are read.
type apiServerLease struct {
	Metadata struct {
		Name            string `json:"name"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		RenewTime time.Time `json:"renewTime"`
	} `json:"spec"`
}

// run looks once. Without a restoration it asks nobody. Every control-plane machine runs it: deletions are idempotent.
func (r *restoredLeases) run(ctx context.Context) error {
	restored := r.agent.restoredAt.Load()
	if restored == nil || restored.Equal(r.doneFor) {
		return nil
	}

	var list struct {
		Items []apiServerLease `json:"items"`
	}
	if err := r.api.Get(ctx, apiServerLeases, &list); err != nil {
		return err
	}

	if !restored.Equal(r.seenFor) {
		r.seen = nil
		r.seenFor = *restored
	}

	now := r.agent.Now()
	seen := map[string]seenLease{}
	isDone := true
	for _, l := range list.Items {
		lease := r.seen[l.Metadata.Name].update(l, now)
		if !lease.lives && now.Sub(lease.at) >= leaseUnchanged {
			if err := r.deleteLease(ctx, l); err != nil {
				return err
			}

			continue
		}

		seen[l.Metadata.Name] = lease
		isDone = isDone && lease.lives
	}

	r.seen = seen
	if isDone {
		r.doneFor = *restored
	}

	return nil
}

// deleteLease deletes a lease, unless it was renewed since it was read: then its API server lives.
func (r *restoredLeases) deleteLease(ctx context.Context, l apiServerLease) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion":    "v1",
		"kind":          "DeleteOptions",
		"preconditions": map[string]string{"uid": l.Metadata.UID, "resourceVersion": l.Metadata.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("delete lease %s: %w", l.Metadata.Name, err)
	}

	_, err = r.api.Do(ctx, http.MethodDelete, leasesPath+"/"+l.Metadata.Name, "application/json", body)
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) {
		return nil
	}

	if err == nil {
		r.agent.Log.Info("deleted the lease of an API server that has ended, after etcd was restored", slog.String("lease", l.Metadata.Name))
	}

	return err
}
