// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// MaintenanceType is what an agent does for the member of its machine, or for the cluster if its member is the leader.
type MaintenanceType string

// The types of maintenance.
const (
	// MaintainNothing does nothing.
	MaintainNothing MaintenanceType = "nothing"
	// MaintainDefragment defragments the agent's own member, after it has moved the leadership away.
	MaintainDefragment MaintenanceType = "defragment"
	// MaintainCompact removes the history up to Maintenance.Revision.
	MaintainCompact MaintenanceType = "compact"
	// MaintainDisarm disarms Maintenance.Alarms.
	MaintainDisarm MaintenanceType = "disarm"
	// MaintainStepAside stops the agent's own member and sets its data aside, because it is not that of the majority. The
	// member then joins again as a learner.
	MaintainStepAside MaintenanceType = "step-aside"
	// MaintainBlocked does nothing although something must be done: an operator has to act first.
	MaintainBlocked MaintenanceType = "blocked"
)

// The names of the alarms of etcd.
const (
	// AlarmNoSpace stops writes: the database of a member has reached its quota.
	AlarmNoSpace = "NOSPACE"
	// AlarmCorrupt stops reads and writes: the data of members differs.
	AlarmCorrupt = "CORRUPT"
)

const (
	// leastFragmentedSize and fragmentedPercent are when a member is defragmented: as OpenShift's operator of etcd does.
	leastFragmentedSize = 100 << 20
	fragmentedPercent   = 45
	// pressedPercent is the part of the quota from which on less fragmentation is enough.
	pressedPercent    = 75
	pressedFragmented = 10
	// almostFullPercent is the part of the quota from which on a member is defragmented even if the others have no quorum meanwhile.
	almostFullPercent = 90
	// compactPercent is the part of the quota in use from which on the leader's agent compacts. kube-apiserver does it
	// every 5 minutes, and cannot when etcd refuses writes.
	compactPercent = 80
	// disarmPercent is the part of the quota below which the databases must be before writes are permitted again.
	disarmPercent = 90
	// compactPause is the least time between two compactions. Between them the leader's member is defragmented in its turn.
	compactPause = 5 * time.Minute
	// The least time between two defragmentations of a member: usually, if its database is almost full, and if etcd refuses
	// all writes anyway.
	defragmentPause = time.Hour
	pressedPause    = 5 * time.Minute
	fullPause       = 30 * time.Second
	// DefragmentReserve stays free on the volume besides the copy that a defragmentation writes.
	DefragmentReserve = v1alpha1.EtcdDefragmentReserve
	// turnTime is for how long it is the turn of one slot. A member is defragmented in the first turnStart of it, so that
	// two are not at the same time while clocks differ by less than half a minute.
	turnTime  = time.Minute
	turnStart = 20 * time.Second
)

// Alarm is a raised alarm.
type Alarm struct {
	// MemberID is the member that it is about; 0 if etcd does not know.
	MemberID uint64
	// Type is its name, such as NOSPACE.
	Type string
}

// MemberState is a member, with what its own endpoint reports.
type MemberState struct {
	Member
	// Leader is set for the leader.
	Leader bool
	// DBSize is the size of the database in bytes, and InUse what a defragmentation would leave of it.
	DBSize, InUse int64
	// Quota of the database in bytes.
	Quota int64
	// Revision is the newest one that the member has reported; 0 if it does not answer.
	Revision int64
	// Hash of all keys and values at a revision that all members have. It is set only while an alarm CORRUPT is raised.
	Hash ContentHash
}

// ContentHash is what a member answers for the hash of its keys and values.
type ContentHash struct {
	// Known is set if the member answered.
	Known bool
	// Hash of the keys and values.
	Hash uint32
	// CompactRevision is where the history begins. Hashes with different ones cannot be compared.
	CompactRevision int64
}

// isComparable reports whether both members have answered, for the same history.
func (h ContentHash) isComparable(other ContentHash) bool {
	return h.Known && other.Known && h.CompactRevision == other.CompactRevision
}

// MaintenanceFacts is the complete input of a decision about maintenance.
type MaintenanceFacts struct {
	// Now is the time by the clock of the machine that decides.
	Now time.Time
	// Slot of this machine.
	Slot string
	// Slots of the whole control plane, sorted.
	Slots []string
	// Members are all entries of the membership list.
	Members []MemberState
	// Alarms that are raised.
	Alarms []Alarm
	// FreeBytes is the free space of the own volume.
	FreeBytes int64
	// AsideBytes is the size of data that was set aside before because the cluster went on without it. It is deleted if its space is
	// needed when data is set aside again.
	AsideBytes int64
	// CopiedAgain is set if the data of the own member, a learner, was set aside before because its etcd ended at each start.
	CopiedAgain bool
	// OldRevision is the revision of at least a minute ago; 0 if it is not known.
	OldRevision int64
	// CompactedAt is when this agent has compacted last; zero if it has not.
	CompactedAt time.Time
	// DefragmentedAt is when this agent has defragmented its member last; zero if it has not.
	DefragmentedAt time.Time
}

