// SPDX-License-Identifier: Apache-2.0

package repair_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/repair"
)

// healthyPeers is a control plane of a number of slots. The machine of slot a decides.
func healthyPeers(slots int) repair.PeerObservation {
	o := repair.PeerObservation{Now: start, Self: "i-a", Policy: repair.DefaultPeerPolicy()}
	for n := range slots {
		slot := string(rune('a' + n))
		o.Peers = append(o.Peers, repair.Peer{
			Slot: slot, ID: "i-" + slot, State: repair.Running, Launched: start.Add(-24 * time.Hour), Votes: true,
		})
	}

	return o
}

// breakPeer lets the machine of a slot not work since a time.
func breakPeer(o *repair.PeerObservation, slot int, ago time.Duration) *repair.Peer {
	p := &o.Peers[slot]
	p.Problem = "the kubelet does not answer"
	p.Since = start.Add(-ago)

	return p
}

// describePeers returns a decision as text.
func describePeers(d repair.PeerDecision) string {
	var out []string
	if d.Report != "" {
		out = append(out, "report "+d.Report)
	}

	for _, h := range d.Held {
		out = append(out, "held "+h.Machine+": "+h.Reason)
	}

	return strings.Join(out, ", ")
}

func TestDecidePeer(t *testing.T) {
	type observation = repair.PeerObservation
	for name, tc := range map[string]struct {
		slots  int
		change func(o *observation)
		want   string
	}{
		"all work":                  {3, func(*observation) {}, ""},
		"not for long enough":       {3, func(o *observation) { breakPeer(o, 1, 9*time.Minute) }, ""},
		"its kubelet is dead":       {3, func(o *observation) { breakPeer(o, 1, 10*time.Minute) }, "report i-b"},
		"its member does not vote":  {3, func(o *observation) { breakPeer(o, 1, time.Hour).Votes = false }, "report i-b"},
		"it is the one who decides": {3, func(o *observation) { breakPeer(o, 0, time.Hour) }, ""},
		"it was reported already":   {3, func(o *observation) { breakPeer(o, 1, time.Hour).Reported = true }, ""},
		"no quorum without it":      {3, func(o *observation) { breakPeer(o, 1, time.Hour); o.Peers[2].Votes = false }, "held i-b: only 1 of 3 etcd members work without it: no quorum"},
		"two machines": {
			2, func(o *observation) { breakPeer(o, 1, time.Hour) },
			"held i-b: only 1 of 2 etcd members work without it: no quorum",
		},
		"one machine": {1, func(o *observation) { breakPeer(o, 0, time.Hour) }, ""},
		"two of five": {5, func(o *observation) {
			breakPeer(o, 1, time.Hour).Votes = false
			breakPeer(o, 3, 2*time.Hour).Votes = false
		}, "report i-d, held i-b: machine i-d is replaced first"},
		"one of three is replaced": {
			3, func(o *observation) { breakPeer(o, 1, time.Hour); o.Peers[2].State = repair.Starting },
			"held i-b: slot c is being changed",
		},
		"another one was reported": {
			3, func(o *observation) { breakPeer(o, 1, time.Hour); breakPeer(o, 2, time.Hour).Reported = true },
			"held i-b: slot c is being changed",
		},
		"it has just booted": {
			3, func(o *observation) { breakPeer(o, 1, 15*time.Minute).Launched = start.Add(-19 * time.Minute) },
			"held i-b: machine i-b was launched less than 20m ago",
		},
		"another one has just booted": {
			3, func(o *observation) { breakPeer(o, 1, time.Hour); o.Peers[0].Launched = start.Add(-time.Minute) },
			"held i-b: machine i-a was launched less than 20m ago",
		},
		"it was launched at an unknown time": {
			3, func(o *observation) { breakPeer(o, 1, time.Hour).Launched = time.Time{} },
			"held i-b: EC2 does not list machine i-b",
		},
		"another one was reported a while ago": {3, func(o *observation) {
			breakPeer(o, 1, time.Hour)
			o.LastID = "i-x"
			o.LastAt = start.Add(-29 * time.Minute)
		}, "held i-b: machine i-x was replaced less than 30m ago"},
		"another one was reported long ago": {3, func(o *observation) {
			breakPeer(o, 1, time.Hour)
			o.LastID = "i-x"
			o.LastAt = start.Add(-30 * time.Minute)
		}, "report i-b"},
		"the report was not made": {3, func(o *observation) {
			breakPeer(o, 1, time.Hour)
			o.LastID = "i-b"
			o.LastAt = start.Add(-time.Minute)
		}, "report i-b"},
		"a rollout":   {3, func(o *observation) { breakPeer(o, 1, time.Hour); o.Busy = "a rolling update" }, "held i-b: a rolling update"},
		"in standby":  {3, func(o *observation) { breakPeer(o, 1, time.Hour).State = repair.Leaving }, "held i-b: its Auto Scaling group has not exactly one machine in service"},
		"no machine":  {3, func(o *observation) { breakPeer(o, 1, time.Hour).ID = "" }, "held of slot b: its Auto Scaling group has not exactly one machine in service"},
		"is disabled": {3, func(o *observation) { breakPeer(o, 1, time.Hour); o.Policy.Disabled = true }, ""},
		"an hour of patience": {
			3, func(o *observation) { breakPeer(o, 1, 59*time.Minute); o.Policy.NotReadyFor = time.Hour }, "",
		},
		"an hour of age": {
			3, func(o *observation) {
				breakPeer(o, 1, time.Hour).Launched = start.Add(-59 * time.Minute)
				o.Policy.MinMachineAge = time.Hour
			}, "held i-b: machine i-b was launched less than 60m ago",
		},
		"short times": {3, func(o *observation) {
			breakPeer(o, 1, 2*time.Minute).Launched = start.Add(-5 * time.Minute)
			o.Policy = repair.PeerPolicy{NotReadyFor: repair.MinPeerPatience, MinMachineAge: repair.MinPeerAge}
		}, "report i-b"},
		"is suspended": {3, func(o *observation) { breakPeer(o, 1, time.Hour).Suspended = true }, "held i-b: its Auto Scaling group has suspended ReplaceUnhealthy"},
	} {
		o := healthyPeers(tc.slots)
		tc.change(&o)
		if diff := cmp.Diff(tc.want, describePeers(repair.DecidePeer(o))); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// TestPeerPolicy: a policy survives its text, and an unsafe or unreadable one is refused.
func TestPeerPolicy(t *testing.T) {
	for _, p := range []repair.PeerPolicy{
		{Disabled: true},
		repair.DefaultPeerPolicy(),
		{NotReadyFor: repair.MinPeerPatience, MinMachineAge: repair.MinPeerAge},
	} {
		if got, err := repair.ParsePeerPolicy(p.String()); err != nil || got != p {
			t.Errorf("%q: %+v %v", p, got, err)
		}
	}

	if got, err := repair.ParsePeerPolicy(""); err != nil || got != repair.DefaultPeerPolicy() {
		t.Errorf("no tag: %+v %v", got, err)
	}

	for _, text := range []string{"10m", "10m 20%", "1m 20m", "10m 4m", "on", "10m0s 20m0s 30m0s"} {
		if p, err := repair.ParsePeerPolicy(text); err == nil {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// TestStricterPolicy: while groups have different policies, no machine is replaced that one of them would keep.
func TestStricterPolicy(t *testing.T) {
	p := repair.PeerPolicy{NotReadyFor: time.Hour, MinMachineAge: repair.MinPeerAge}
	q := repair.PeerPolicy{Disabled: true, NotReadyFor: repair.MinPeerPatience, MinMachineAge: 2 * time.Hour}
	want := repair.PeerPolicy{Disabled: true, NotReadyFor: time.Hour, MinMachineAge: 2 * time.Hour}
	if p.Stricter(q) != want || q.Stricter(p) != want {
		t.Errorf("%+v and %+v", p.Stricter(q), q.Stricter(p))
	}
}

// TestPeersKeepQuorum: whatever is broken, a control plane has a quorum of members that work without the machine that is
// reported, the machine is not that which decides, and after a report no other one follows for a while.
func TestPeersKeepQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := healthyPeers(rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(t, "slots"))
		o.Policy.NotReadyFor = time.Duration(rapid.IntRange(2, 15).Draw(t, "patience")) * time.Minute
		o.Policy.MinMachineAge = time.Duration(rapid.IntRange(5, 30).Draw(t, "least age")) * time.Minute
		for n := range o.Peers {
			p := &o.Peers[n]
			p.Votes = rapid.Bool().Draw(t, "votes")
			// One fault in ten: with more, hardly any control plane would be one in which a machine may be reported.
			p.Reported = rapid.IntRange(0, 9).Draw(t, "reported") == 9
			if rapid.IntRange(0, 9).Draw(t, "leaving") == 9 {
				p.State = repair.Leaving
			}

			if rapid.IntRange(0, 9).Draw(t, "young") == 9 {
				p.Launched = start.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "age")) * time.Minute)
			}

			if rapid.Bool().Draw(t, "broken") {
				breakPeer(&o, n, time.Duration(rapid.IntRange(0, 30).Draw(t, "minutes"))*time.Minute)
			}
		}

		d := repair.DecidePeer(o)
		if d.Report == "" {
			return
		}

		votes := 0
		for _, p := range o.Peers {
			switch {
			case p.ID == d.Report && (p.Problem == "" || p.Reported || start.Sub(p.Since) < o.Policy.NotReadyFor):
				t.Fatalf("reports machine %+v", p)
			case p.ID != d.Report && p.Votes:
				votes++
			}

			if p.State != repair.Running || p.Reported || start.Sub(p.Launched) < o.Policy.MinMachineAge {
				t.Fatalf("reports %s while slot %s changes", d.Report, p.Slot)
			}
		}

		if 2*votes <= len(o.Peers) || d.Report == o.Self {
			t.Fatalf("reports %s of %+v", d.Report, o.Peers)
		}

		o.LastID = d.Report
		o.LastAt = start
		o.Now = start.Add(time.Duration(rapid.IntRange(0, 29).Draw(t, "later")) * time.Minute)
		if next := repair.DecidePeer(o); next.Report != "" && next.Report != d.Report {
			t.Fatalf("reports %s after %s", next.Report, d.Report)
		}
	})
}
