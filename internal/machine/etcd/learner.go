// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"slices"
	"time"
)

const (
	// LearnerSilence is for how long a learner must not have answered before it counts as stuck: the next machine of its
	// slot has started long before.
	LearnerSilence = 10 * time.Minute
	// LearnerStall is for how long a learner that answers must have copied nothing. It reports nothing new while it receives
	// the database, of 8 GiB at most.
	LearnerStall = 30 * time.Minute
	// LearnerLimit is for how long a learner may copy without being promoted.
	LearnerLimit = 2 * time.Hour
	// learnerGap is the longest time between two looks at a learner that belong together. After a longer one, the agent has
	// been paused or another one has been the leader's, and the times begin again.
	learnerGap = time.Minute
)

// LearnerWatch is what the agent of the leader has seen of the learner so far. Its zero value has seen none.
type LearnerWatch struct {
	// id of the learner; 0: there was none.
	id uint64
	// first, answered and advanced are when the learner was seen first, has answered last, and has had newer data last.
	first, answered, advanced time.Time
	// looked is when the agent has looked last.
	looked time.Time
	// revision of the learner's data.
	revision int64
}

// Observe returns the watch after another look at the members. It is a pure function.
func (w LearnerWatch) Observe(members []MemberState, now time.Time) LearnerWatch {
	at := slices.IndexFunc(members, func(m MemberState) bool { return m.Learner && m.Slot != "" })
	if at < 0 {
		return LearnerWatch{}
	}

	m := members[at]
	if w.id != m.ID || now.Before(w.looked) || now.Sub(w.looked) > learnerGap {
		w = LearnerWatch{id: m.ID, first: now, answered: now, advanced: now, revision: m.Revision}
	}

	if m.Revision > 0 {
		w.answered = now
	}

	if m.Revision > w.revision {
		w.revision = m.Revision
		w.advanced = now
	}

	w.looked = now

	return w
}

// problem returns why the learner counts as stuck, or "".
func (w LearnerWatch) problem() string {
	switch {
	case w.looked.Sub(w.answered) >= LearnerSilence:
		return fmt.Sprintf("has not answered for %s", w.looked.Sub(w.answered))
	case w.looked.Sub(w.advanced) >= LearnerStall:
		return fmt.Sprintf("has copied nothing for %s", w.looked.Sub(w.advanced))
	case w.looked.Sub(w.first) >= LearnerLimit:
		return fmt.Sprintf("was not promoted for %s", w.looked.Sub(w.first))
	}

	return ""
}

// DecideLearner returns whether the agent of the leader removes the learner, of which w was observed until now, because it is
// stuck and keeps the member of another slot from joining: etcd has one learner at a time. Its slot joins again when its
// machine works. It is a pure function.
//
// The slot of the learner may have left the control plane: [DecideResize] removes it earlier then, but only if the leader stays.
//
// A learner is promoted by its own machine, at any time. The voters without it must be a quorum, so that its removal does no
// harm even if it has become a voter since it was seen: it sets its data aside and joins again.
func DecideLearner(f ResizeFacts, w LearnerWatch) Resize {
	leads := slices.ContainsFunc(f.Members, func(m MemberState) bool { return m.Leader && m.Slot == f.Slot && !m.Learner })
	at := slices.IndexFunc(f.Members, func(m MemberState) bool { return m.Learner && m.ID == w.id })
	if !leads || at < 0 {
		return Resize{Type: ResizeNothing}
	}

	waiting := f.without()
	problem := w.problem()

	switch {
	case waiting == "" || problem == "":
		return Resize{Type: ResizeNothing}
	case !hasQuorum(membersOf(f.Members), 0):
		return waitToResize("the learner of slot %s %s; fewer than a quorum of the members are healthy", f.Members[at].Slot, problem)
	}

	return Resize{
		Type:     ResizeRemove,
		MemberID: w.id,
		Reason:   fmt.Sprintf("the learner of slot %s %s, and slot %s waits to join", f.Members[at].Slot, problem, waiting),
	}
}

// without returns the first slot of the control plane that has no member, or "".
func (f ResizeFacts) without() string {
	for _, slot := range f.Slots {
		if !slices.ContainsFunc(f.Members, func(m MemberState) bool { return m.Slot == slot }) {
			return slot
		}
	}

	return ""
}
