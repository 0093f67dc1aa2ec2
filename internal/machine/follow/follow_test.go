// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

func TestDecideRevision(t *testing.T) {
	fresh := follow.State{Instance: "i-1", Boot: "boot"}
	at := func(serial int64, document string, former ...string) node.Revision {
		return node.Revision{Serial: serial, Document: document, Former: former}
	}
	followed := fresh.Commit(at(5, "five"), "five", nil)
	refused := followed.Refuse(at(6, "six"), "kubelet: does not work")
	tried := followed.Begin(at(6, "six"), nil).Begin(at(6, "six"), nil).Begin(at(6, "six"), nil)
	begun := followed.CommitFirst(at(6, "six"), "five and a part of six")
	for name, c := range map[string]struct {
		state   follow.State
		current node.Revision
		want    follow.Step
		reason  string
	}{
		"new machine, document of its boot":   {fresh, at(3, "boot"), follow.StepRecord, ""},
		"new machine, older document":         {fresh, at(3, "three", "boot"), follow.StepApply, ""},
		"new machine, newer document":         {fresh, at(3, "three", "two"), follow.StepIgnore, "does not know"},
		"followed":                            {followed, at(5, "five", "boot"), follow.StepNothing, ""},
		"next":                                {followed, at(6, "six", "boot", "five"), follow.StepApply, ""},
		"back to the first":                   {followed, at(6, "boot", "five"), follow.StepApply, ""},
		"replayed":                            {followed, at(4, "boot", "five"), follow.StepIgnore, "older than"},
		"other history":                       {followed, at(6, "six", "boot"), follow.StepIgnore, "does not know"},
		"refused":                             {refused, at(6, "six", "five"), follow.StepIgnore, "does not work"},
		"after a refused one":                 {refused, at(7, "seven", "six", "five"), follow.StepApply, ""},
		"after a refused one, as before":      {refused, at(7, "five", "six"), follow.StepRecord, ""},
		"the rest of one that has begun":      {begun, at(6, "six", "five"), follow.StepApply, ""},
		"back from one that has begun":        {begun, at(7, "five", "six"), follow.StepApply, ""},
		"an older store":                      {begun, at(5, "five", "boot"), follow.StepApply, ""},
		"after one that had begun":            {begun.Commit(at(6, "six"), "six", nil), at(6, "six", "five"), follow.StepNothing, ""},
		"killed once":                         {followed.Begin(at(6, "six"), nil), at(6, "six", "five"), follow.StepApply, ""},
		"killed three times":                  {tried, at(6, "six", "five"), follow.StepRefuse, "stopped 3 times"},
		"killed three times, then a next one": {tried, at(7, "seven", "five"), follow.StepApply, ""},
	} {
		step, reason := c.state.Decide(c.current)
		if step != c.want || !strings.Contains(reason, c.reason) || (reason == "") != (c.reason == "") {
			t.Errorf("%s: %s %q, want %s %q", name, step, reason, c.want, c.reason)
		}
	}
}

func TestStateOfAnotherInstance(t *testing.T) {
	s := follow.State{Instance: "i-1", Boot: "boot"}
	if !s.IsOf("i-1", "boot") || s.IsOf("i-2", "boot") || s.IsOf("i-1", "other") {
		t.Error("a state from an image of another machine is used")
	}
}

// TestLock: with random machines that claim, crash, and end their turns, never are two machines changed at the same
// time before one of the group has proven the revision, and none after one has refused it.
func TestLock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var lock follow.Lock
		now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
		parallel := rapid.Bool().Draw(t, "parallel")
		machines := []string{"i-1", "i-2", "i-3"}
		changing := map[string]time.Time{} // machine to the end of its turn
		proven := false
		refused := false
		claim := func(machine string) follow.Claim {
			return follow.Claim{Machine: machine, Group: "nodes", Serial: 1, Document: "document", InParallel: parallel}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			machine := rapid.SampledFrom(machines).Draw(t, "machine")
			_, busy := changing[machine]
			switch rapid.SampledFrom([]string{"claim", "end", "fail", "crash", "wait"}).Draw(t, "step") {
			case "claim":
				turn, _ := lock.Decide(claim(machine), now)
				if busy {
					continue
				}
				if (turn == follow.TurnTake || turn == follow.TurnFree) && refused {
					t.Fatal("a refused revision is applied")
				}
				if turn == follow.TurnFree && !proven {
					t.Fatal("a revision that nobody has proven is applied without a turn")
				}
				if turn == follow.TurnFree {
					lock = lock.Join(claim(machine), now)
					changing[machine] = now // others may go ahead at any time
				}
				if turn == follow.TurnTake {
					for other, until := range changing {
						if now.Before(until) {
							t.Fatalf("%s takes the turn of %s", machine, other)
						}
					}
					lock = lock.Take(claim(machine), now)
					changing[machine] = lock.Until
				}
			case "end", "fail":
				if !busy || !lock.Holds(machine) {
					continue
				}
				delete(changing, machine)
				if rapid.Bool().Draw(t, "fails") {
					refused = true
					lock = lock.Release(claim(machine), "does not work")
				} else {
					proven = true
					lock = lock.Release(claim(machine), "")
				}
			case "crash":
				delete(changing, machine)
			case "wait":
				now = now.Add(follow.HoldTime / 2)
			}
		}
	})
}

