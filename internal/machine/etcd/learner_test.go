// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// looked is one look at the members after some time, with the revision that learners have reported; 0: they do not answer.
type looked struct {
	after    time.Duration
	members  string
	revision int64
}

// watch returns the facts and the watch of slot a after looks, each as often as it takes from the one before at intervals of
// 10 seconds.
func watch(slots string, looks ...looked) (etcd.ResizeFacts, etcd.LearnerWatch) {
	f := etcd.ResizeFacts{Slot: "a", Slots: strings.Fields(slots)}
	now := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	var w etcd.LearnerWatch
	for _, l := range looks {
		f.Members = sized(l.members)
		for i := range f.Members {
			if f.Members[i].Learner {
				f.Members[i].Revision = l.revision
			}
		}
		for range l.after / (10 * time.Second) {
			now = now.Add(10 * time.Second)
			w = w.Observe(f.Members, now)
		}
	}
	return f, w
}

func TestDecideLearner(t *testing.T) {
	const silence = etcd.LearnerSilence
	const long = 10 * time.Second
	advancing := make([]looked, 0, 800)
	for n := range cap(advancing) {
		advancing = append(advancing, looked{long, "A b?", int64(n + 1)})
	}
	for name, c := range map[string]struct {
		slots   string
		looks   []looked
		removes string
		reason  string
	}{
		"no learner":            {slots: "a b c", looks: []looked{{silence * 2, "A b", 0}}},
		"silent":                {slots: "a b c", looks: []looked{{silence + long, "A b?", 0}}, removes: "b", reason: "slot b has not answered for 10m0s, and slot c waits"},
		"silent, not for long":  {slots: "a b c", looks: []looked{{silence, "A b?", 0}}},
		"nobody waits":          {slots: "a b", looks: []looked{{silence * 2, "A b?", 0}}},
		"another leads":         {slots: "a b c d", looks: []looked{{silence * 2, "a b? C", 0}}},
		"leaves":                {slots: "a c", looks: []looked{{silence + long, "A b?", 0}}, removes: "b"},
		"leaves with leader":    {slots: "c", looks: []looked{{silence + long, "A b?", 0}}, removes: "b", reason: "slot c waits"},
		"leaves, nobody waits":  {slots: "a", looks: []looked{{silence + long, "A b?", 0}}},
		"no quorum":             {slots: "a b c d e", looks: []looked{{silence * 2, "A b? c! d!", 0}}, reason: "fewer than a quorum"},
		"answered meanwhile":    {slots: "a b c", looks: []looked{{silence, "A b?", 0}, {long, "A b?", 5}, {silence - long, "A b?", 0}}},
		"silent again":          {slots: "a b c", looks: []looked{{silence, "A b?", 0}, {long, "A b?", 5}, {silence, "A b?", 0}}, removes: "b"},
		"another learner":       {slots: "a b c d", looks: []looked{{silence, "A b?", 0}, {silence, "A c?", 0}}},
		"was away":              {slots: "a b c", looks: []looked{{silence, "A b?", 0}, {long, "A", 0}, {silence, "A b?", 0}}},
		"promoted":              {slots: "a b c", looks: []looked{{silence + long, "A b?", 0}, {long, "A b", 0}}},
		"receives the database": {slots: "a b c", looks: []looked{{etcd.LearnerStall, "A b?", 1}}},
		"copies nothing":        {slots: "a b c", looks: []looked{{etcd.LearnerStall + long, "A b?", 1}}, removes: "b", reason: "copied nothing for 30m0s"},
		"copies":                {slots: "a b c", looks: advancing[:700]},
		"copies for ever":       {slots: "a b c", looks: advancing, removes: "b", reason: "was not promoted for 2h"},
	} {
		t.Run(name, func(t *testing.T) {
			f, w := watch(c.slots, c.looks...)
			got := etcd.DecideLearner(f, w)
			id := uint64(0)
			if c.removes != "" {
				id = uint64(c.removes[0])
			}
			if got.MemberID != id || (got.Type == etcd.ResizeRemove) != (c.removes != "") || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %+v, want %q removed: %s", got, c.removes, c.reason)
			}
		})
	}
}

// TestLearnerOfPausedAgent: time in which the agent did not look says nothing about the learner.
func TestLearnerOfPausedAgent(t *testing.T) {
	f, w := watch("a b c", looked{time.Minute, "A b?", 0})
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	if got := etcd.DecideLearner(f, w.Observe(f.Members, now)); got.Type != etcd.ResizeNothing {
		t.Errorf("after a pause: %+v", got)
	}
	earlier := now.Add(-24 * time.Hour)
	if got := etcd.DecideLearner(f, w.Observe(f.Members, earlier)); got.Type != etcd.ResizeNothing {
		t.Errorf("after the clock was set back: %+v", got)
	}
}
