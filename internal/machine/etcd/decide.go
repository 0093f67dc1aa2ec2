// SPDX-License-Identifier: Apache-2.0

// Package etcd decides how one etcd member starts and joins, and carries that out through etcd's own API. It knows
// no cloud: volumes and the marker are facts given to it.
package etcd

import (
	"fmt"
	"maps"
	"slices"
)

// ActionType is a step of a member's life.
type ActionType string

// The verbs. Only ActionStartNew can give birth to a cluster.
const (
	// ActionWait does nothing now; Action.Reason says what for.
	ActionWait ActionType = "wait"
	// ActionCreateMarker writes the marker, on the condition that there is none, and decides again.
	ActionCreateMarker ActionType = "create-marker"
	// ActionStartNew starts etcd with an empty data folder as a founder of the cluster that the marker names.
	ActionStartNew ActionType = "start-new"
	// ActionStartExisting starts etcd on the data it has.
	ActionStartExisting ActionType = "start-existing"
	// ActionRemoveMember removes our old entry, whose data is lost, through a healthy peer.
	ActionRemoveMember ActionType = "remove-member"
	// ActionAddLearner adds us as a learner through a healthy peer.
	ActionAddLearner ActionType = "add-learner"
	// ActionStartJoining starts etcd with an empty data folder to fetch everything from the others.
	ActionStartJoining ActionType = "start-joining"
)

// BootstrapMarker says that the cluster was born. It is written once and never changed, so that a second birth is impossible.
type BootstrapMarker struct {
	// Token is etcd's initial-cluster-token: random, so that two clusters never mix.
	Token string `json:"token"`
	// Volumes are the founders: slot → volume id.
	Volumes map[string]string `json:"volumes"`
}

// Member is an entry of the membership as a healthy peer tells it.
type Member struct {
	ID uint64
	// Name is empty until the member has started once.
	Name string
	// Slot is known by the peer URL, which never changes.
	Slot    string
	Learner bool
	// Healthy says that the member answered a linearizable read.
	Healthy bool
}

// Facts is all that a decision rests on.
type Facts struct {
	// Slot is ours; Slots are all.
	Slot  string
	Slots []string
	// Volume is the id of our volume, empty while it is not mounted.
	Volume string
	// HasData says that the volume holds a member's data.
	HasData bool
	// Visible are the volumes that EC2 shows: slot → volume id.
	Visible map[string]string
	// Marker is nil while the cluster is unborn.
	Marker *BootstrapMarker
	// Joined are the slots whose member once had data.
	Joined []string
	// Members as a healthy peer tells them; nil while no peer answers with a quorum behind it.
	Members []Member
}

// Action is what to do next, and why.
type Action struct {
	Type   ActionType
	Reason string
	// MemberID is the entry that ActionRemoveMember removes.
	MemberID uint64
}

func waitAction(format string, args ...any) Action {
	return Action{Type: ActionWait, Reason: fmt.Sprintf(format, args...)}
}

// Decide is a pure function from what is known to the next step.
func Decide(f Facts) Action {
	switch {
	case f.HasData:
		// Also where nobody could say which volume it is: a member that has data needs nothing else.
		return Action{Type: ActionStartExisting, Reason: "the volume holds data"}
	case f.Volume == "":
		return waitAction("volume of slot %s is not mounted", f.Slot)
	case f.Marker == nil:
		return decideBootstrap(f)
	case f.Marker.Volumes[f.Slot] == f.Volume && !slices.Contains(f.Joined, f.Slot):
		return Action{
			Type:   ActionStartNew,
			Reason: "the marker names this volume a founder, and it never had data",
		}

	default:
		return decideRejoin(f)
	}
}

// decideBootstrap makes the marker once every founder's volume can be seen. A marker that was deleted from under a
// living cluster must not look like an unborn one: then slots have joined, or peers answer.
func decideBootstrap(f Facts) Action {
	if len(f.Joined) > 0 || len(f.Members) > 0 {
		return waitAction(
			"the initialized marker is missing, though members %v have had data: restore it",
			f.Joined,
		)
	}

	for _, slot := range f.Slots {
		if f.Visible[slot] == "" {
			return waitAction("the volume of slot %s is not there yet", slot)
		}
	}

	if f.Visible[f.Slot] != f.Volume {
		return waitAction("slot %s has volume %s mounted, EC2 shows %s", f.Slot, f.Volume, f.Visible[f.Slot])
	}

	return Action{Type: ActionCreateMarker, Reason: "all founders' volumes are there"}
}

// decideRejoin brings back a member whose data is gone: out with the old entry, in as a learner, start, be promoted.
func decideRejoin(f Facts) Action {
	if len(f.Slots) == 1 {
		return waitAction("the only member's data is lost: restore a backup")
	}

	if len(f.Members) == 0 {
		return waitAction("data of slot %s is lost and no quorum of the other members answers", f.Slot)
	}

	if i := slices.IndexFunc(f.Members, func(m Member) bool { return m.Slot == f.Slot }); i >= 0 {
		return decideStaleEntry(f, f.Members[i])
	}

	if i := slices.IndexFunc(f.Members, func(m Member) bool { return m.Learner }); i >= 0 {
		return waitAction("slot %s is joining; one at a time", f.Members[i].Slot)
	}

	if !hasQuorum(f.Members, 0) {
		return waitAction("fewer than a quorum of the other members are healthy")
	}

	return Action{Type: ActionAddLearner, Reason: "data is lost; returning as a learner"}
}

func decideStaleEntry(f Facts, old Member) Action {
	switch {
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

// hasQuorum says whether the healthy voters are a majority of the voters, both without the member that is to go.
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

// NewBootstrapMarker is the marker of a cluster born on these volumes.
func NewBootstrapMarker(token string, volumes map[string]string) BootstrapMarker {
	return BootstrapMarker{Token: token, Volumes: maps.Clone(volumes)}
}