func TestLockDecide(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	claim := follow.Claim{Machine: "i-1", Group: "nodes", Serial: 2, Document: "abc", InParallel: true}
	other := follow.Claim{Machine: "i-2", Group: "nodes", Serial: 2, Document: "abc"}
	next := other
	next.Serial = 3
	held := follow.Lock{}.Take(other, now)
	for name, c := range map[string]struct {
		lock follow.Lock
		now  time.Time
		want follow.Turn
	}{
		"nobody's":                 {follow.Lock{}, now, follow.TurnTake},
		"another's":                {held, now, follow.TurnWait},
		"another's, expired":       {held, now.Add(follow.HoldTime), follow.TurnTake},
		"own, after a restart":     {follow.Lock{}.Take(claim, now), now, follow.TurnTake},
		"proven":                   {held.Release(other, ""), now, follow.TurnFree},
		"proven, held again":       {held.Release(other, "").Take(other, now), now, follow.TurnFree},
		"another revision proven":  {held.Release(next, ""), now, follow.TurnTake},
		"proven, many at work":     {withParallel(held.Release(other, ""), now, follow.MaxParallel), now, follow.TurnWait},
		"proven, many were":        {withParallel(held.Release(other, ""), now, follow.MaxParallel), now.Add(follow.HoldTime), follow.TurnFree},
		"refused":                  {held.Release(other, "broken"), now, follow.TurnRefused},
		"another revision refused": {held.Release(next, "broken"), now, follow.TurnTake},
	} {
		if turn, reason := c.lock.Decide(claim, c.now); turn != c.want {
			t.Errorf("%s: %s %q, want %s", name, turn, reason, c.want)
		}
	}
	if turn, reason := held.Release(other, "broken").Decide(claim, now); turn != follow.TurnRefused || reason != "refused by machine i-2: broken" {
		t.Errorf("%s %q", turn, reason)
	}
}

// withParallel returns a lock with machines that change at the same time.
func withParallel(l follow.Lock, now time.Time, n int) follow.Lock {
	for i := range n {
		l = l.Join(follow.Claim{Machine: fmt.Sprintf("i-1%02d", i)}, now)
	}
	return l
}

// TestLockPlaces: a machine renews and releases its own place only, and an expired place is dropped.
func TestLockPlaces(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	claim := follow.Claim{Machine: "i-1", Group: "nodes", Serial: 2, Document: "abc"}
	other := follow.Claim{Machine: "i-2", Group: "nodes", Serial: 2, Document: "abc"}
	l := follow.Lock{}.Join(claim, now).Take(other, now)
	if !l.Holds("i-1") || !l.Holds("i-2") || l.Holds("i-3") {
		t.Errorf("held by the wrong machines: %+v", l)
	}
	if l.Renew(follow.Claim{Machine: "i-3"}, now).Holds("i-3") {
		t.Error("a machine that had lost its turn took it by renewing it")
	}
	if dropped := l.Drop("i-1"); dropped.Holds("i-1") || !dropped.Holds("i-2") || len(dropped.Proven)+len(dropped.Refused) != 0 {
		t.Errorf("after the first ended: %+v", dropped)
	}
	if later := l.Join(follow.Claim{Machine: "i-4"}, now.Add(2*follow.HoldTime)); later.Parallel["i-4"].IsZero() || len(later.Parallel) != 1 {
		t.Errorf("expired places are kept: %+v", later)
	}
	if !l.Holds("i-1") {
		t.Error("the lock was changed in place")
	}
	if r := l.Release(claim, "broken"); r.Refused["nodes"] == "" || r.Holder != "i-2" {
		t.Errorf("a refusal of a machine that is not the first is lost: %+v", r)
	}
}
