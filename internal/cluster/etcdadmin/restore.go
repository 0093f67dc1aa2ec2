// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// restorePollInterval is the pause between two readings of how far a restoration is.
const restorePollInterval = 3 * time.Second

// RestorePlan is what a restoration will do.
type RestorePlan struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Backup to restore.
	Backup backup.Backup `json:"backup"`
	// Generation is the number of the restoration.
	Generation int `json:"generation"`
	// Slot whose machine restores the backup.
	Slot string `json:"slot"`
	// Members of all slots before the restoration.
	Members []Member `json:"members"`
	// Continues is set if this restoration has begun already.
	Continues bool `json:"continues"`
	// SkipVerification is set if the backup is not read and checked before all members stop.
	SkipVerification bool `json:"skipVerification,omitempty"`
	// From is the cluster that the backup is of; empty: this cluster.
	From string `json:"from,omitempty"`

	// source is where the backup of the other cluster is.
	source *source
	// volume on which the backup is restored; empty: that of the slot's machine.
	volume string
}

// RestoreRequest says which backup is to be restored.
type RestoreRequest struct {
	// ID of the backup.
	ID string
	// From is the cluster that the backup is of; empty: the cluster itself.
	From string
	// Slot whose machine restores it; empty: the first one with a running machine.
	Slot string
	// Volume on which the slot restores it; empty: the one that its machine has.
	Volume string
	// Again restores a backup once more although its restoration has not ended: its machine or its volume is lost.
	Again bool
	// SkipVerification restores a backup that was not read and checked before: whoever asks may not decrypt it, or it is large.
	SkipVerification bool
}

// continues reports whether a request asks to wait for the newest restoration. One that asks for another machine, or
// explicitly for another restoration, does not: the machine that had to restore the backup may never come back.
func (r RestoreRequest) continues(last *etcd.Generation, id string, restored, members int) bool {
	return last != nil && last.Backup == id && restored < members && !r.Again &&
		(r.Slot == "" || r.Slot == last.Slot) && (r.Volume == "" || r.Volume == last.Volume)
}

// PlanRestore plans the restoration of a backup. An unfinished restoration of the same backup is continued, unless r asks
// for another machine or for another restoration.
func (a *Admin) PlanRestore(ctx context.Context, r RestoreRequest) (RestorePlan, error) {
	out := RestorePlan{Cluster: a.name, SkipVerification: r.SkipVerification, volume: r.Volume}
	listing, err := a.Backups(ctx)
	if err != nil {
		return out, err
	}

	if r.From != "" && r.From != a.name {
		err = a.planCopy(ctx, &out, r, listing)
	} else {
		out.Backup, err = chooseBackup(listing, r.ID)
	}

	if err != nil {
		return out, err
	}

	status, err := a.Status(ctx)
	if err != nil {
		return out, err
	}

	out.Members = status.Members
	last, restored, err := a.lastGeneration(ctx)
	if err != nil {
		return out, err
	}

	if r.continues(last, out.Backup.ID, len(restored), len(out.Members)) {
		out.Continues = true
		out.Generation = last.Number
		out.Slot = last.Slot

		return out, nil
	}

	out.Generation = etcd.FirstRestoration
	if last != nil {
		out.Generation = last.Number + 1
	}

	out.Slot, err = ChooseRestorer(out.Members, r.Slot)

	return out, err
}

// chooseBackup returns the backup with an id that can be restored.
func chooseBackup(listing backup.Listing, id string) (backup.Backup, error) {
	found, ok := listing.Find(id)
	unreadable, isUnreadable := listing.FindUnreadable(id)
	count := len(listing.Backups)

	switch {
	case isUnreadable:
		return found, diag.WithHint(
			fmt.Errorf("backup %s cannot be used: %s", id, unreadable.Reason),
			"use a newer version of slipway if one has taken it, or another backup that 'slipway etcd snapshots' lists",
		)

	case !ok && count == 0:
		return found, fmt.Errorf("there is no backup %q: the cluster has none", id)

	case !ok:
		return found, diag.WithHint(
			fmt.Errorf("there is no backup %q", id),
			"use one of those that 'slipway etcd snapshots' lists, such as the newest: "+listing.Backups[count-1].ID,
		)

	case found.Broken():
		return found, diag.WithHint(
			fmt.Errorf("backup %s cannot be restored: %s", id, found.Verification.Error),
			"use another one that 'slipway etcd snapshots' lists",
		)
	}

	return found, nil
}

