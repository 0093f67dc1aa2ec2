// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// UnstartableExits is how often a member's process must have ended since the member answered last before its data counts
	// as unusable.
	UnstartableExits = 6
	// UnstartableTime is for how long it must not have answered. systemd starts it 2 s after it has ended.
	UnstartableTime = time.Minute
	// LearnerAsideDir has the data of a learner that was set aside because its etcd ended at each start, until the member is promoted.
	LearnerAsideDir = DataMount + "/learner"
)

// Exits says how often the process of a member that does not answer has ended.
type Exits struct {
	// Count of the ends since the member answered last.
	Count int
	// Since when the member has not answered.
	Since time.Time
}

// DecideUnstartable decides for a member whose etcd ends at each start: it rejects its data, as after a damaged log, or
// after its volume has lost a write. The survey of f is the one of another member. It is a pure function.
//
// The data is set aside, and the member joins again as a learner. A learner's is set aside once until it is promoted, as after a power
// failure during its copy: if its etcd ends again, it has another problem. The others must have a quorum without the member, also if it is
// promoted at this moment, and the same data, which it will copy.
func DecideUnstartable(f MaintenanceFacts, e Exits, others Comparison) Maintenance {
	own := f.own()

	switch {
	case own == nil || own.Healthy:
		return maintainNothing("slot %s has no member that fails", f.Slot)
	case e.Count < UnstartableExits || f.Now.Sub(e.Since) < UnstartableTime:
		return maintainNothing("etcd has ended %d times since it answered last", e.Count)
	case !f.canLose(*own):
		return maintainNothing("etcd ends at each start; the other members are not all healthy")
	case !others.Equal:
		return maintainNothing("etcd ends at each start; %s", others.Problem)
	case own.Learner && f.CopiedAgain:
		return Maintenance{
			Type: MaintainBlocked,
			Reason: "etcd ends at each start although this member has copied the data of the others once more: read its log (journalctl -u etcd); " +
				"to let it copy them again, delete " + LearnerAsideDir,
		}

	case !f.hasRoomToRejoin():
		return Maintenance{
			Type: MaintainBlocked,
			Reason: "etcd ends at each start, and its volume has no space to keep its data and to copy that of the others: " +
				roomHint(f.rejoinBytes()),
		}
	}

	return Maintenance{
		Type:    MaintainStepAside,
		Reason:  fmt.Sprintf("etcd ended %d times since it answered last: it rejects its data", e.Count),
		Bytes:   f.rejoinBytes(),
		Learner: own.Learner,
	}
}

// canLose reports whether the other members are a quorum although the own one, which does not answer, loses its data. A learner may be
// promoted at this moment, and counts as a voter then.
func (f MaintenanceFacts) canLose(own MemberState) bool {
	if own.Learner {
		return f.hasQuorumOf(f.voters() + 1)
	}

	return hasQuorum(membersOf(f.Members), own.ID) && f.hasQuorumOf(len(f.Slots))
}

// hasQuorumOf reports whether the healthy voters are a majority of so many members.
func (f MaintenanceFacts) hasQuorumOf(members int) bool {
	healthy := 0
	for _, m := range f.Members {
		if m.Healthy && !m.Learner {
			healthy++
		}
	}

	return healthy*2 > members
}

// SurveyOthers surveys the cluster through another member than that of slot self, with the hashes of the data.
func (m Manager) SurveyOthers(ctx context.Context, self string) (Survey, error) {
	for _, peer := range m.Peers {
		if peer.Slot == self {
			continue
		}

		if survey, err := m.surveyVia(ctx, peer.ClientURL, true); err == nil {
			return survey, nil
		}
	}

	return Survey{}, errors.New("no other etcd member answers")
}
