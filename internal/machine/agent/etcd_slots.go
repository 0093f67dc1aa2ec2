// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// describeOwn updates what this machine reports of its member.
func (r *etcdRecovery) describeOwn(known etcd.Facts) {
	a := r.member.agent
	own := &r.memory.own
	changed := own.Volume != known.Volume || own.Newest != generationOf(known)
	if own.LostAt.IsZero() || changed { // another generation has its own time to begin
		own.LostAt = a.Now().UTC()
		r.memory.lossSince = time.Time{}
	}

	own.Newest = generationOf(known)
	own.Slot = known.Slot
	own.Machine = a.instance.ID
	own.Volume = known.Volume
	own.Quorum = false
	own.Generation = known.DataGeneration
	own.Learner = known.Learner
	own.Broken = a.etcdStopped.Load()
	own.Log = etcd.LogEnd{}
	own.Problem = ""
	own.Member = 0
	own.Removed = nil
	if !known.HasData {
		return
	}

	dir := os.DirFS(a.Root.Path(etcd.DataDir + "/member/wal"))
	removals, err := etcd.ReadRemovals(dir)
	own.Member = removals.Member
	own.Removed = removals.Removed
	own.Log = removals.End
	if err == nil && own.Log.Index == 0 { // an older file has the last entry
		own.Log, err = etcd.ReadLogEnd(dir)
	}

	if err != nil {
		own.Problem = err.Error()
	}
}

// decide returns the next step. A machine that does not know all slots of the control plane does not know which members count: it waits
// until it has followed, and says so to the others.
func (r *etcdRecovery) decide(ctx context.Context, f etcd.RecoveryFacts) etcd.RecoveryStep {
	step := etcd.DecideRecovery(f)
	switch step.Type {
	case etcd.RecoverWait:
		if reason := r.member.restorationWaits.Load(); reason != nil {
			step.Reason = *reason
		}

		return step

	case etcd.RecoverNothing, etcd.RecoverManual:
		return step
	case etcd.RecoverSave, etcd.RecoverVerify, etcd.RecoverBegin:
	}

	if err := r.checkSlots(ctx); err != nil {
		return etcd.RecoveryStep{Type: etcd.RecoverWait, Reason: err.Error(), Lost: step.Lost}
	}

	return step
}

// listSlots returns the slots whose members count: those of the control plane, and those that have left it and may still have a
// member, since the members of such slots are removed one after the other.
func (r *etcdRecovery) listSlots(ctx context.Context, known etcd.Facts) ([]etcd.SlotState, error) {
	slots := slices.Compact(slices.Sorted(slices.Values(slices.Concat(known.Slots, known.Joined))))
	absent, err := r.findAbsent(ctx, slots)
	if err != nil {
		return nil, err
	}

	var out []etcd.SlotState
	for _, slot := range slots {
		if !absent[slot] || slices.Contains(known.Slots, slot) {
			out = append(out, etcd.SlotState{Slot: slot, Absent: absent[slot], NoVote: absent[slot] || !mayVote(known, slot)})
		}
	}

	return out, nil
}

// mayVote reports whether the member of a slot may have a vote in the current generation: it has had its data, which is recorded before it
// votes, or it is one of the first. While nobody has had the data, all slots count.
func mayVote(known etcd.Facts, slot string) bool {
	switch {
	case slices.Contains(known.Joined, slot) || len(known.Joined) == 0:
		return true
	case known.Generation != nil:
		return false
	case known.Marker == nil: // it was deleted
		return true
	}

	_, isFounder := known.Marker.Volumes[slot]

	return isFounder
}

// gatherSlots adds what is known of each slot: its volumes in EC2, and the report of its machine.
func (r *etcdRecovery) gatherSlots(ctx context.Context, slots []etcd.SlotState) ([]etcd.SlotState, error) {
	a := r.member.agent
	var out []etcd.SlotState
	var recorded []string
	for _, state := range slots {
		record, err := readJoinedVolume(ctx, r.member, state.Slot)
		if err != nil {
			return nil, err
		}

		if record != "" {
			state.Volumes = []string{record}
			recorded = append(recorded, record)
		}

		if state.Report, err = r.readReport(ctx, state.Slot); err != nil {
			return nil, err
		}

		out = append(out, state)
	}

	existing, err := a.ec2Client().ListExistingVolumes(ctx, recorded)
	if err != nil {
		return nil, err
	}

	own := r.member.volume
	for i := range out {
		out[i].Volumes = volumesOfSlot(out[i], existing)
		if out[i].Slot == r.member.slot.Name && !slices.Contains(out[i].Volumes, own) {
			out[i].Volumes = append(out[i].Volumes, own) // EC2 does not list it yet
		}

		out[i].Attached = attachmentsOf(existing)
		out[i] = out[i].WithoutFormer()
	}

	return out, nil
}

// attachmentsOf returns the machines that have volumes attached, by volume.
func attachmentsOf(volumes []Volume) map[string]string {
	out := map[string]string{}
	for _, v := range volumes {
		if v.AttachedTo != "" {
			out[v.ID] = v.AttachedTo
		}
	}

	return out
}

// checkOwnReport returns a notReadyError if this machine's own report does not count. It must not replace that of the machine which has the
// volume now.
func checkOwnReport(f etcd.RecoveryFacts) error {
	for _, s := range f.Slots {
		if s.Slot == f.Slot && s.Report == nil {
			return newNotReadyError("the etcd volume of slot %s was attached to another machine: this one decides nothing about a recovery", s.Slot)
		}
	}

	return nil
}

// volumesOfSlot returns the volumes that exist and belong to a slot: by their tags, or because its member had data there.
func volumesOfSlot(s etcd.SlotState, existing []Volume) []string {
	var out []string
	for _, v := range existing {
		if v.Slot == s.Slot || slices.Contains(s.Volumes, v.ID) {
			out = append(out, v.ID)
		}
	}

	return out
}

// readReport returns the report of a slot's machine; nil if it does not report at this moment.
func (r *etcdRecovery) readReport(ctx context.Context, slot string) (*etcd.QuorumReport, error) {
	if slot == r.member.slot.Name {
		own := r.memory.own
		return &own, nil
	}

	var out etcd.QuorumReport
	key := node.EtcdQuorumReportKey(r.member.agent.doc.Cluster, slot)
	err := r.member.agent.readRecord(ctx, r.member.store, key, &out)
	if errors.Is(err, store.ErrNotFound) || node.IsUntrusted(err) {
		return nil, nil // none, or that of a machine of an earlier version, or of nobody who counts
	}

	if err != nil {
		return nil, err
	}

	if !r.memory.seen.Hear(&r.memory.own, slot, out, r.member.agent.Now()) {
		return nil, nil
	}

	return &out, nil
}
