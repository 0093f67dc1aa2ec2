// SPDX-License-Identifier: Apache-2.0

// Package etcdadmin reads the state of a cluster's etcd and its backups, and asks the control-plane machines for a backup or
// for a defragmentation.
//
// It reaches etcd through the machines alone: it reads what their agents report, and writes requests to the machine
// store, which the agent of the leader's machine carries out (package backup).
package etcdadmin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const (
	// pollInterval is the pause between two readings of an answer.
	pollInterval = time.Second
	// DefaultStartTimeout is how long a machine may take to begin with a request. The leader's machine looks for one every 5 s.
	DefaultStartTimeout = 90 * time.Second
	// silenceTimeout is how long a machine that has begun may be silent. It repeats its answer every 30 s, and another
	// machine takes over after 2 minutes.
	silenceTimeout = 5 * time.Minute
)

// Admin works on the etcd of one cluster.
type Admin struct {
	env     *cluster.Env
	name    string
	set     manifest.Set
	state   store.Store
	archive backup.Archive
	// authority signs restorations.
	authority authority
}

// Open loads the manifests of a cluster and opens its machine store.
func Open(ctx context.Context, env *cluster.Env, name string) (*Admin, error) {
	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	set, err := clusterstate.LoadManifests(ctx, state, name)
	if err != nil {
		return nil, err
	}

	s, sealer, err := env.OpenMachineStore(ctx, set.Cluster, set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return nil, err
	}

	archive := backup.Archive{Store: s, Sealer: sealer, Cluster: name}

	return &Admin{
		env:       env,
		name:      name,
		set:       set,
		state:     state,
		archive:   archive,
		authority: openAuthority(env, name),
	}, nil
}

// Backups returns the backups of the cluster, without their sealed keys, which are of no use to people.
func (a *Admin) Backups(ctx context.Context) (backup.Listing, error) {
	return listBackups(ctx, a.archive)
}

// trustedBackups is Backups, and tells which of them the machines of the cluster have signed. Tests that they have not signed do not count.
func (a *Admin) trustedBackups(ctx context.Context) (backup.Listing, error) {
	signed, err := a.signingArchive(ctx)
	if err != nil {
		return backup.Listing{}, err
	}

	listing, err := listBackups(ctx, signed)
	backup.IgnoreUnsignedTests(listing.Backups)

	return listing, err
}

// signingArchive returns the archive of the cluster, with the key of its Kubernetes CA.
func (a *Admin) signingArchive(ctx context.Context) (backup.Archive, error) {
	ca, err := a.authority(ctx)
	if err != nil {
		return backup.Archive{}, err
	}

	out := a.archive
	out.Records = authorityRecords{ca}

	return out, nil
}

func listBackups(ctx context.Context, archive backup.Archive) (backup.Listing, error) {
	listing, err := (&backup.Catalog{Archive: archive}).List(ctx)
	for i := range listing.Backups {
		listing.Backups[i].SealedKey = nil
	}

	return listing, err
}

// Request asks for something that the machine of etcd's leader does.
type Request struct {
	// Type of the request.
	Type backup.RequestType
	// Reason of a backup; empty: request.
	Reason string
	// StopsAPI stops the API server before the backup is taken. Such requests are signed, and so are the answers to them.
	StopsAPI bool
	// StartTimeout is how long a machine may take to begin. Zero: DefaultStartTimeout.
	StartTimeout time.Duration
}

// Carry writes a request while holding the cluster's lock, and waits until a machine has carried it out.
func (a *Admin) Carry(ctx context.Context, r Request) (backup.Answer, error) {
	var out backup.Answer
	req := cluster.OperationRequest{Store: a.state, Cluster: a.name, Kind: "etcd-" + string(r.Type)}
	err := a.env.RunOperation(ctx, req, func(ctx context.Context, _ *operation.Operation, _ store.Store) error {
		var err error
		out, err = a.ask(ctx, r)

		return err
	})

	return out, err
}