// Maintenance is the next step, and the reason for it.
type Maintenance struct {
	// Type of the step.
	Type MaintenanceType
	// Reason of the decision, for the journal.
	Reason string
	// Revision to compact. Set for MaintainCompact only.
	Revision int64
	// Alarms to disarm. Set for MaintainDisarm only.
	Alarms []Alarm
	// Bytes is the space that the member needs to join again. Set for MaintainStepAside only.
	Bytes int64
	// Learner is set if the data is a learner's. Set for MaintainStepAside only.
	Learner bool
}

// CheckRoom returns an error if a volume with so much free space has none for the data that the member copies when it joins again.
func (m Maintenance) CheckRoom(free int64) error {
	if free < m.Bytes {
		return fmt.Errorf("%s; the volume has no space to copy that of the others: %s", m.Reason, roomHint(m.Bytes))
	}

	return nil
}

func maintainNothing(format string, args ...any) Maintenance {
	return Maintenance{Type: MaintainNothing, Reason: fmt.Sprintf(format, args...)}
}

// DecideMaintenance returns the next step of the agent of one machine. It is a pure function. Every agent acts on its own
// member alone, and each in its turn; the leader's agent acts for the cluster besides.
func DecideMaintenance(f MaintenanceFacts) Maintenance {
	own := f.own()

	switch {
	case own == nil:
		return maintainNothing("slot %s is not a member", f.Slot)
	case f.hasAlarm(AlarmCorrupt):
		return decideCorrupt(f, *own)
	case f.hasAlarm(AlarmNoSpace) && own.Leader && f.hasRegainedSpace():
		return Maintenance{Type: MaintainDisarm, Reason: "the databases are below the quota again", Alarms: f.alarms(AlarmNoSpace)}
	case own.Leader && f.mustCompact():
		return Maintenance{Type: MaintainCompact, Reason: "the database is almost full", Revision: f.OldRevision}
	}

	return decideDefragment(f, *own)
}

// own returns the member of this machine, nil if it is none.
func (f MaintenanceFacts) own() *MemberState {
	i := slices.IndexFunc(f.Members, func(m MemberState) bool { return m.Slot == f.Slot })
	if i < 0 {
		return nil
	}

	return &f.Members[i]
}

func (f MaintenanceFacts) hasAlarm(name string) bool { return len(f.alarms(name)) > 0 }

// alarms returns the alarms with a name.
func (f MaintenanceFacts) alarms(name string) []Alarm {
	var out []Alarm
	for _, a := range f.Alarms {
		if a.Type == name {
			out = append(out, a)
		}
	}

	return out
}

// isWhole reports whether all slots have a healthy voter.
func (f MaintenanceFacts) isWhole() bool {
	for _, m := range f.Members {
		if m.Learner || !m.Healthy {
			return false
		}
	}

	return len(f.Members) == len(f.Slots)
}

// hasRegainedSpace reports whether a healthy majority has space for writes, and every member that answers. A member that
// does not answer raises the alarm again if it returns without space.
func (f MaintenanceFacts) hasRegainedSpace() bool {
	for _, m := range f.Members {
		if m.Quota > 0 && m.DBSize*100 > m.Quota*disarmPercent {
			return false
		}
	}

	return hasQuorum(membersOf(f.Members), 0)
}

// mustCompact reports whether the history is to be removed now: the database is almost full of it, or of keys.
func (f MaintenanceFacts) mustCompact() bool {
	if f.OldRevision <= 0 || f.Now.Sub(f.CompactedAt) < compactPause {
		return false
	}

	return f.hasAlarm(AlarmNoSpace) || slices.ContainsFunc(f.Members, func(m MemberState) bool {
		return m.Quota > 0 && m.InUse*100 >= m.Quota*compactPercent
	})
}

