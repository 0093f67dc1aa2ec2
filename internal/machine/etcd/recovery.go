// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// RecoveryStepType is the next step while etcd has no quorum.
type RecoveryStepType string

// The types of steps.
const (
	// RecoverNothing does nothing: etcd works, or was never bootstrapped.
	RecoverNothing RecoveryStepType = "nothing"
	// RecoverWait waits; RecoveryStep.Reason tells what for.
	RecoverWait RecoveryStepType = "wait"
	// RecoverManual waits for an operator.
	RecoverManual RecoveryStepType = "manual"
	// RecoverSave takes a backup of this machine's data, which is the newest.
	RecoverSave RecoveryStepType = "save"
	// RecoverVerify tests the backup that is to be restored.
	RecoverVerify RecoveryStepType = "verify"
	// RecoverBegin begins a generation with the backup, which this machine restores.
	RecoverBegin RecoveryStepType = "begin"
)

// confirmLoss is for how long a machine must have seen that the volumes are lost: EC2 lists a new volume late.
const confirmLoss = time.Minute

// RecoveryPolicy says whether machines recover etcd after the loss of its quorum.
type RecoveryPolicy struct {
	// Automatic lets them; otherwise they only report.
	Automatic bool
	// After is how long the quorum must have been missing.
	After time.Duration
}

// QuorumReport is what the machine of a slot reports to the others, through the machine store, while etcd has no quorum.
type QuorumReport struct {
	// Slot and Machine that report.
	Slot    string `json:"slot"`
	Machine string `json:"machine"`
	// Volume that is mounted.
	Volume string `json:"volume"`
	// Quorum is set if the machine reaches a quorum again.
	Quorum bool `json:"quorum"`
	// Generation of the data on the volume; 0 if it has none.
	Generation int `json:"generation"`
	// Learner is set if the data is that of a member that has not been promoted: it lacks what was written before it joined and
	// was not copied yet, and it has confirmed nothing.
	Learner bool `json:"learner,omitempty"`
	// Member is the id of the member that the data is of, and Removed are those of the members that its log says were removed:
	// see [Removals].
	Member  uint64   `json:"member,omitempty"`
	Removed []uint64 `json:"removed,omitempty"`
	// Broken is set if the volume does not take writes, or was detached by force. What is read of it may come from memory.
	Broken bool `json:"broken,omitempty"`
	// Newest is the number of the newest generation, which LostAt is about.
	Newest int `json:"newest"`
	// Log is the end of the member's log, and Problem says why it cannot be read.
	Log     LogEnd `json:"log"`
	Problem string `json:"problem,omitempty"`
	// LostAt is since when the machine has had no quorum of the newest generation, by its clock.
	LostAt time.Time `json:"lostAt,omitzero"`
	// Count increases with each report of one process, so that others see that the machine still reports.
	Count int `json:"count"`
	// Session is random for each process, and Heard are the sessions of the other slots' machines that it has read. A report counts for
	// a machine only if it has heard this machine's session: it was not signed before, as during an earlier loss of the quorum.
	Session string            `json:"session,omitempty"`
	Heard   map[string]string `json:"heard,omitempty"`
	// LostData is set if the machine found that the data of a majority is lost.
	LostData bool `json:"lostData,omitempty"`
	// Step is the machine's last decision, Reason its reason, and DueAt when it will act if nothing changes; zero if that does
	// not depend on the time.
	Step   RecoveryStepType `json:"step"`
	Reason string           `json:"reason"`
	DueAt  time.Time        `json:"dueAt,omitzero"`
	// ReportedAt is by the machine's clock, for people.
	ReportedAt time.Time `json:"reportedAt"`
}

// SlotState is what a machine knows of a slot.
type SlotState struct {
	// Slot of the control plane.
	Slot string
	// Absent is set if the slot is recorded as absent. Its machine restores nothing: it ends at any time.
	Absent bool
	// NoVote is set if the slot has no voter by the records: it is absent, though the document of a machine that leaves names it still,
	// or its member has not joined the current generation.
	NoVote bool
	// Volumes of the slot that exist.
	Volumes []string
	// Report of the slot's machine; nil if it does not report at this moment.
	Report *QuorumReport
	// Attached are the machines that have the volumes attached, by volume.
	Attached map[string]string
}

