// SPDX-License-Identifier: Apache-2.0

package etcd

import "testing"

func TestChooseSuccessor(t *testing.T) {
	own := Member{ID: 1, Slot: "a", Healthy: true}
	for name, c := range map[string]struct {
		members []Member
		want    uint64
	}{
		"alone":            {[]Member{own}, 0},
		"nobody answers":   {nil, 0},
		"another":          {[]Member{own, {ID: 2, Slot: "b", Healthy: true}}, 2},
		"a healthy one":    {[]Member{own, {ID: 2, Slot: "b"}, {ID: 3, Slot: "c", Healthy: true}}, 3},
		"no learner":       {[]Member{own, {ID: 2, Slot: "b", Healthy: true, Learner: true}}, 0},
		"the next slot":    {[]Member{{ID: 1, Slot: "0", Healthy: true}, own, {ID: 2, Slot: "b", Healthy: true}}, 2},
		"after the last":   {[]Member{{ID: 3, Slot: "B", Healthy: true}, {ID: 1, Slot: "0", Healthy: true}, own}, 1},
		"an unknown voter": {[]Member{own, {ID: 9, Healthy: true}}, 0},
	} {
		if got, ok := chooseSuccessor(c.members, "a"); got != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %d, %v; want %d", name, got, ok, c.want)
		}
	}
}
