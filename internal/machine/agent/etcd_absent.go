// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// readAbsent returns the record of a slot that is absent; zero if the slot is not. A record does not count without a valid signature, or
// if the slot's member has had data on another volume since. The leader's agent, which reads it in this way too, writes it again.
func (m *etcdMember) readAbsent(ctx context.Context, slot string) (node.AbsentSlot, error) {
	ctx, cancel := context.WithTimeout(ctx, absentTimeout)
	defer cancel()
	var record node.AbsentSlot
	err := m.agent.readRecord(ctx, m.store, node.EtcdAbsentKey(m.agent.doc.Cluster, slot), &record)
	if errors.Is(err, store.ErrNotFound) || node.IsUntrusted(err) {
		return node.AbsentSlot{}, nil
	}

	if err != nil || !record.Absent {
		return node.AbsentSlot{}, err
	}

	volume, err := readJoinedVolume(ctx, m, slot)
	if err != nil || volume != record.Volume {
		return node.AbsentSlot{}, err
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
	record := node.AbsentSlot{Absent: absent, Volume: volume, Volumes: append([]string{}, volumes...)}
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

// findAbsent returns which of the slots are recorded as absent, and have no other volume than the record says.
func (r *etcdRecovery) findAbsent(ctx context.Context, slots []string) (map[string]bool, error) {
	recorded := map[string]node.AbsentSlot{}
	for _, slot := range slots {
		record, err := r.member.readAbsent(ctx, slot)
		if err != nil {
			return nil, err
		}

		if record.Absent {
			recorded[slot] = record
		}
	}

	if len(recorded) == 0 {
		return nil, nil
	}

	existing, err := r.member.agent.ec2Client().ListExistingVolumes(ctx, nil)
	if err != nil {
		return nil, err
	}

	out := map[string]bool{}
	for slot, record := range recorded {
		out[slot] = record.Covers(volumesOfSlot(etcd.SlotState{Slot: slot}, existing))
	}

	return out, nil
}
