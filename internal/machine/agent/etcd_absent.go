// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// absentRecord is the content of a slot's record. It is never deleted, because machines may not delete it. Who may write to the machine
// store can write one again that was signed when the slot was absent before. So it is not all that decides: a member gives its data up
// only if a quorum of the others says that it was removed, and a slot that has another volume than the record counts.
type absentRecord struct {
	// Absent is set while the slot is not in the control plane and has no member.
	Absent bool `json:"absent"`
	// Volume is the id of the volume on which the slot's member had data last; empty: it never had any.
	Volume string `json:"volume,omitempty"`
	// Volumes are all that the slot had in EC2 when it was absent, with data or without; nil in records of earlier versions.
	Volumes []string `json:"volumes"`
}

// covers reports whether the slot is absent with all of these volumes.
func (r absentRecord) covers(volumes []string) bool {
	known := append([]string{r.Volume}, r.Volumes...)
	isOther := func(id string) bool { return !slices.Contains(known, id) }

	return r.Absent && r.Volumes != nil && !slices.ContainsFunc(volumes, isOther)
}

// volumesNamed returns the ids of a slot's volumes. It is never nil.
func volumesNamed(slot string, volumes []Volume) []string {
	out := []string{}
	for _, v := range volumes {
		if v.Slot == slot {
			out = append(out, v.ID)
		}
	}

	return out
}

// readAbsent returns the record of a slot that is absent; zero if the slot is not. A record does not count without a valid signature, or
// if the slot's member has had data on another volume since. The leader's agent, which reads it in this way too, writes it again.
func (m *etcdMember) readAbsent(ctx context.Context, slot string) (absentRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, absentTimeout)
	defer cancel()
	var record absentRecord
	err := m.agent.readRecord(ctx, m.store, node.EtcdAbsentKey(m.agent.doc.Cluster, slot), &record)
	if errors.Is(err, store.ErrNotFound) || node.IsUntrusted(err) {
		return absentRecord{}, nil
	}

	if err != nil || !record.Absent {
		return absentRecord{}, err
	}

	volume, err := readJoinedVolume(ctx, m, slot)
	if err != nil || volume != record.Volume {
		return absentRecord{}, err
	}

	return record, nil
}

// writeAbsent records whether a slot is absent, which has these volumes in EC2.
func (m *etcdMember) writeAbsent(ctx context.Context, slot string, absent bool, volumes ...string) error {
	ctx, cancel := context.WithTimeout(ctx, absentTimeout)
	defer cancel()
	volume, err := readJoinedVolume(ctx, m, slot)
	if err != nil {
		return err
	}

	key := node.EtcdAbsentKey(m.agent.doc.Cluster, slot)
	record := absentRecord{Absent: absent, Volume: volume, Volumes: append([]string{}, volumes...)}
	body, err := m.agent.signRecord(key, record)
	if err != nil {
		return err
	}

	_, err = m.store.Put(ctx, key, body)

	return err
}

// readJoinedVolume returns the volume on which a slot's member had data last; empty if it never had any.
func readJoinedVolume(ctx context.Context, m *etcdMember, slot string) (string, error) {
	record, err := m.readJoined(ctx, slot)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}

	return record.Volume, err
}

// gatherAbsent adds whether the slot was recorded as absent. A member with data must be able to start while S3 is
// unavailable.
func (m *etcdMember) gatherAbsent(ctx context.Context, f *etcd.Facts) error {
	record, err := m.readAbsent(ctx, m.slot.Name)
	if err != nil && f.HasData && ctx.Err() == nil {
		m.agent.Log.Warn("cannot read whether the member was removed; starting with the data of the volume",
			slog.Any("error", err))

		return nil
	}

	f.Absent = record.Absent
	if f.Absent && f.HasData && !isRemoved(ctx, m, *f) {
		m.agent.Log.Warn("the slot is recorded as absent, and no quorum of the other members says so; starting with the data of the volume")
		f.Absent = false
	}

	return err
}

// isRemoved reports whether a quorum of the others says that this slot has no member. One that was removed and starts nevertheless, since
// nobody answers at this moment, gets no quorum, and asks again: see [etcdMember.wasRemoved].
func isRemoved(ctx context.Context, m *etcdMember, f etcd.Facts) bool {
	var err error
	if f.Joined, err = m.listJoined(ctx, f.Generation); err != nil {
		return false
	}

	ask := m.others
	if ask == nil {
		ask = func(ctx context.Context, f etcd.Facts) []etcd.Member { return m.managerOf(f).Members(ctx, f.Slot) }
	}

	return etcd.WasRemoved(ask(ctx, f), f.Slot)
}

// isAbsent reports whether a slot is recorded as absent, and has no other volume than the record says.
func (r *etcdRecovery) isAbsent(ctx context.Context, slot string) (bool, error) {
	record, err := r.member.readAbsent(ctx, slot)
	if err != nil || !record.Absent {
		return false, err
	}

	existing, err := r.member.agent.ec2Client().ListExistingVolumes(ctx, nil)

	return record.covers(volumesNamed(slot, existing)), err
}
