// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// seesQuorum reports whether an agent reaches a member of the current generation that has a quorum.
func (w *lostQuorum) seesQuorum(slot string) bool {
	for _, peer := range w.slots {
		v := w.volumes[peer]
		if v.identity == "" || v.generation != w.number() || !w.alive(v.identity, peer) || !w.connected(slot, peer) {
			continue
		}
		if w.list(v.identity, peer) != nil {
			return true
		}
	}
	return false
}

// agent returns the memory of a slot's agent. A new process knows what the earlier one reported.
func (w *lostQuorum) agent(slot string) *modelAgent {
	if w.agents[slot] == nil {
		w.agents[slot] = &modelAgent{report: w.reports[slot]}
		w.newSession(w.agents[slot])
	}
	return w.agents[slot]
}

// newSession begins the reports on another loss of the quorum.
func (w *lostQuorum) newSession(a *modelAgent) {
	w.ids++
	a.report.Session = fmt.Sprintf("session-%d", w.ids)
	a.report.Heard = nil
	a.seen = etcd.ReportWatch{}
}

// publish writes the report of a slot's machine.
func (w *lostQuorum) publish(slot string, a *modelAgent) {
	a.report.Count++
	report := a.report
	report.Heard = maps.Clone(report.Heard)
	w.reports[slot] = report
	a.published = report.Session
	if !w.stale[slot] {
		w.told[slot] = w.now
	}
}

// look lets the agent of a slot decide once about a recovery. It sees EC2 as of some ticks ago, and is killed after effects.
func (w *lostQuorum) look(slot string, late, effects int) {
	if !w.up[slot] || !w.exists[slot] || w.storeCut[slot] {
		return
	}
	a := w.agent(slot)
	if w.seesQuorum(slot) {
		a.lossSince = time.Time{}
		if !a.report.LostAt.IsZero() {
			w.newSession(a)
			a.report.LostAt = time.Time{}
			a.report.Quorum = true
			w.publish(slot, a)
		}
		return
	}
	if a.published == a.report.Session && w.reports[slot].Session != a.published {
		w.newSession(a) // another machine of the slot has reported
	}
	if last := w.reports[slot].Machine; w.stale[slot] && !w.hangs[slot] && last != "" && last != w.names[slot] {
		return
	}
	f := w.recoveryFacts(slot, a, late)
	if slices.ContainsFunc(f.Slots, func(s etcd.SlotState) bool { return s.Slot == slot && s.Report == nil }) {
		return
	}
	step := etcd.DecideRecovery(f)
	w.reasons[step.Type]++
	w.publish(slot, a)
	if effects == 0 {
		return
	}
	switch step.Type {
	case etcd.RecoverSave:
		w.ids++
		w.backups = append(w.backups, modelBackup{
			id:       fmt.Sprintf("saved-%d", w.ids),
			request:  w.savedID(slot),
			position: w.position(slot, logEnd(w.logs[slot]).Term),
			writes:   writesOf(w.logs[slot]),
		})
	case etcd.RecoverVerify:
		w.backup(step.Backup).tested = true
	case etcd.RecoverBegin:
		w.begin(slot, f, step)
	case etcd.RecoverNothing, etcd.RecoverWait, etcd.RecoverManual:
	}
}

func (w *lostQuorum) savedID(slot string) string {
	return fmt.Sprint(w.volumes[slot].generation, slot, logEnd(w.logs[slot]))
}

