// SPDX-License-Identifier: Apache-2.0

// Package etcd decides how one etcd member starts or joins its cluster, and changes the membership
// through etcd's API.
//
// Decide is a pure function from Facts to the next Action. A write-once BootstrapMarker prevents a
// cluster from being bootstrapped twice; members record separately that they have had data, so that
// a member whose volume was lost rejoins as a learner instead of starting empty. The rules and
// their reasons are in docs/design/0002-etcd-names.md.
//
// The package knows no cloud: volumes and the marker are passed in as facts.
package etcd

import (
	"fmt"
	"maps"
	"slices"
)

// ActionType is the next step for a member.
type ActionType string

// The action types. Only ActionStartNew can bootstrap a cluster.
const (
	// ActionWait does nothing; Action.Reason tells what the member waits for.
	ActionWait ActionType = "wait"
	// ActionCreateMarker writes the bootstrap marker with a conditional write and then decides
	// again.
	ActionCreateMarker ActionType = "create-marker"
	// ActionStartNew starts etcd with an empty data directory as an initial member of the cluster
	// in the marker.
	ActionStartNew ActionType = "start-new"
	// ActionStartExisting starts etcd with its existing data.
	ActionStartExisting ActionType = "start-existing"
	// ActionRemoveMember removes this slot's old membership entry, whose data is lost, through a
	// healthy peer.
	ActionRemoveMember ActionType = "remove-member"
	// ActionAddLearner adds this slot as a learner through a healthy peer.
	ActionAddLearner ActionType = "add-learner"
	// ActionSetAside stops etcd and moves its data away: it belongs to an earlier generation.
	ActionSetAside ActionType = "set-aside"
	// ActionSetAsideLeft moves the data of a member away that was removed when the control plane became smaller. The slot is
	// in the control plane again.
	ActionSetAsideLeft ActionType = "set-aside-left"
	// ActionSetAsideCopy moves the data of another volume away.
	ActionSetAsideCopy ActionType = "set-aside-copy"
	// ActionRestore restores the backup of the generation into an empty data directory.
	ActionRestore ActionType = "restore"
	// ActionStartJoining starts etcd with an empty data directory to replicate everything from the
	// other members.
	ActionStartJoining ActionType = "start-joining"
)

// BootstrapMarker records that the cluster was bootstrapped. It is written once and never changed,
// which prevents a second bootstrap.
type BootstrapMarker struct {
	// Token is etcd's initial-cluster-token. It is random, so that members of two clusters never
	// mix.
	Token string `json:"token"`
	// Volumes of the initial members: slot → volume id.
	Volumes map[string]string `json:"volumes"`
}

// Member is an entry of the membership list of a healthy peer.
type Member struct {
	// ID is etcd's member id.
	ID uint64
	// Name is empty until the member has started for the first time.
	Name string
	// Slot of the member, found by its peer URL, which never changes.
	Slot string
	// Learner is set for a member without a vote.
	Learner bool
	// Healthy is set if the member answered a linearizable read.
	Healthy bool
}

// Facts is the complete input of a decision.
type Facts struct {
	// Slot of this machine.
	Slot string
	// Slots of the whole control plane.
	Slots []string
	// Volume is the id of this slot's volume; empty while it is not mounted.
	Volume string
	// HasData is set if the volume contains a member's data.
	HasData bool
	// DataVolume is the id of the volume that the data was written on, by a file in the data directory; empty: not known. It differs
	// from Volume if the volume was made from a snapshot of another one.
	DataVolume string
	// Visible are the volumes found in EC2: slot → volume id.
	Visible map[string]string
	// Marker is nil until the cluster has been bootstrapped.
	Marker *BootstrapMarker
	// Absent is set if the slot was not in the control plane and had no member, by the record of the leader's agent. A member
	// that joins deletes the record before it has data.
	Absent bool
	// Joined are the slots whose member has had data, of the newest generation if there is one.
	Joined []string
	// Unsigned is the key of a record without a valid signature that the member of the generation's slot has had its data; empty if
	// there is none.
	Unsigned string
	// Members is the membership list of a healthy peer; nil while no peer answers with a quorum.
	Members []Member
	// Added is the id of the learner that this machine has added last, for the mounted volume; 0: none.
	Added uint64
	// Former is the membership list of a peer with data of an earlier generation that answers with a quorum; nil if none does. It is
	// set for the slot that restores the newest generation.
	Former []Member
	// Comparison of the other members' data. It is set if [Facts.NeedsComparison].
	Comparison Comparison
	// Generation is the newest one; nil while the cluster has never been restored.
	Generation *Generation
	// DataGeneration is the number of the generation that the volume's data belongs to: 1 for data that was never
	// restored, 0 without data.
	DataGeneration int
	// Learner is set if the data is that of a member that has not been promoted yet: it is no data to recover from.
	Learner bool
	// Prepared is set if the volume has a restored database of the generation that is not in use yet.
	Prepared bool
}