// ChooseRestorer returns the slot whose machine restores a backup: the wanted one, or else the first with a running machine.
func ChooseRestorer(members []Member, wanted string) (string, error) {
	for _, m := range members {
		if m.Machine != "" && (wanted == "" || m.Slot == wanted) {
			return m.Slot, nil
		}
	}

	if wanted != "" {
		return "", fmt.Errorf("control-plane slot %q has no running machine that could restore the backup", wanted)
	}

	return "", diag.WithHint(
		errors.New("no control-plane machine is running that could restore the backup"),
		"create them first: slipway apply",
	)
}

// listRestored returns the slots that have data of a generation.
func (a *Admin) listRestored(ctx context.Context, number int) (node.RestoredSlots, error) {
	ca, err := a.authority(ctx)
	if err != nil {
		return node.RestoredSlots{}, err
	}

	return node.ReadRestoredSlots(ctx, a.archive.Store, a.name, number, string(ca.CertsPEM()))
}

// Restore begins the restoration of a plan, unless it continues one, and waits until all members are healthy. The
// machines do the work: when this process ends, they go on.
func (a *Admin) Restore(ctx context.Context, plan RestorePlan, timeout time.Duration) error {
	req := cluster.OperationRequest{Store: a.state, Cluster: a.name, Kind: "etcd-restore"}

	return a.env.RunOperation(ctx, req, func(ctx context.Context, _ *operation.Operation, _ store.Store) error {
		return a.restoreLocked(ctx, plan, timeout)
	})
}

// restoreLocked is Restore while the cluster's lock is held.
func (a *Admin) restoreLocked(ctx context.Context, plan RestorePlan, timeout time.Duration) error {
	if !plan.Continues {
		if err := plan.checkRoom(); err != nil {
			return err
		}

		if err := a.copyBackup(ctx, &plan); err != nil {
			return err
		}

		if err := a.checkBackup(ctx, plan); err != nil {
			return err
		}

		if err := a.checkPresent(ctx, plan); err != nil {
			return err
		}

		if err := a.beginGeneration(ctx, plan); err != nil {
			return err
		}
	}

	return a.waitRestored(ctx, plan, timeout)
}

// checkRoom returns an error if the volume of a member is too small for the backup besides the data that is set aside, or if the root disk
// of the machine that restores has no space for the backup, as far as the machines report it: once the generation is written, all members
// stop.
func (p RestorePlan) checkRoom() error {
	for _, m := range p.Members {
		if m.Slot == p.Slot {
			if err := m.checkRootDisk(p.Backup); err != nil {
				return err
			}
		}

		if m.volumeSize == 0 {
			continue
		}

		g := etcd.Generation{Backup: p.Backup.ID, Bytes: p.Backup.DBSize}
		if err := g.CheckRoom(m.volumeSize - m.DBSize); err != nil {
			return fmt.Errorf("%s (nothing was changed): %w", m.Name, err)
		}
	}

	return nil
}

// checkRootDisk returns an error if the root disk of the member's machine has no space for a copy of a backup.
func (m *Member) checkRootDisk(b backup.Backup) error {
	if m.rootDisk.SizeBytes == 0 {
		return nil
	}

	if err := backup.CheckDisk(m.rootDisk.SizeBytes-m.rootDisk.UsedBytes, b.DBSize); err != nil {
		return diag.WithHint(
			fmt.Errorf(
				"restore backup %s on machine %s of %s (nothing was changed): %w",
				b.ID, m.Machine, m.Name, err,
			),
			"delete files on its root disk, replace it by one with a larger spec.rootVolume.size, "+
				"or name another machine's slot with --slot",
		)
	}

	return nil
}

