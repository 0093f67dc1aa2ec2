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

// restoredLeases deletes the leases of API servers that ended before etcd was restored. They come back with a backup, and API
// servers themselves delete them after one hour or two; until then other programs count API servers that do not exist. Everything else
// that a backup brings back ends by itself: see docs/operations/etcd.md.
type restoredLeases struct {
	agent *Agent
	api   kube.Client
	// seen are the leases of before the restoration as they were seen last, by name.
	seen map[string]seenLease
	// doneFor is the restoration after which no such lease is left.
	doneFor time.Time
}

// seenLease is a version of a lease and when it was seen first.
type seenLease struct {
	version string
	at      time.Time
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

	now := r.agent.Now()
	seen := map[string]seenLease{}
	for _, l := range list.Items {
		if !l.Spec.RenewTime.Before(*restored) {
			continue
		}

		before, known := r.seen[l.Metadata.Name]
		if !known || before.version != l.Metadata.ResourceVersion {
			before = seenLease{version: l.Metadata.ResourceVersion, at: now}
		}

		seen[l.Metadata.Name] = before
		if now.Sub(before.at) < leaseUnchanged {
			continue
		}

		if err := r.deleteLease(ctx, l); err != nil {
			return err
		}

		delete(seen, l.Metadata.Name)
	}

	r.seen = seen
	if len(seen) == 0 {
		r.doneFor = *restored
	}

	return nil
}

// deleteLease deletes a lease, unless it was renewed since it was read: then its API server lives, with a clock that is behind.
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
		r.agent.Log.Info("deleted the lease of an API server that ended before etcd was restored", slog.String("lease", l.Metadata.Name))
	}

	return err
}