// WithoutFormer returns the state without the report of a machine whose volume another one has attached: it was detached by force, and the
// former machine reports what it still has in memory. The other one may have newer data there.
func (s SlotState) WithoutFormer() SlotState {
	if s.Report == nil {
		return s
	}

	if machine := s.Attached[s.Report.Volume]; machine != "" && machine != s.Report.Machine {
		s.Report = nil
	}

	return s
}

// isKnown reports whether the slot's machine has reported what each volume of the slot holds.
func (s SlotState) isKnown() bool {
	return s.Report != nil && !slices.ContainsFunc(s.Volumes, func(v string) bool { return v != s.Report.Volume })
}

// mayHaveData reports whether a volume of the slot has a voter's data of a generation, or may have.
func (s SlotState) mayHaveData(generation int) bool {
	return len(s.Volumes) > 0 && !s.isKnown() || s.reportsData(generation)
}

// reportsData reports whether the slot's machine reports a voter's data of a generation on a volume that exists: EC2 lists one, or
// the machine can use the one that it has mounted.
func (s SlotState) reportsData(generation int) bool {
	return s.Report != nil && s.Report.hasData(generation) && (len(s.Volumes) > 0 || !s.Report.Broken)
}

// hasData reports whether the data is a voter's, and of a generation. That of a learner gives no quorum, and etcd can begin no
// cluster with it.
func (r QuorumReport) hasData(generation int) bool { return r.Generation >= generation && !r.Learner }

// RecoveryBackup is a backup that can be restored.
type RecoveryBackup struct {
	// ID of the backup.
	ID string
	// Position of its data.
	Position Position
	// Verified is set if a test has restored it.
	Verified bool
	// TakenAt is when it was taken.
	TakenAt time.Time
}

// RecoveryFacts is the complete input of a decision.
type RecoveryFacts struct {
	// Policy of the cluster.
	Policy RecoveryPolicy
	// Bootstrapped is set if etcd has ever had data.
	Bootstrapped bool
	// Quorum is set if a member answered this machine with a quorum.
	Quorum bool
	// LostFor is for how long this machine has had no quorum of the current generation.
	LostFor time.Duration
	// SeenFor is for how long it has seen, at each look, that the volumes of a majority are lost.
	SeenFor time.Duration
	// Slot of this machine.
	Slot string
	// Slots of the control plane, in their order.
	Slots []SlotState
	// Generation is the number of the current one; 1 if etcd was never restored.
	Generation int
	// Restoring is the slot that restores the backup of the current generation and has not finished; empty if there is none.
	Restoring string
	// Saved is set if there is a backup of this machine's data, up to the end of its log. It says whether its test failed.
	Saved *SavedData
	// Backup is the newest one of the current generation whose test did not fail; nil if there is none.
	Backup *RecoveryBackup
}

// SavedData is a backup of the data of a machine that survived.
type SavedData struct {
	// ID of the backup.
	ID string
	// Problem says why its test failed; empty if it did not.
	Problem string
}

// RecoveryStep is the next step.
type RecoveryStep struct {
	// Type of the step.
	Type RecoveryStepType
	// Reason of the decision.
	Reason string
	// Due is after which time another decision follows if nothing else changes; 0 if that does not depend on the time.
	Due time.Duration
	// Backup to verify or to restore.
	Backup string
	// Lost are the slots without data.
	Lost []string
	// Survivor is set if the backup is of the data of this machine.
	Survivor bool
}

// LostMajority reports whether the data of so many members is lost that the others are no majority, and returns the slots
// of both kinds. A slot without a vote is of neither kind: that of a member that was
// removed, or of none.
func (f RecoveryFacts) LostMajority() (isLost bool, lost, left []string) {
	for _, s := range f.Slots {
		switch {
		case s.isKnown() && f.wasRemoved(*s.Report):
		case s.mayHaveData(f.Generation):
			left = append(left, s.Slot)
		case !s.NoVote:
			lost = append(lost, s.Slot)
		}
	}

	return len(lost) > 0 && len(left) <= (len(lost)+len(left))/2, lost, left
}

