// SPDX-License-Identifier: Apache-2.0

package etcd

import "testing"

// TestCommonRevision: learners, and members that do not answer or are behind, do not prevent a comparison.
func TestCommonRevision(t *testing.T) {
	three := make([]MemberState, 3)
	learner := append(make([]MemberState, 3), MemberState{Member: Member{Learner: true}})
	for name, c := range map[string]struct {
		members   []MemberState
		revisions []int64
		want      int64
	}{
		"all":                   {three, []int64{10, 12, 11}, 11},
		"one is far behind":     {three, []int64{5, 100, 101}, 100},
		"one does not answer":   {three, []int64{100, 0, 101}, 100},
		"one alone":             {three, []int64{100, 0, 0}, 0},
		"a learner catches up":  {learner, []int64{100, 100, 100, 1}, 100},
		"the only member":       {three[:1], []int64{7}, 7},
		"two, one is behind":    {three[:2], []int64{7, 9}, 7},
		"nobody answers":        {three, []int64{0, 0, 0}, 0},
		"five, two are silent":  {make([]MemberState, 5), []int64{0, 9, 8, 7, 0}, 7},
		"five, three are ahead": {make([]MemberState, 5), []int64{1, 9, 8, 7, 2}, 7},
	} {
		if got := commonRevision(c.members, c.revisions); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
