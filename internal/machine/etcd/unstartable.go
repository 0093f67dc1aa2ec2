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
// A voter's data is set aside, once: it joins again as a learner, and a learner that ends too has another problem. The others
// must have a quorum without it and the same data, which it will copy.
func DecideUnstartable(f MaintenanceFacts, e Exits, others Comparison) Maintenance {
	own := f.own()

	switch {
	case own == nil || own.Healthy || own.Learner:
		return maintainNothing("slot %s has no voter that fails", f.Slot)
	case e.Count < UnstartableExits || f.Now.Sub(e.Since) < UnstartableTime:
		return maintainNothing("etcd has ended %d times since it answered last", e.Count)
	case !hasQuorum(membersOf(f.Members), own.ID) || !f.hasQuorumOf(len(f.Slots)):
		return maintainNothing("etcd ends at each start; the other members are not all healthy")
	case !others.Equal:
		return maintainNothing("etcd ends at each start; %s", others.Problem)
	case !f.hasRoomToRejoin():
		return Maintenance{
			Type: MaintainBlocked,
			Reason: "etcd ends at each start, and its volume has no space to keep its data and to copy that of the others: " +
				roomHint(f.rejoinBytes()),
		}
	}

	return Maintenance{
		Type:   MaintainStepAside,
		Reason: fmt.Sprintf("etcd ended %d times since it answered last: it rejects its data", e.Count),
		Bytes:  f.rejoinBytes(),
	}
}

// hasQuorumOf reports whether the healthy voters are a majority of so many slots.
func (f MaintenanceFacts) hasQuorumOf(slots int) bool {
	healthy := 0
	for _, m := range f.Members {
		if m.Healthy && !m.Learner {
			healthy++
		}
	}

	return healthy*2 > slots
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
