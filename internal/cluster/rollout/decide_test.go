// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func serving(id, group, slot, version string) rollout.Machine {
	member := rollout.MemberUnknown
	if slot != "" {
		member = rollout.MemberHealthy
	}

	return rollout.Machine{
		ID: id, Group: group, Slot: slot, NodeName: id, State: rollout.StateRunning,
		Launched: now.Add(-time.Hour), ReadySince: now.Add(-time.Hour), Version: version, NodeReady: true, Member: member,
		Marked: slot == "" && version != "2",
	}
}

func with(m rollout.Machine, change func(*rollout.Machine)) rollout.Machine {
	change(&m)
	return m
}

func controlPlane(machines ...rollout.Machine) rollout.Observation {
	o := rollout.Observation{Now: now, APIReady: true, Machines: machines}
	for _, slot := range []string{"a", "b", "c"} {
		o.Groups = append(o.Groups, rollout.Group{Name: "cp", Slot: slot, Size: 1, Version: "2"})
	}

	return o
}

func changing(o rollout.Observation, machine string) rollout.Observation {
	o.Changing = machine
	return o
}

func alarmed(o rollout.Observation) rollout.Observation {
	o.Alarms = []string{"NOSPACE"}
	return o
}

func workers(size, maxUnavailable int, machines ...rollout.Machine) rollout.Observation {
	return rollout.Observation{
		Now: now, APIReady: true, Machines: machines,
		Groups: []rollout.Group{{Name: "w", Size: size, Version: "2", Policy: rollout.Policy{MaxUnavailable: maxUnavailable}}},
	}
}

// format returns a decision in one line.
func format(d rollout.Decision) string {
	var out []string
	for _, a := range d.Actions {
		out = append(out, fmt.Sprintf("%s %s", a.Type, a.Machine.ID))
	}

	for _, w := range d.Waiting {
		out = append(out, "wait: "+w)
	}

	if d.Failure != "" {
		out = append(out, "stop: "+d.Failure)
	}

	if d.IsDone() {
		out = append(out, "done")
	}

	return strings.Join(out, "; ")
}