// Action is the next step and the reason for it.
type Action struct {
	// Type of the step.
	Type ActionType
	// Reason of the decision, for the console.
	Reason string
	// MemberID is the membership entry to remove. Set for ActionRemoveMember only.
	MemberID uint64
}

func waitAction(format string, args ...any) Action {
	return Action{Type: ActionWait, Reason: fmt.Sprintf(format, args...)}
}

// Decide returns the next step for this member. It is a pure function.
func Decide(f Facts) Action {
	switch {
	case f.HasData:
		return decideData(f)
	case f.Volume == "":
		return waitAction("volume of slot %s is not mounted", f.Slot)
	case f.Generation != nil:
		return decideRestored(f)
	case f.Marker == nil:
		return decideBootstrap(f)
	case f.isUnusedFounder():
		return Action{
			Type:   ActionStartNew,
			Reason: "the marker lists this volume as an initial member's, and it never had data",
		}

	default:
		return decideRejoin(f)
	}
}

// decideData decides what a member does that has data.
func decideData(f Facts) Action {
	switch {
	case f.Generation != nil && f.DataGeneration < f.Generation.Number:
		return Action{
			Type:   ActionSetAside,
			Reason: fmt.Sprintf("etcd was restored from backup %s: the data is of before", f.Generation.Backup),
		}

	case f.Absent:
		return Action{Type: ActionSetAsideLeft, Reason: "the data is of a member that was removed"}
	case f.IsCopy():
		return decideCopy(f)
	default:
		// Data is enough to start. The volume's id may be unknown because EC2 or S3 was
		// unavailable.
		return Action{Type: ActionStartExisting, Reason: "the volume holds data"}
	}
}

// IsCopy reports whether the data is that of another volume, as on a volume that was made from a snapshot. It may lack writes
// that its member has acknowledged since: two such members would be a majority of old data. The only member of a cluster
// has nobody to contradict it.
func (f Facts) IsCopy() bool {
	return f.HasData && f.DataVolume != "" && f.Volume != "" && f.DataVolume != f.Volume && len(f.Slots) > 1
}

// decideCopy never starts a member with the data of another volume: with a quorum of the others it joins again, without
// one it waits.
func decideCopy(f Facts) Action {
	own, _ := f.ownMember()
	if len(f.Members) > 0 && hasQuorum(f.Members, own.ID) {
		return Action{
			Type:   ActionSetAsideCopy,
			Reason: "the data is a copy of that of volume " + f.DataVolume + ", and the other members have newer data",
		}
	}

	return waitAction(
		"the data of slot %s is a copy of that of volume %s and may be old: it joins when a quorum of the others answers; if "+
			"they are lost too: slipway etcd restore; to use this data nevertheless, delete %s/%s",
		f.Slot, f.DataVolume, DataDir, VolumeFile,
	)
}

// VolumeFile has the id of the volume that data was written on. It is in the data directory, so that a snapshot of the
// volume has it too. etcd ignores it.
const VolumeFile = "slipway-volume"

// isUnusedFounder reports whether the mounted volume is an initial member's, which has never had data and was not removed.
func (f Facts) isUnusedFounder() bool {
	return f.Marker.Volumes[f.Slot] == f.Volume && !slices.Contains(f.Joined, f.Slot) && !f.Absent
}