// wasRemoved reports whether a machine's data is of a member that was removed: the log of a member of the same generation says
// so. That is certain, however old the log is.
func (f RecoveryFacts) wasRemoved(r QuorumReport) bool {
	return r.Member != 0 && r.hasData(f.Generation) && slices.ContainsFunc(f.Slots, func(s SlotState) bool {
		return s.reportsData(f.Generation) && slices.Contains(s.Report.Removed, r.Member)
	})
}

// DecideRecovery returns the next step of this machine. It is a pure function. Only RecoverBegin changes anything, by a
// conditional write, which one machine succeeds with.
//
// It is safe because of two rules that depend on no clock. A majority of the volumes is gone, or reported empty. And each
// volume that exists is accounted for by a machine that reports at this moment that it has no quorum: no member works
// elsewhere. A report of data counts more than a list of EC2 without that volume. The data of a member that was not promoted is
// neither: see [HasNoVote].
func DecideRecovery(f RecoveryFacts) RecoveryStep {
	isLost, lost, left := f.LostMajority()
	step := RecoveryStep{Type: RecoverWait, Lost: lost}

	switch {
	case f.Quorum:
		step.Type = RecoverNothing
		step.Reason = "etcd has a quorum"

	case !f.Bootstrapped:
		step.Type = RecoverNothing
		step.Reason = "etcd was never bootstrapped"

	case f.isAbsent(f.Slot):
		step.Reason = "slot " + f.Slot + " has left the control plane: another machine recovers etcd"
	case f.reportsQuorum() != "":
		step.Reason = "slot " + f.reportsQuorum() + " reports a quorum, which this machine does not reach"
	case !isLost:
		step.Reason = fmt.Sprintf("%d of %d volumes may have data (%s): etcd works again when the machines of a majority run",
			len(left), len(lost)+len(left), strings.Join(left, ", "))

	case f.isRestoring():
		step.Reason = fmt.Sprintf("slot %s restores the backup of generation %d", f.Restoring, f.Generation)
	case !f.Policy.Automatic:
		step.Type = RecoverManual
		step.Reason = f.describeLoss() + ": spec.etcd.quorumLoss.recovery is Manual"

	case f.firstUnknown() != "":
		step.Reason = fmt.Sprintf("%s; waiting for a report of slot %s may have newer data", f.describeLoss(), f.firstUnknown())

	default:
		return f.decideSource(step)
	}

	return step
}

// describeLoss says which data is lost.
func (f RecoveryFacts) describeLoss() string {
	_, lost, left := f.LostMajority()
	var out strings.Builder
	fmt.Fprintf(&out, "the data of %d of %d members is lost (%s)", len(lost), len(lost)+len(left), strings.Join(lost, ", "))
	for _, s := range f.Slots {
		if s.Report != nil && s.Report.Learner && s.Report.Generation >= f.Generation && slices.Contains(lost, s.Slot) {
			out.WriteString(", " + s.Slot + " was a learner")
		}
	}

	return out.String()
}

// reportsQuorum returns a slot whose machine reports a quorum; empty if there is none.
func (f RecoveryFacts) reportsQuorum() string {
	for _, s := range f.Slots {
		if s.Report != nil && s.Report.Quorum {
			return s.Slot
		}
	}

	return ""
}

// isAbsent reports whether a slot is recorded as absent.
func (f RecoveryFacts) isAbsent(slot string) bool {
	return slices.ContainsFunc(f.Slots, func(s SlotState) bool { return s.Slot == slot && s.Absent })
}

// isRestoring reports whether a machine works on the restoration of the current generation at this moment.
func (f RecoveryFacts) isRestoring() bool {
	return slices.ContainsFunc(f.Slots, func(s SlotState) bool { return s.Slot == f.Restoring && s.Report != nil })
}

// firstUnknown returns a slot and its volume of which no machine reports what it holds; empty if there is none.
func (f RecoveryFacts) firstUnknown() string {
	for _, s := range f.Slots {
		for _, v := range s.Volumes {
			if s.Report == nil || s.Report.Volume != v {
				return s.Slot + ", whose volume " + v
			}
		}
	}

	return ""
}