func TestDecide(t *testing.T) {
	started := func(m *rollout.Machine) { m.Started = true }
	drained := func(m *rollout.Machine) { m.Started, m.Drained = true, true }
	notReady := func(m *rollout.Machine) { m.NodeReady, m.DownSince = false, now.Add(-5*time.Minute) }
	flapping := func(m *rollout.Machine) { m.NodeReady, m.DownSince = false, now.Add(-time.Minute) }
	flappingInDrain := func(m *rollout.Machine) { m.NodeReady, m.DownSince, m.Started = false, now.Add(-time.Minute), true }
	gone := func(m *rollout.Machine) { m.NodeReady, m.NodeName = false, "" }
	lost := func(m *rollout.Machine) { m.Member, m.DownSince = rollout.MemberLost, now.Add(-5*time.Minute) }
	silent := func(m *rollout.Machine) { m.Member, m.DownSince = rollout.MemberUnknown, now.Add(-5*time.Minute) }
	applying := func(m *rollout.Machine) { m.IsApplying = true }
	booting := func(m *rollout.Machine) {
		m.NodeReady, m.Member, m.Launched = false, rollout.MemberUnknown, now.Add(-30*time.Second)
	}
	stuck := func(m *rollout.Machine) {
		m.NodeReady, m.Launched, m.BootStage = false, now.Add(-11*time.Minute), "fetch: containerd: 404"
	}

	for _, tc := range []struct {
		name string
		o    rollout.Observation
		want string
	}{
		{"nothing to do", controlPlane(serving("a", "cp", "a", "2"), serving("b", "cp", "b", "2"), serving("c", "cp", "c", "2")), "done"},
		{
			"one control-plane machine at a time",
			controlPlane(serving("a", "cp", "a", "1"), serving("b", "cp", "b", "1"), serving("c", "cp", "c", "1")),
			"drain a",
		},
		{
			"a drained machine is terminated",
			controlPlane(with(serving("a", "cp", "a", "1"), drained), serving("b", "cp", "b", "1"), serving("c", "cp", "c", "1")),
			"terminate a",
		},
		{
			"what has begun continues first",
			controlPlane(serving("a", "cp", "a", "1"), serving("b", "cp", "b", "1"), with(serving("c", "cp", "c", "1"), started)),
			"drain c",
		},
		{
			"the next slot waits for the replacement",
			controlPlane(with(serving("a2", "cp", "a", "2"), booting), serving("b", "cp", "b", "1"), serving("c", "cp", "c", "1")),
			"wait: cp-a: machine a2 is not Ready yet",
		},
		{
			"a drained machine stays while another slot is missing",
			controlPlane(with(serving("a", "cp", "a", "1"), drained), serving("c", "cp", "c", "1")),
			"wait: cp-b has no machine yet",
		},
		{
			"two slots without members do not wait for each other",
			controlPlane(
				with(serving("a", "cp", "a", "1"), lost),
				with(serving("b", "cp", "b", "1"), lost),
				serving("c", "cp", "c", "1"),
			),
			"drain a",
		},
		{
			"a machine of whose member nothing is known may vote",
			controlPlane(with(serving("a", "cp", "a", "1"), silent), with(serving("b", "cp", "b", "1"), lost), serving("c", "cp", "c", "1")),
			"drain b",
		},
		{
			"two machines of whose members nothing is known",
			controlPlane(with(serving("a", "cp", "a", "1"), silent), with(serving("b", "cp", "b", "1"), silent), serving("c", "cp", "c", "1")),
			"wait: cp-b: the etcd member of machine b is not healthy yet",
		},
		{
			"an alarm of etcd says nothing of a member",
			alarmed(controlPlane(serving("a", "cp", "a", "1"), serving("b", "cp", "b", "1"), serving("c", "cp", "c", "1"))),
			"wait: etcd has raised the alarm NOSPACE",
		},
		{
			"no machine is replaced while another one has the update lock",
			changing(controlPlane(with(serving("a", "cp", "a", "1"), started), serving("b", "cp", "b", "2"), serving("c", "cp", "c", "2")), "b"),
			"wait: machine b is applying its node document",
		},
		{
			"no replacement begins while a machine waits for its turn to apply its document",
			controlPlane(serving("a", "cp", "a", "1"), with(serving("b", "cp", "b", "1"), applying), serving("c", "cp", "c", "2")),
			"wait: machine b is applying its node document",
		},
		{
			"a broken slot does not wait for machines that wait for it",
			controlPlane(with(serving("a", "cp", "a", "1"), notReady), with(serving("b", "cp", "b", "1"), applying), serving("c", "cp", "c", "2")),
			"terminate a",
		},
		{
			"a replacement that has begun does not wait for machines that wait for its turn",
			controlPlane(with(serving("a", "cp", "a", "1"), started), with(serving("b", "cp", "b", "1"), applying), serving("c", "cp", "c", "2")),
			"drain a",
		},
		{"within the budget", workers(3, 2, serving("a", "w", "", "1"), serving("b", "w", "", "1"), serving("c", "w", "", "2")), "drain a; drain b"},
		{"one machine before the first batch", workers(3, 2, serving("a", "w", "", "1"), serving("b", "w", "", "1"), serving("c", "w", "", "1")), "drain a; wait: w: 0 of 1 canary machines serve"},
		{
			"a machine in progress counts",
			workers(2, 1, with(serving("a", "w", "", "1"), started), serving("b", "w", "", "1")),
			"drain a; wait: w: 1 of 2 machines serve, and at most 1 may be missing",
		},
		{
			"a machine that does not serve is first, and is not drained",
			workers(2, 1, serving("a", "w", "", "1"), with(serving("b", "w", "", "1"), notReady)),
			"terminate b; wait: w: 1 of 2 machines serve, and at most 1 may be missing",
		},
		{
			"machines that do not serve are within the budget, and one is first",
			workers(5, 2, with(serving("a", "w", "", "1"), notReady), serving("b", "w", "", "1"), with(serving("c", "w", "", "1"), notReady), serving("d", "w", "", "1"), serving("e", "w", "", "1")),
			"terminate a; wait: w: 0 of 1 canary machines serve",
		},
		{
			"machines without a node are within the budget",
			workers(5, 2, with(serving("a", "w", "", "1"), gone), with(serving("b", "w", "", "1"), gone), with(serving("c", "w", "", "1"), gone), serving("d", "w", "", "2"), serving("e", "w", "", "2")),
			"terminate a; terminate b; wait: w: 2 of 5 machines serve, and at most 2 may be missing",
		},
		{
			"most nodes of a zone are not Ready",
			workers(3, 3, with(serving("a", "w", "", "1"), notReady), with(serving("b", "w", "", "1"), notReady), serving("c", "w", "", "2")),
			"wait: 2 of 3 nodes in zone  are not Ready: probably the zone has an outage; wait: 2 of 3 nodes in zone  are not Ready: probably the zone has an outage",
		},
		{
			"a node that is not Ready for a moment is left alone",
			workers(3, 1, with(serving("a", "w", "", "1"), flapping), serving("b", "w", "", "2"), serving("c", "w", "", "2")),
			"wait: w: machine a is replaced if it does not serve again within 2m0s",
		},
		{
			"a node that is not Ready for a moment is still drained",
			workers(3, 1, with(serving("a", "w", "", "1"), flappingInDrain), serving("b", "w", "", "2"), serving("c", "w", "", "2")),
			"drain a",
		},
		{
			"a control-plane node that is not Ready for a moment is left alone",
			controlPlane(with(serving("a", "cp", "a", "1"), flapping), serving("b", "cp", "b", "1"), serving("c", "cp", "c", "1")),
			"wait: cp-a: machine a is replaced if it does not serve again within 2m0s",
		},
		{
			"a machine that has served does not fail at once",
			workers(2, 1, with(serving("a", "w", "", "2"), flapping), serving("b", "w", "", "1")),
			"wait: w: 1 of 2 machines serve, and at most 1 may be missing",
		},
		{
			"a control-plane machine that has served does not fail at once",
			controlPlane(with(serving("a", "cp", "a", "2"), flapping), serving("b", "cp", "b", "1"), serving("c", "cp", "c", "1")),
			"wait: cp-a: machine a is not Ready yet",
		},
		{
			"a machine that has served and does not for long stops the update",
			workers(2, 1, with(serving("a", "w", "", "2"), func(m *rollout.Machine) { m.NodeReady, m.DownSince = false, now.Add(-12*time.Minute) }), serving("b", "w", "", "1")),
			"stop: machine a of group w has the newest launch template and does not serve for 12m0s",
		},
		{
			"a replacement that does not join stops the update",
			workers(2, 1, with(serving("a2", "w", "", "2"), stuck), serving("b", "w", "", "1")),
			"stop: machine a2 of group w has the newest launch template and is not Ready, 11m0s after its launch; it stopped at fetch: containerd: 404",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := format(rollout.Decide(tc.o, rollout.Options{JoinTimeout: 10 * time.Minute}))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNeedsTurn: an update has the control plane's update lock from the first step of a replacement until all slots serve.
func TestNeedsTurn(t *testing.T) {
	all := []rollout.Machine{serving("a", "cp", "a", "1"), serving("b", "cp", "b", "1"), serving("c", "cp", "c", "2")}
	missing := controlPlane(all[1:]...)
	begun := controlPlane(all...)
	begun.Machines[0].Detached = true
	away := controlPlane(all...)
	away.APIReady = false
	worker := rollout.Decision{Actions: []rollout.Action{{Type: rollout.ActionDrain, Machine: serving("w", "w", "", "1")}}}
	slot := rollout.Decision{Actions: []rollout.Action{{Type: rollout.ActionDetach, Machine: all[0]}}}
	for name, c := range map[string]struct {
		o             rollout.Observation
		d             rollout.Decision
		isHeld, wants bool
	}{
		"first step":                {controlPlane(serving("a", "cp", "a", "1"), all[1], all[2]), slot, false, true},
		"only workers":              {controlPlane(all[1], all[2], serving("a", "cp", "a", "1")), worker, false, false},
		"all slots serve":           {controlPlane(all[1], all[2], serving("a", "cp", "a", "1")), rollout.Decision{}, true, false},
		"has begun, after a kill":   {begun, rollout.Decision{}, false, true},
		"the replacement boots":     {missing, rollout.Decision{}, true, true},
		"a machine was lost":        {missing, rollout.Decision{}, false, false},
		"the API is away, held":     {away, rollout.Decision{}, true, true},
		"the API is away, not held": {away, rollout.Decision{}, false, false},
	} {
		if got := rollout.NeedsTurn(c.o, c.d, c.isHeld); got != c.wants {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// policy returns two workers with a policy, the second of which is up to date and Ready for a minute.
func policy(p rollout.Policy, machines ...rollout.Machine) rollout.Observation {
	o := workers(len(machines), 1, machines...)
	o.Groups[0].Policy = p

	return o
}

func TestDecidePolicy(t *testing.T) {
	detached := func(m *rollout.Machine) { m.Detached, m.Marked = true, true }
	young := func(m *rollout.Machine) { m.ReadySince = now.Add(-time.Minute) }
	unmarked := func(m *rollout.Machine) { m.Marked = false }
	marked := func(m *rollout.Machine) { m.Marked = true }
	old := func(id string) rollout.Machine { return serving(id, "w", "", "1") }
	updated := func(id string) rollout.Machine { return serving(id, "w", "", "2") }
	inZone := func(id, zone string) rollout.Machine {
		return with(old(id), func(m *rollout.Machine) { m.Zone = zone })
	}
	zones := policy(rollout.Policy{MaxUnavailable: 3}, inZone("a", "x"), inZone("b", "x"), inZone("c", "y"), inZone("d", "z"), updated("e"))
	surged := policy(rollout.Policy{MaxSurge: 1}, old("a"), old("b"), updated("c"))
	surged.Machines[0] = with(old("a"), detached)
	surged.Groups[0].Size = 2
	drainingSurplus := policy(rollout.Policy{MaxSurge: 1}, old("b"), updated("c"))
	drainingSurplus.Machines = append(drainingSurplus.Machines, with(old("a"), detached), updated("d"))
	drainingSurplus.Machines[2].Started = true
	drainingSurplus.Groups[0].Size = 3
	last := policy(rollout.Policy{MaxSurge: 1}, with(old("a"), detached), updated("b"), updated("c"))
	last.Groups[0].Size = 2

	for _, tc := range []struct {
		name string
		o    rollout.Observation
		want string
	}{
		{"all outdated nodes are marked first", policy(rollout.Policy{}, with(old("a"), unmarked), old("b")), "mark a"},
		{"a machine that is up to date loses its mark", policy(rollout.Policy{}, with(updated("a"), marked), old("b")), "unmark a"},
		{"a surge detaches before it drains", policy(rollout.Policy{MaxSurge: 1}, old("a"), old("b")), "detach a; wait: w: 2 of 2 machines serve, and at most 0 may be missing"},
		{"the surplus allows a drain; detached machines are last", surged, "drain b; wait: w: 3 of 2 machines serve, and at most 0 may be missing"},
		{"a detached machine counts until it has ended", drainingSurplus, "drain a; wait: w: 3 of 3 machines serve, and at most 0 may be missing"},
		{"the last one is the detached machine", last, "drain a"},
		{"both limits together", policy(rollout.Policy{MaxSurge: 1, MaxUnavailable: 1}, old("a"), old("b"), old("c")), "detach a; wait: w: 0 of 1 canary machines serve"},
		{"canaries are first", policy(rollout.Policy{Canary: 1, MaxUnavailable: 3}, old("a"), old("b"), old("c")), "drain a; wait: w: 0 of 1 canary machines serve"},
		{"after the canaries, a batch", policy(rollout.Policy{Canary: 1, MaxUnavailable: 2}, old("a"), old("b"), updated("c")), "drain a; drain b"},
		{"a batch is spread over the zones", zones, "drain a; drain c; drain d; wait: w: 5 of 5 machines serve, and at most 3 may be missing"},
		{"a pause after each machine", policy(rollout.Policy{PauseBetween: 2 * time.Minute}, old("a"), with(updated("b"), young)), "wait: w: pauses for 2m0s since machine b is Ready"},
		{"the pause is over", policy(rollout.Policy{PauseBetween: time.Minute}, old("a"), with(updated("b"), young)), "drain a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := rollout.Decide(tc.o, rollout.Options{JoinTimeout: 10 * time.Minute})
			if diff := cmp.Diff(tc.want, format(d)); diff != "" {
				t.Error(diff)
			}

			if wantPause := strings.Contains(tc.want, "pauses"); d.PausedUntil.IsZero() == wantPause {
				t.Errorf("paused until %s", d.PausedUntil)
			}
		})
	}
}

func TestDecideFailures(t *testing.T) {
	stuck := func(m *rollout.Machine) { m.NodeReady, m.Launched = false, now.Add(-11*time.Minute) }
	o := policy(rollout.Policy{MaxUnavailable: 2, MaxFailures: 2}, with(serving("a", "w", "", "2"), stuck), serving("b", "w", "", "1"), serving("c", "w", "", "1"), serving("d", "w", "", "2"))
	opts := rollout.Options{JoinTimeout: 10 * time.Minute}
	if got := format(rollout.Decide(o, opts)); got != "drain b; wait: w: 3 of 4 machines serve, and at most 2 may be missing" {
		t.Errorf("one of two failures: %s", got)
	}

	o.Groups[0].Policy.MaxUnavailable = 1
	if got := format(rollout.Decide(o, opts)); !strings.HasPrefix(got, "stop: machine a of group w") {
		t.Errorf("a failure that leaves no room: %s", got)
	}

	o.Machines[1] = with(serving("b", "w", "", "2"), stuck)
	if got := format(rollout.Decide(o, opts)); !strings.HasPrefix(got, "stop: ") || !strings.HasSuffix(got, "(and 1 more)") {
		t.Errorf("two failures: %s", got)
	}
}

func TestDecideStopping(t *testing.T) {
	started := with(serving("b", "w", "", "1"), func(m *rollout.Machine) { m.Started = true })
	o := workers(3, 2, serving("a", "w", "", "1"), started, serving("c", "w", "", "1"))
	opts := rollout.Options{JoinTimeout: time.Minute, Stopping: true}
	if got := format(rollout.Decide(o, opts)); got != "drain b" {
		t.Error(got)
	}

	o.Machines = o.Machines[:1]
	if got := format(rollout.Decide(o, opts)); got != "done" {
		t.Error(got)
	}
}

func TestEstimate(t *testing.T) {
	o := controlPlane(serving("a", "cp", "a", "1"), serving("b", "cp", "b", "1"), serving("c", "cp", "c", "2"))
	o.Groups = append(o.Groups, rollout.Group{Name: "w", Size: 5, Version: "2", Policy: rollout.Policy{MaxUnavailable: 2, Canary: 1}})
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		o.Machines = append(o.Machines, serving(id, "w", "", "1"))
	}

	// Two slots, the canary, and two batches of two.
	if got := rollout.Estimate(o, rollout.Options{}, time.Minute); got != 5*time.Minute {
		t.Error(got)
	}
}

func TestDecideWithoutAPI(t *testing.T) {
	o := workers(1, 1, serving("a", "w", "", "1"))
	o.APIReady = false
	if got := format(rollout.Decide(o, rollout.Options{JoinTimeout: time.Minute})); got != "wait: the Kubernetes API does not answer" {
		t.Error(got)
	}
}

func TestDecideGates(t *testing.T) {
	o := workers(2, 1, serving("a", "w", "", "1"), serving("b", "w", "", "1"))
	o.FailedGates = []string{"pod kube-system/coredns is not running"}
	if got := format(rollout.Decide(o, rollout.Options{JoinTimeout: time.Minute})); got != "wait: pod kube-system/coredns is not running" {
		t.Error(got)
	}

	o.Machines[0].NodeReady, o.Machines[0].DownSince = false, now.Add(-time.Hour)
	if got := format(rollout.Decide(o, rollout.Options{JoinTimeout: time.Minute})); got != "wait: pod kube-system/coredns is not running" {
		t.Errorf("a machine that does not serve: %s", got)
	}
}

func TestPlan(t *testing.T) {
	o := controlPlane(serving("a", "cp", "a", "1"), serving("b", "cp", "b", "2"), serving("c", "cp", "c", "2"))
	o.Groups = append([]rollout.Group{{Name: "w", Size: 1, Version: "2"}}, o.Groups...)
	o.Machines = append(o.Machines, serving("w", "w", "", "1"))

	var got []string
	for _, a := range rollout.Plan(o, rollout.Options{}) {
		got = append(got, a.Machine.ID+": "+a.Reason)
	}

	want := []string{
		"a: its launch template is version 1, the group's is 2",
		"w: its launch template is version 1, the group's is 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	forced := rollout.Plan(o, rollout.Options{Force: now, Only: []string{"cp"}})
	if len(forced) != 3 {
		t.Errorf("a forced update of one group replaces %d machines, want 3", len(forced))
	}
}
