// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
)

// Comparison says whether a member without data may copy the data of the others. A learner copies what the leader has, and
// the leader may be the one whose data is damaged.
type Comparison struct {
	// Equal is set if the leader has the data of a majority, no member that answers has other data, and no alarm CORRUPT
	// is raised.
	Equal bool
	// Problem says why Equal is not set.
	Problem string
}

func unequal(format string, args ...any) Comparison {
	return Comparison{Problem: fmt.Sprintf(format, args...)}
}

// CompareMembers compares the hashes of a survey. It is a pure function. Learners do not count: they have what the leader
// has. A member that does not answer, perhaps because etcd rejected its data at its start, does not count either, as long as
// the others are a majority.
func CompareMembers(s Survey) Comparison {
	if slices.ContainsFunc(s.Alarms, func(a Alarm) bool { return a.Type == AlarmCorrupt }) {
		return unequal("alarm CORRUPT is raised: no member joins until the others have the same data")
	}

	at := slices.IndexFunc(s.Members, func(m MemberState) bool { return m.Leader && !m.Learner })
	if at < 0 || !s.Members[at].Hash.Known {
		return unequal("the leader's data cannot be compared with that of the others yet")
	}

	leader := s.Members[at]
	voters := 0
	agreeing := 0
	for _, m := range s.Members {
		if m.Learner {
			continue
		}

		voters++

		switch {
		case !m.Hash.isComparable(leader.Hash):
		case m.Hash.Hash == leader.Hash.Hash:
			agreeing++
		default:
			return unequal("the data of etcd-%s differs from that of the leader, etcd-%s: no member joins until one of them has "+
				"set its data aside; if this does not end, restore a backup with: slipway etcd restore", m.Slot, leader.Slot)
		}
	}

	if agreeing*2 <= voters {
		return unequal("the data of %d of %d members can be compared; a majority is needed before a member copies it",
			agreeing, voters)
	}

	return Comparison{Equal: true}
}

// NeedsComparison reports whether the next step may let this member copy the data of the others.
func (f Facts) NeedsComparison() bool {
	if f.HasData || len(f.Members) == 0 {
		return false
	}

	i := slices.IndexFunc(f.Members, func(m Member) bool { return m.Slot == f.Slot })

	return i < 0 || f.Members[i].Learner && f.Members[i].Name == ""
}

// Compare compares the data of the members of a cluster that has a quorum without the member of slot self.
func (m Manager) Compare(ctx context.Context, self string) Comparison {
	survey, err := m.SurveyOthers(ctx, self)
	if err != nil {
		return unequal("%v, so that its data could be compared", err)
	}

	return CompareMembers(survey)
}