// decideCorrupt decides while the data of members differs. The alarm names a member, but not reliably: if the leader's
// data is the wrong one, the alarm is about another one. So the majority of the hashes counts.
func decideCorrupt(f MaintenanceFacts, own MemberState) Maintenance {
	agreeing, differing := f.compareHashes(own)
	majority := f.voters()/2 + 1

	switch {
	case !own.Hash.Known || own.Learner:
		return maintainNothing("alarm CORRUPT: this member's data cannot be compared")
	case differing >= majority:
		return f.decideWrong(own)
	case own.Leader && f.agree(own, agreeing, differing):
		return Maintenance{
			Type: MaintainDisarm, Reason: "all members that answer have the same data", Alarms: f.alarms(AlarmCorrupt),
		}

	case own.Leader && agreeing >= majority && len(f.goneAlarms()) > 0:
		return Maintenance{Type: MaintainDisarm, Reason: "the member was removed", Alarms: f.goneAlarms()}
	}

	return maintainNothing("alarm CORRUPT: %d of %d members have the data of this one", agreeing, f.voters())
}

// decideWrong decides for a member whose data is not that of the majority.
func (f MaintenanceFacts) decideWrong(own MemberState) Maintenance {
	switch {
	case !hasQuorum(membersOf(f.Members), own.ID):
		return maintainNothing("alarm CORRUPT: this member's data is wrong; the other members are not all healthy")
	case !f.hasRoomToRejoin():
		return Maintenance{Type: MaintainBlocked, Reason: f.rejoinObstacle()}
	}

	return Maintenance{
		Type:   MaintainStepAside,
		Reason: "the data differs from that of the majority",
		Bytes:  f.rejoinBytes(),
	}
}

// agree reports whether all voters that answer have the data of own, and are a majority. A member that does not answer, perhaps
// because etcd rejects its data at each start, serves nobody: it does not keep the others from taking writes. etcd compares
// it again when it returns. A restored or shrunk cluster with less than half of its slots has nothing to compare with.
func (f MaintenanceFacts) agree(own MemberState, agreeing, differing int) bool {
	if differing > 0 || agreeing*2 <= f.voters() || agreeing*2 <= len(f.Slots) {
		return false
	}

	for _, m := range f.Members {
		silent := !m.Healthy && m.Quota == 0
		if !m.Learner && !m.Hash.isComparable(own.Hash) && !silent {
			return false
		}
	}

	return true
}

// rejoinBytes returns the space that a member needs to copy the data of the others.
func (f MaintenanceFacts) rejoinBytes() int64 {
	size := int64(0)
	for _, m := range f.Members {
		size = max(size, m.DBSize)
	}

	return size + DefragmentReserve
}

// hasRoomToRejoin reports whether the volume has space for a copy of the others' data besides the own data, which is kept.
func (f MaintenanceFacts) hasRoomToRejoin() bool {
	return f.FreeBytes+f.AsideBytes >= f.rejoinBytes()
}

// rejoinObstacle has no figure that changes: the same text is reported once.
func (f MaintenanceFacts) rejoinObstacle() string {
	return "alarm CORRUPT: this member's data is wrong, and its volume has no space to keep it and to copy that of the " +
		"others: " + roomHint(f.rejoinBytes())
}

// roomHint says how to get so much free space on the volume.
func roomHint(bytes int64) string {
	return fmt.Sprintf(
		"%d MiB of free space are needed: delete what was set aside in %s (before-restore, corrupt, copy, left, learner) if it is not "+
			"needed any more, or set a larger spec.etcd.volume.size and run slipway apply", bytes>>20, DataMount)
}

// goneAlarms returns the alarms CORRUPT of members that were removed, if there are no others.
func (f MaintenanceFacts) goneAlarms() []Alarm {
	corrupt := f.alarms(AlarmCorrupt)
	for _, a := range corrupt {
		if a.MemberID == 0 || slices.ContainsFunc(f.Members, func(m MemberState) bool { return m.ID == a.MemberID }) {
			return nil
		}
	}

	return corrupt
}

// compareHashes returns how many voters have the data of own, with itself, and how many have the same other data.
func (f MaintenanceFacts) compareHashes(own MemberState) (agreeing, differing int) {
	others := map[uint32]int{}
	for _, m := range f.Members {
		switch {
		case m.Learner || !m.Hash.isComparable(own.Hash):
		case m.Hash.Hash == own.Hash.Hash:
			agreeing++
		default:
			others[m.Hash.Hash]++
			differing = max(differing, others[m.Hash.Hash])
		}
	}

	return agreeing, differing
}

func (f MaintenanceFacts) voters() int {
	n := 0
	for _, m := range f.Members {
		if !m.Learner {
			n++
		}
	}

	return n
}

func membersOf(states []MemberState) []Member {
	out := make([]Member, 0, len(states))
	for _, s := range states {
		out = append(out, s.Member)
	}

	return out
}