// decideBootstrap creates the marker once the volumes of all slots are visible. If the marker is
// missing although slots have joined or peers answer, it was deleted from a running cluster, which
// must not be bootstrapped again.
func decideBootstrap(f Facts) Action {
	if len(f.Joined) > 0 || len(f.Members) > 0 {
		return waitAction(
			"the etcd bootstrap marker is missing although members %v have had data: restore it",
			f.Joined,
		)
	}

	for _, slot := range f.Slots {
		if f.Visible[slot] == "" {
			return waitAction("the volume of slot %s does not exist yet", slot)
		}
	}

	if f.Visible[f.Slot] != f.Volume {
		return waitAction(
			"slot %s has mounted volume %s, but its volume in EC2 is %s",
			f.Slot,
			f.Volume,
			f.Visible[f.Slot],
		)
	}

	return Action{Type: ActionCreateMarker, Reason: "the volumes of all slots exist"}
}

// decideRejoin replaces a member whose data is lost: remove the old entry, add a learner, start it,
// and promote it. The member of a slot that was added to the control plane joins in the same way.
func decideRejoin(f Facts) Action {
	if len(f.Slots) == 1 && len(f.Members) == 0 {
		return waitAction("the only member's data is lost: restore a backup with: slipway etcd restore")
	}

	if len(f.Members) == 0 && f.isNewSlot() {
		return waitAction("slot %s is new and no quorum of the other members answers: it joins when they do", f.Slot)
	}

	if len(f.Members) == 0 {
		return waitAction("data of slot %s is lost and no quorum of the other members answers; if the others are lost too: "+
			"slipway etcd restore", f.Slot)
	}

	if old, found := f.ownMember(); found {
		return decideStaleEntry(f, old)
	}

	if i := slices.IndexFunc(f.Members, func(m Member) bool { return m.Learner }); i >= 0 {
		return waitAction("slot %s is joining; members join one at a time", f.Members[i].Slot)
	}

	if !hasQuorum(f.Members, 0) {
		return waitAction("fewer than a quorum of the other members are healthy")
	}

	if !f.Comparison.Equal {
		return waitAction("%s", f.Comparison.Problem)
	}

	if f.isNewSlot() {
		return Action{Type: ActionAddLearner, Reason: "the slot is new; joining as a learner"}
	}

	return Action{Type: ActionAddLearner, Reason: "data is lost; rejoining as a learner"}
}

// ownMember returns the entry of this slot in the membership list.
func (f Facts) ownMember() (Member, bool) {
	i := slices.IndexFunc(f.Members, func(m Member) bool { return m.Slot == f.Slot })
	if i < 0 {
		return Member{}, false
	}

	return f.Members[i], true
}

// isNewSlot reports whether the slot was added after the cluster was bootstrapped.
func (f Facts) isNewSlot() bool {
	isFounder := f.Marker == nil || f.Marker.Volumes[f.Slot] != ""

	return f.Absent || !isFounder && !slices.Contains(f.Joined, f.Slot)
}

func decideStaleEntry(f Facts, old Member) Action {
	switch {
	case old.Learner && old.Name == "" && old.ID != f.Added:
		// Another machine of the slot may have started with this id and not have told its name yet. Two members of one id would each
		// confirm what the other does not have.
		return Action{
			Type:     ActionRemoveMember,
			MemberID: old.ID,
			Reason:   "the learner was added by another machine of the slot, or for another volume",
		}

	case old.Learner && old.Name == "" && !f.Comparison.Equal:
		return waitAction("%s", f.Comparison.Problem)
	case old.Learner && old.Name == "":
		return Action{Type: ActionStartJoining, Reason: "added as a learner, never started"}
	case old.Learner:
		return Action{Type: ActionRemoveMember, MemberID: old.ID, Reason: "the learner's data is lost"}
	case !hasQuorum(f.Members, old.ID):
		return waitAction(
			"removing member %x would lose the quorum: the other members are not all healthy",
			old.ID,
		)

	default:
		return Action{Type: ActionRemoveMember, MemberID: old.ID, Reason: "the member's data is lost"}
	}
}

// hasQuorum reports whether the healthy voters are a majority of all voters. The member with the id
// without is not counted.
func hasQuorum(members []Member, without uint64) bool {
	voters := 0
	healthy := 0
	for _, m := range members {
		if m.Learner || m.ID == without {
			continue
		}

		voters++
		if m.Healthy {
			healthy++
		}
	}

	return healthy > voters/2
}

// NewBootstrapMarker returns the marker of a cluster that is bootstrapped on these volumes (slot →
// volume id).
func NewBootstrapMarker(token string, volumes map[string]string) BootstrapMarker {
	return BootstrapMarker{Token: token, Volumes: maps.Clone(volumes)}
}