// recoveryFacts returns what the agent of a slot sees.
func (w *lostQuorum) recoveryFacts(slot string, a *modelAgent, late int) etcd.RecoveryFacts {
	clock := w.now.Add(w.skew[slot])
	v := w.volumes[slot]
	if a.report.LostAt.IsZero() || a.report.Volume != w.volumeID[slot] || a.report.Newest != w.number() {
		a.report.LostAt = clock
		a.lossSince = time.Time{}
	}
	a.report.Newest = w.number()
	a.report.Slot, a.report.Volume, a.report.Quorum = slot, w.volumeID[slot], false
	a.report.Generation, a.report.Log, a.report.Learner = v.generation, logEnd(w.logs[slot]), v.isLearner()
	a.report.Member, a.report.Removed = v.member, nil
	a.report.Machine, a.report.Broken = w.names[slot], w.stale[slot] && !w.hangs[slot]
	if v.identity == "" {
		a.report.Generation, a.report.Member = 0, 0
	} else if late == 0 { // it may learn later that a removal is stored
		a.report.Removed = w.removals(slot)
	}
	f := etcd.RecoveryFacts{
		Policy:       etcd.RecoveryPolicy{Automatic: true, After: modelAfter},
		Bootstrapped: true,
		LostFor:      clock.Sub(a.report.LostAt),
		Slot:         slot,
		Generation:   w.number(),
	}
	if g := w.newest(); g != nil && !slices.Contains(w.restored[g.Number], g.Slot) {
		f.Restoring = g.Slot
	}
	view := w.views[max(0, len(w.views)-1-late)]
	for _, s := range w.counted(slot) {
		state := etcd.SlotState{Slot: s, Absent: w.absent[s], NoVote: w.absent[s] || w.newest() != nil && len(w.joinedSlots()) > 0 && !slices.Contains(w.joinedSlots(), s), Volumes: slices.Clone(view[s]), Report: w.freshReport(a, slot, s)}
		state.Attached = w.attached[max(0, len(w.attached)-1-late)]
		if w.hidden[s] && w.now.Sub(w.told[s]) <= 2*tick {
			state.Volumes = nil
			state.Attached = nil
		}
		if s == slot && !slices.Contains(state.Volumes, w.volumeID[s]) {
			state.Volumes = append(state.Volumes, w.volumeID[s])
		}
		f.Slots = append(f.Slots, state.WithoutFormer())
	}
	if joined := len(w.joinedSlots()); joined != a.joined {
		a.joined = joined
		a.lossSince = time.Time{}
	}
	if isLost, _, _ := f.LostMajority(); !isLost {
		a.lossSince = time.Time{}
	} else if a.lossSince.IsZero() {
		a.lossSince = clock
	}
	if !a.lossSince.IsZero() {
		f.SeenFor = clock.Sub(a.lossSince)
	}
	f.Backup = w.newestBackup()
	for _, b := range w.backups {
		if b.request == w.savedID(slot) {
			f.Saved = &etcd.SavedData{ID: b.id}
		}
	}
	return f
}

// freshReport returns the report of a slot as long as it changes.
func (w *lostQuorum) freshReport(a *modelAgent, own, slot string) *etcd.QuorumReport {
	report, ok := w.reports[slot]
	if slot == own {
		report, ok = a.report, true
	}
	if !ok {
		return nil
	}
	if slot != own && !a.seen.Hear(&a.report, slot, report, w.now) {
		return nil
	}
	return &report
}

func (w *lostQuorum) newestBackup() *etcd.RecoveryBackup {
	var out *etcd.RecoveryBackup
	for _, b := range w.backups {
		found := &etcd.RecoveryBackup{ID: b.id, Position: b.position, Verified: b.tested}
		if b.position.Generation != w.number() || b.broken && b.tested {
			continue
		}
		if out == nil || found.Position.Compare(out.Position) >= 0 {
			out = found
		}
	}
	if g := w.newest(); out == nil && g != nil {
		b := w.backup(g.Backup)
		out = &etcd.RecoveryBackup{ID: b.id, Position: b.position, Verified: b.tested}
	}
	return out
}

// begin begins a generation, and checks that this was right.
func (w *lostQuorum) begin(slot string, f etcd.RecoveryFacts, step etcd.RecoveryStep) {
	if f.Generation != w.number() {
		return // another machine was faster
	}
	defer w.showFirst()()
	if with, of := w.votersWithData(); with > of/2 {
		w.Fatalf("slot %s recovers although %d of %d volumes have data: %s", slot, with, of, step.Reason)
	}
	if working := w.majorities(); len(working) > 0 {
		w.Fatalf("slot %s recovers although members work: %v: %s", slot, working, step.Reason)
	}
	restored := w.backup(step.Backup)
	if restored.broken || !restored.tested {
		w.Fatalf("slot %s restores a backup that is not known to be good: %+v", slot, restored)
	}
	for id := range w.acked {
		if !restored.writes[id] && w.isStored(id) {
			w.Fatalf("slot %s recovers from %s, which lacks write %d that is stored: %s", slot, restored.id, id, step.Reason)
		}
	}
	maps.DeleteFunc(w.acked, func(id int, _ bool) bool { return !restored.writes[id] })
	w.recovered++
	w.generations = append(w.generations, etcd.Generation{Number: f.Generation + 1, Backup: step.Backup, Slot: slot})
}

// hasVotersData reports whether a volume has the data of the current generation, of a member that has had a vote.
func (w *lostQuorum) hasVotersData(slot string) bool {
	v := w.volumes[slot]
	return w.exists[slot] && v.identity != "" && v.generation == w.number() && !v.isLearner()
}

// isStored reports whether a voter's volume or a good backup of the current generation has a write.
func (w *lostQuorum) isStored(id int) bool {
	for _, slot := range w.slots {
		if w.hasVotersData(slot) && !w.isOut(slot) && writesOf(w.logs[slot])[id] {
			return true
		}
	}
	return slices.ContainsFunc(w.backups, func(b modelBackup) bool {
		return b.position.Generation == w.number() && !b.broken && b.writes[id]
	})
}
