// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"fmt"
	"slices"
)

// ResizeType is what the leader's agent does for a control plane that has become smaller. Members of new slots add themselves,
// see [Decide].
type ResizeType string

// The types of steps.
const (
	// ResizeNothing does nothing: no member has to leave, or another machine decides.
	ResizeNothing ResizeType = "nothing"
	// ResizeWait does nothing yet; Resize.Reason tells what it waits for.
	ResizeWait ResizeType = "wait"
	// ResizeRemove removes the member Resize.MemberID.
	ResizeRemove ResizeType = "remove"
)

// ResizeFacts is the complete input of a decision about the size.
type ResizeFacts struct {
	// Slot of this machine.
	Slot string
	// Slots that the control plane is to have, by the current node document.
	Slots []string
	// Members are all entries of the membership list, with the slots that leave too.
	Members []MemberState
	// Serving are the slots whose API server still accepts connections from other machines.
	Serving []string
}

// Resize is the next step, and the reason for it.
type Resize struct {
	// Type of the step.
	Type ResizeType
	// Reason of the decision, for the operator.
	Reason string
	// MemberID is the member to remove. Set for ResizeRemove only.
	MemberID uint64
}

func waitToResize(format string, args ...any) Resize {
	return Resize{Type: ResizeWait, Reason: fmt.Sprintf(format, args...)}
}

// DecideResize returns the next step of the agent of one machine. It is a pure function. Only the leader's agent removes
// members, one at a time, and a voter only while every slot that stays has a healthy voter. It never removes its own member:
// the agent of a machine that leaves gives the leadership to a member that stays.
func DecideResize(f ResizeFacts) Resize {
	leaving := f.leaving()
	at := slices.IndexFunc(f.Members, func(m MemberState) bool { return m.Leader && m.Slot == f.Slot && !m.Learner })
	if at < 0 || len(leaving) == 0 || !slices.Contains(f.Slots, f.Slot) {
		return Resize{Type: ResizeNothing}
	}

	for _, m := range leaving {
		if m.Learner { // it has no vote
			return Resize{
				Type:     ResizeRemove,
				MemberID: m.ID,
				Reason:   "slot " + m.Slot + " is not in the control plane any more; it was a learner",
			}
		}
	}

	if reason := f.notWhole(); reason != "" {
		return waitToResize("%s: members leave only while all that stay work", reason)
	}

	next := leaving[0]
	if slices.Contains(f.Serving, next.Slot) {
		return waitToResize("the API server of slot %s still serves", next.Slot)
	}

	if !hasQuorum(membersOf(f.Members), next.ID) {
		return waitToResize("removing the member of slot %s would lose the quorum", next.Slot)
	}

	return Resize{
		Type:     ResizeRemove,
		MemberID: next.ID,
		Reason:   "slot " + next.Slot + " is not in the control plane any more",
	}
}

// leaving returns the members whose slot is not in the control plane any more: those that do not answer first, since they
// count for the quorum without helping, then the last ones.
func (f ResizeFacts) leaving() []MemberState {
	out := slices.DeleteFunc(slices.Clone(f.Members), func(m MemberState) bool {
		return m.Slot == "" || slices.Contains(f.Slots, m.Slot)
	})

	slices.SortFunc(out, func(a, b MemberState) int {
		if a.Healthy != b.Healthy {
			return boolRank(a.Healthy) - boolRank(b.Healthy)
		}

		return cmp.Compare(b.Slot, a.Slot)
	})

	return out
}

func boolRank(b bool) int {
	if b {
		return 1
	}

	return 0
}

// notWhole returns why the slots that stay have not all a healthy voter, or "".
func (f ResizeFacts) notWhole() string {
	for _, slot := range f.Slots {
		at := slices.IndexFunc(f.Members, func(m MemberState) bool { return m.Slot == slot })
		switch {
		case at < 0:
			return "etcd has no member of slot " + slot
		case f.Members[at].Learner:
			return "the member of slot " + slot + " has not caught up yet"
		case !f.Members[at].Healthy:
			return "the member of slot " + slot + " does not answer"
		}
	}

	return ""
}

// Absent returns the possible slots that are not in the control plane and have no member.
func (f ResizeFacts) Absent(possible []string) []string {
	var out []string
	for _, slot := range possible {
		isMember := slices.ContainsFunc(f.Members, func(m MemberState) bool { return m.Slot == slot })
		if !isMember && !slices.Contains(f.Slots, slot) {
			out = append(out, slot)
		}
	}

	return out
}

// WasRemoved reports whether the data of a slot is of a member that was removed: the members of a healthy peer do not have it.
// It never works again; the slot joins anew.
func WasRemoved(members []Member, slot string) bool {
	return len(members) > 0 && !slices.ContainsFunc(members, func(m Member) bool { return m.Slot == slot })
}