// TakeSnapshot takes a backup and returns it.
func (a *Admin) TakeSnapshot(ctx context.Context, r Request) (backup.Backup, error) {
	r.Type = backup.RequestSnapshot
	answer, err := a.Carry(ctx, r)
	if err != nil {
		return backup.Backup{}, err
	}

	return a.findTaken(ctx, answer)
}

// findTaken returns the backup of an answer.
func (a *Admin) findTaken(ctx context.Context, answer backup.Answer) (backup.Backup, error) {
	all, err := a.Backups(ctx)
	if err != nil {
		return backup.Backup{}, err
	}

	found, ok := all.Find(answer.Backup)
	if !ok {
		return found, fmt.Errorf("machine %s reported backup %s, which is not in %s", answer.Machine, answer.Backup,
			a.archive.Store.URL())
	}

	return found, nil
}

// ask writes a request and waits for its answer.
func (a *Admin) ask(ctx context.Context, r Request) (backup.Answer, error) {
	request := backup.Request{
		ID:        rand.Text(),
		Type:      r.Type,
		Reason:    r.Reason,
		CreatedAt: a.env.Now().UTC(),
		By:        a.env.User,
		StopsAPI:  r.StopsAPI,
	}
	archive := a.archive
	if request.NeedsSignature() {
		var err error
		if archive, err = a.signingArchive(ctx); err != nil {
			return backup.Answer{}, err
		}
	}

	if err := archive.WriteRequest(ctx, request); err != nil {
		return backup.Answer{}, err
	}

	if r.StartTimeout == 0 {
		r.StartTimeout = DefaultStartTimeout
	}

	w := waiter{admin: a, archive: archive, request: request, start: r.StartTimeout}

	return w.wait(ctx)
}

// waiter waits for the answer to a request.
type waiter struct {
	admin   *Admin
	archive backup.Archive
	request backup.Request
	start   time.Duration
	last    backup.Answer
	// heardAt is when the last answer was read for the first time.
	heardAt time.Time
}

func (w *waiter) wait(ctx context.Context) (backup.Answer, error) {
	env := w.admin.env
	w.heardAt = env.Now()
	for {
		answer, err := w.archive.ReadAnswer(ctx)
		if err != nil {
			return w.last, err
		}

		if answer != nil && answer.ID == w.request.ID {
			w.hear(*answer)
		}

		switch {
		case w.last.Done && w.last.Error != "":
			return w.last, fmt.Errorf("machine %s: %s", w.last.Machine, w.last.Error)
		case w.last.Done:
			return w.last, nil
		}

		if err := w.checkTime(env.Now()); err != nil {
			return w.last, err
		}

		select {
		case <-ctx.Done():
			return w.last, fmt.Errorf("wait for a machine: %w", ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// hear takes note of an answer.
func (w *waiter) hear(answer backup.Answer) {
	if !answer.UpdatedAt.Equal(w.last.UpdatedAt) {
		w.heardAt = w.admin.env.Now()
	}

	if answer.Step != "" && answer.Step != w.last.Step {
		w.admin.env.Notifyf("machine %s: %s", answer.Machine, answer.Step)
	}

	w.last = answer
}

// checkTime returns an error if no machine answers any more.
func (w *waiter) checkTime(now time.Time) error {
	silent := now.Sub(w.heardAt)

	switch {
	case w.last.ID == "" && silent > w.start:
		return diag.WithHint(
			fmt.Errorf("no machine has begun with the request within %s: etcd has no leader, or its machine has an agent "+
				"that knows no requests, or a clock that differs by more than %s from that of this computer, by which it is %s",
				w.start, backup.RequestTTL, cluster.FormatTime(now)),
			"see: slipway validate cluster "+w.admin.name+"; machines of an earlier version: slipway rolling-update cluster "+
				w.admin.name+"; the clock: compare with date -u",
		)

	case w.last.ID != "" && silent > silenceTimeout:
		return diag.WithHint(
			errors.New("machine "+w.last.Machine+" has not answered for "+silenceTimeout.String()),
			"see: slipway logs "+w.last.Machine+" --name "+w.admin.name,
		)
	}

	return nil
}