// checkBackup reads all parts of a backup, decrypts them and compares them with their hashes, unless the plan skips that. Once the
// generation is written, all members stop, and etcd works again only if the backup can be restored.
func (a *Admin) checkBackup(ctx context.Context, plan RestorePlan) error {
	if plan.SkipVerification {
		return nil
	}

	a.env.Notifyf("checking all parts of backup %s", plan.Backup.ID)
	listing, err := (&backup.Catalog{Archive: a.archive}).List(ctx) // the sealed keys of plans are removed
	if err != nil {
		return err
	}

	found, err := chooseBackup(listing, plan.Backup.ID)
	if err != nil {
		return err
	}

	err = a.archive.Download(ctx, found.Metadata, io.Discard)

	switch {
	case err == nil:
		return nil

	case errors.Is(err, backup.ErrDamaged), errors.Is(err, store.ErrDecryption):
		return diag.WithHint(
			fmt.Errorf("backup %s cannot be restored (nothing was changed): %w", found.ID, err),
			"use another one that 'slipway etcd snapshots' lists",
		)
	}

	return diag.WithHint(
		fmt.Errorf(
			"check backup %s before it is restored (nothing was changed): %w",
			found.ID,
			err,
		),
		"rerun the command; if you may not decrypt backups, --skip-verification leaves it to the machine, which finds out after all "+
			"members have stopped",
	)
}

// checkPresent returns an error if the backup of a plan is gone. To check a large one takes minutes, in which machines delete backups that
// have expired; they keep one that a generation names.
func (a *Admin) checkPresent(ctx context.Context, plan RestorePlan) error {
	listing, err := a.Backups(ctx)
	if err != nil {
		return err
	}

	if _, err := chooseBackup(listing, plan.Backup.ID); err != nil {
		return fmt.Errorf(
			"backup %s was deleted while it was checked (nothing was changed): %w",
			plan.Backup.ID,
			err,
		)
	}

	return nil
}

// waitRestored waits until all members have data of the generation and are healthy, and reports what changes.
func (a *Admin) waitRestored(ctx context.Context, plan RestorePlan, timeout time.Duration) error {
	deadline := a.env.Now().Add(timeout)
	told := ""
	for {
		missing, err := a.missingMembers(ctx, plan)
		if err != nil {
			return err
		}

		if len(missing) == 0 {
			return nil
		}

		text := strings.Join(missing, "; ")
		if text != told {
			a.env.Notifyf("waiting: %s", text)
			told = text
		}

		if a.env.Now().After(deadline) {
			return diag.WithHint(
				fmt.Errorf("the restoration has not ended within %s: %s", timeout, text),
				"the machines go on; rerun the command to wait again, and see: slipway validate cluster "+a.name,
			)
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the restoration: %w", ctx.Err())
		case <-time.After(restorePollInterval):
		}
	}
}

// missingMembers describes the members that do not have data of the generation or are not healthy.
func (a *Admin) missingMembers(ctx context.Context, plan RestorePlan) ([]string, error) {
	restored, err := a.listRestored(ctx, plan.Generation)
	if err != nil {
		return nil, err
	}

	var out []string
	for _, m := range plan.Members {
		switch {
		case slices.Contains(restored.Signed, m.Slot):
		case slices.Contains(restored.Unsigned, m.Slot):
			out = append(out, m.Name+": "+etcd.DescribeUnsigned(node.EtcdRestoredKey(a.name, plan.Generation, m.Slot)))
		case m.Slot == plan.Slot:
			out = append(out, m.Name+" restores the backup")
		default:
			out = append(out, m.Name+" has not joined yet")
		}
	}

	if len(out) > 0 {
		return out, nil
	}

	status, err := a.Status(ctx)
	if err != nil {
		return nil, err
	}

	for _, m := range status.Members {
		if !m.Healthy || m.Role == "learner" {
			out = append(out, m.Name+" is not healthy yet")
		}
	}

	return out, nil
}