// decideDefragment decides whether the own member is defragmented now.
func decideDefragment(f MaintenanceFacts, own MemberState) Maintenance {
	since := f.Now.Sub(f.DefragmentedAt)

	switch {
	case !own.isFragmented():
		return maintainNothing("the database is not fragmented")
	case !f.isTurn():
		return maintainNothing("it is the turn of another member")
	case since < f.pause(own):
		return maintainNothing("the member was defragmented less than %s ago", f.pause(own))
	case f.FreeBytes < own.InUse+DefragmentReserve:
		return maintainNothing("the volume has no space for a copy of the database")
	}

	if obstacle := f.obstacle(own); obstacle != "" {
		return maintainNothing("%s", obstacle)
	}

	reason := fmt.Sprintf("%d MiB of %d MiB are not in use", (own.DBSize-own.InUse)>>20, own.DBSize>>20)

	return Maintenance{Type: MaintainDefragment, Reason: reason}
}

// pause returns the least time between two defragmentations of the own member.
func (f MaintenanceFacts) pause(own MemberState) time.Duration {
	switch {
	case f.hasAlarm(AlarmNoSpace):
		return fullPause
	case own.isPressed():
		return pressedPause
	default:
		return defragmentPause
	}
}

// obstacle says why the own member must not stop answering now; empty if it may.
func (f MaintenanceFacts) obstacle(own MemberState) string {
	switch {
	case f.hasAlarm(AlarmNoSpace) && f.othersAreBusy():
		return "another member answers no requests, perhaps because it is defragmented"
	case f.hasAlarm(AlarmNoSpace): // nothing can be written, and a member that is down may not come back before
		return ""
	case len(f.Slots) == 1 && !own.isPressed():
		return "the only member answers nothing during a defragmentation"
	case !f.isWhole() && f.incompleteObstacle(own) != "":
		return f.incompleteObstacle(own)
	case own.Leader && f.othersAreFragmented():
		return "the leader is the last one"
	default:
		return ""
	}
}

// incompleteObstacle says why the own member must not stop answering now although it comes close to its quota; empty if it may. Not all
// slots have a healthy voter, and may not before the quota is reached, at which etcd refuses all writes.
func (f MaintenanceFacts) incompleteObstacle(own MemberState) string {
	hasLearner := slices.ContainsFunc(f.Members, func(m MemberState) bool { return m.Learner })

	switch {
	case !own.isPressed():
		return "a member is not healthy"
	case f.othersAreBusy():
		return "another member answers no requests, perhaps because it is defragmented"
	case own.Leader && hasLearner: // the defragmentation would wait for the copy, and answer nothing until then
		return "a learner copies the data of the leader"
	case !f.hasQuorumWithout(own) && !own.isAlmostFull():
		return "a member is not healthy, and without this one too the others would be no quorum"
	default:
		return ""
	}
}

// hasQuorumWithout reports whether the members are a quorum while the own one does not answer.
func (f MaintenanceFacts) hasQuorumWithout(own MemberState) bool {
	members := membersOf(f.Members)
	for i := range members {
		if members[i].ID == own.ID {
			members[i].Healthy = false
		}
	}

	return hasQuorum(members, 0)
}

// isPressed reports whether the database comes close to its quota.
func (m MemberState) isPressed() bool { return m.Quota > 0 && m.DBSize*100 >= m.Quota*pressedPercent }

// isAlmostFull reports whether the quota is reached soon. Seconds without writes are better then than none at all.
func (m MemberState) isAlmostFull() bool {
	return m.Quota > 0 && m.DBSize*100 >= m.Quota*almostFullPercent
}

// isFragmented reports whether a defragmentation is worthwhile.
func (m MemberState) isFragmented() bool {
	unused := m.DBSize - m.InUse
	if m.isPressed() && unused*100 >= m.DBSize*pressedFragmented {
		return true
	}

	return m.DBSize >= leastFragmentedSize && unused*100 >= m.DBSize*fragmentedPercent
}

func (f MaintenanceFacts) othersAreFragmented() bool {
	return slices.ContainsFunc(f.Members, func(m MemberState) bool { return m.Slot != f.Slot && m.isFragmented() })
}

// othersAreBusy reports whether another member runs and serves nothing. API servers read from their own member alone, so
// only one may be defragmented at a time even if nothing can be written.
func (f MaintenanceFacts) othersAreBusy() bool {
	return slices.ContainsFunc(f.Members, func(m MemberState) bool {
		return m.Slot != f.Slot && !m.Learner && m.Quota > 0 && !m.Healthy
	})
}

// isTurn reports whether it is the turn of this machine's slot.
func (f MaintenanceFacts) isTurn() bool {
	second := time.Duration(f.Now.Unix()%int64(turnTime.Seconds())) * time.Second
	turn := f.Now.Unix() / int64(turnTime.Seconds()) % int64(len(f.Slots))

	return second < turnStart && f.Slots[turn] == f.Slot
}