// decideSource decides which data is restored by which machine, now that it is certain that no member works.
func (f RecoveryFacts) decideSource(step RecoveryStep) RecoveryStep {
	loss := f.describeLoss()
	if wait := max(f.Policy.After-f.LostFor, min(confirmLoss, f.Policy.After)-f.SeenFor); wait > 0 {
		step.Reason = loss + "; etcd is recovered when the quorum has been missing for " + f.Policy.After.String()
		step.Due = wait

		return step
	}

	if s := f.newestSurvivor(); s != nil {
		return f.decideSurvivor(step, *s)
	}

	recoverer := f.firstReporting()

	switch {
	case f.Backup == nil:
		step.Type = RecoverManual
		step.Reason = loss + ", and there is no usable backup"

	case recoverer != f.Slot:
		step.Reason = fmt.Sprintf("%s; slot %s restores backup %s", loss, recoverer, f.Backup.ID)
	default:
		return f.useBackup(step)
	}

	return step
}

// decideSurvivor decides when a member's data has survived.
func (f RecoveryFacts) decideSurvivor(step RecoveryStep, s QuorumReport) RecoveryStep {
	loss := f.describeLoss()

	switch {
	case s.Problem != "":
		step.Type = RecoverManual
		step.Reason = fmt.Sprintf("%s, and the data of slot %s cannot be read: %s", loss, s.Slot, s.Problem)

	case f.wasRemoved(s):
		step.Type = RecoverManual
		step.Reason = fmt.Sprintf("%s, and the newest data is that of slot %s, whose member was removed: etcd does not start with it",
			loss, s.Slot)

	case s.Slot != f.Slot:
		step.Reason = fmt.Sprintf("%s; slot %s has the newest data and recovers it", loss, s.Slot)
	case f.Saved == nil:
		step.Type = RecoverSave
		step.Reason = loss + "; this machine has the newest data"

	case f.Saved.Problem != "":
		step.Type = RecoverManual
		step.Reason = fmt.Sprintf("%s, and the data of slot %s cannot be restored (backup %s): %s",
			loss, s.Slot, f.Saved.ID, f.Saved.Problem)

	case f.Backup == nil:
		step.Reason = "the backup of this machine's data is not listed yet"
	default:
		step.Survivor = f.Backup.ID == f.Saved.ID
		return f.useBackup(step)
	}

	return step
}

// useBackup tests the newest backup, and then begins a generation with it.
func (f RecoveryFacts) useBackup(step RecoveryStep) RecoveryStep {
	step.Backup = f.Backup.ID
	step.Type = RecoverBegin
	step.Reason = fmt.Sprintf("%s; restoring backup %s, revision %d", f.describeLoss(), f.Backup.ID,
		f.Backup.Position.Revision)
	if !f.Backup.Verified {
		step.Type = RecoverVerify
		step.Reason = fmt.Sprintf("%s; testing backup %s first", f.describeLoss(), f.Backup.ID)
	}

	return step
}

// newestSurvivor returns the report of the voter's machine with the newest data of the current generation; nil if no data has survived.
// A machine whose data cannot be read comes first: nobody knows how new it is. Data of a member that was removed comes last among equal.
func (f RecoveryFacts) newestSurvivor() *QuorumReport {
	var out *QuorumReport
	for _, s := range f.Slots {
		if s.Absent || !s.reportsData(f.Generation) {
			continue
		}

		if s.Report.Problem != "" {
			return s.Report
		}

		order := 1
		if out != nil {
			order = s.Report.Log.Compare(out.Log)
		}

		if order > 0 || order == 0 && f.wasRemoved(*out) {
			out = s.Report
		}
	}

	return out
}

// firstReporting returns the first slot with a volume and a machine that reports; empty if there is none.
func (f RecoveryFacts) firstReporting() string {
	for _, s := range f.Slots {
		if len(s.Volumes) > 0 && s.Report != nil && !s.Absent {
			return s.Slot
		}
	}

	return ""
}
