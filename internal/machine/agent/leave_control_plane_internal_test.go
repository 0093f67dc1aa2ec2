// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// withSlots returns a document with other slots.
func withSlots(d node.Document, names ...string) node.Document {
	d.Slots = nil
	for _, name := range names {
		d.Slots = append(d.Slots, node.NewSlot(d.Cluster, name))
	}
	return d
}

// TestSlotsFollowLive: a machine learns of new slots without restarting anything, and etcd accepts their certificates already.
func TestSlotsFollowLive(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	unit := b.read("/etc/systemd/system/etcd.service")
	for _, slot := range node.PossibleSlots("demo") {
		if !strings.Contains(unit, slot.Host) {
			t.Errorf("etcd does not know %s", slot.Host)
		}
	}
	larger := withSlots(b.boot, "a", "b", "c")
	b.revise(larger)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, larger)
	if b.restarts != nil || b.status(a).State != report.RevisionCurrent {
		t.Errorf("restarts %v, status %+v", b.restarts, b.status(a))
	}
}

// TestSlotKeepsItsNames: a document in which a slot has another host is refused: etcd knows the member by the former one.
func TestSlotKeepsItsNames(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	other := withSlots(b.boot, "a")
	other.Slots[0].Host = "elsewhere.example.com"
	b.revise(other)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	if got := b.status(a); got.State != report.RevisionRefused || !strings.Contains(got.Cause, "slots.a: the names of a slot cannot change") {
		t.Errorf("status %+v", got)
	}
}

// TestLeaveWaits: the machine of a slot that is not in the control plane any more keeps its document, and does not leave while the
// others do not work. When its slot returns, it follows as before.
func TestLeaveWaits(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	f.members = func() etcd.Manager { return etcd.Manager{} }
	b.revise(withSlots(b.boot, "b", "c", "d"))
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	if got := b.status(a); got.State != report.RevisionWaiting || !strings.Contains(got.Cause, "etcd has no member of slot b") {
		t.Errorf("status %+v", got)
	}
	if f.leave.stopped || b.restarts != nil {
		t.Errorf("it left: %+v, %v", f.leave, b.restarts)
	}
	b.revise(b.boot)
	if err := b.follow(a, f); err != nil || b.status(a).State != report.RevisionCurrent {
		t.Fatalf("%v, %+v", err, b.status(a))
	}
}

// TestSlotReturns: a machine that has left and whose slot returns begins anew.
func TestSlotReturns(t *testing.T) {
	b := newFollowBench(t)
	for name, next := range map[string]node.Document{"same": b.boot, "larger": withSlots(b.boot, "a", "b", "c")} {
		a, f := b.start()
		f.leave.since = b.now
		b.revise(next)
		if err := b.follow(a, f); !errors.Is(err, errSlotReturned) {
			t.Errorf("%s: %v", name, err)
		}
		if err := continueAfter(t.Context(), a, fmt.Errorf("tasks ended: %w", errSlotReturned)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDocumentFence: members leave only by the current document, and join only if it has their slot.
func TestDocumentFence(t *testing.T) {
	b := newFollowBench(t)
	a, _ := b.start()
	ctx := t.Context()
	if err := currentOf(a).checkOwnSlot(ctx); err != nil {
		t.Errorf("without revisions, join: %v", err)
	}
	if err := currentOf(a).checkSlots(ctx); !errors.As(err, new(notReadyError)) {
		t.Errorf("without revisions, remove: %v", err)
	}
	if err := currentOf(a).checkKnowsSlots(ctx); err != nil {
		t.Errorf("without revisions, recover: %v", err)
	}
	b.revise(b.boot)
	if err := errors.Join(currentOf(a).checkOwnSlot(ctx), currentOf(a).checkSlots(ctx)); err != nil {
		t.Errorf("with the current document: %v", err)
	}
	settings := b.nextDocument()
	b.revise(settings)
	if err := errors.Join(currentOf(a).checkOwnSlot(ctx), currentOf(a).checkSlots(ctx)); err != nil {
		t.Errorf("with other settings: %v", err)
	}
	b.revise(withSlots(b.boot, "a", "b", "c"))
	if err := currentOf(a).checkSlots(ctx); !errors.As(err, new(notReadyError)) {
		t.Errorf("with former slots, remove: %v", err)
	}
	if err := currentOf(a).checkKnowsSlots(ctx); !errors.As(err, new(notReadyError)) {
		t.Errorf("with former slots, recover: %v", err)
	}
	b.revise(withSlots(b.boot, "b", "c", "d"))
	if err := currentOf(a).checkOwnSlot(ctx); err == nil || !strings.Contains(err.Error(), "slot a is not in the control plane any more") {
		t.Errorf("without the slot, join: %v", err)
	}
}

// TestSlotsOfOtherDocuments: a recovery needs a machine that knows all slots. One of a slot that leaves knows more, and a document of a
// newer version has fields that this one does not know.
func TestSlotsOfOtherDocuments(t *testing.T) {
	b := newFollowBench(t)
	b.boot = withSlots(b.boot, "a", "b", "c", "d", "e")
	a, _ := b.start()
	for _, c := range []struct {
		slots []string
		want  string
	}{
		{[]string{"b", "c", "d"}, ""},
		{[]string{"a", "b", "c", "d", "e", "f"}, "this machine does not know slot f of the control plane yet"},
	} {
		newer := withSlots(b.boot, c.slots...)
		newer.NodeController = "ofTomorrow"
		b.revise(newer)
		err := currentOf(a).checkKnowsSlots(t.Context())
		if (c.want == "") != (err == nil) || err != nil && err.Error() != c.want {
			t.Errorf("%v: %v, want %q", c.slots, err, c.want)
		}
		if err := currentOf(a).checkSlots(t.Context()); err == nil {
			t.Errorf("%v: these slots are those of the machine", c.slots)
		}
	}
}

// TestKnownSlots: machines of slots that the document does not have yet are reached by their names.
func TestKnownSlots(t *testing.T) {
	a := testAgent(t)
	if len(knownSlots(a)) != 1 {
		t.Errorf("%+v", knownSlots(a))
	}
	cp := node.RoleTagControlPlane
	noteSlots(a, slotsOf([]Machine{
		{ID: "i-1", Slot: "c", Role: cp, State: "running", Address: "10.0.0.3"},
		{ID: "i-2", Slot: "b", Role: "worker", State: "running", Address: "10.0.0.2"},
		{ID: "i-3", Slot: "evil.example.com", Role: cp, State: "running", Address: "10.0.0.4"},
		{ID: "i-4", Slot: "d", Role: cp, State: "terminated"},
	}))
	var names []string
	for _, s := range knownSlots(a) {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("slots %v", names)
	}
	if peers := a.newEtcdManager().Peers; len(peers) != 2 || peers[1].PeerURL != "https://etcd-c.demo.internal:2380" {
		t.Errorf("peers %+v", peers)
	}
}

// TestFounders: the initial members are those of the marker, whatever size the document says.
func TestFounders(t *testing.T) {
	m := &etcdMember{agent: testAgent(t)}
	got := m.founders(etcd.BootstrapMarker{Volumes: map[string]string{"a": "vol-1", "b": "vol-2", "c": "vol-3"}})
	if len(got) != 3 || got["etcd-c"] != "https://etcd-c.demo.internal:2380" {
		t.Errorf("founders %v", got)
	}
	f := etcd.Facts{Slots: []string{"a"}, Visible: map[string]string{"a": "vol-1", "d": "vol-4"}}
	if volumes := foundingVolumes(f); len(volumes) != 1 || volumes["a"] != "vol-1" || len(f.Visible) != 2 {
		t.Errorf("volumes %v", volumes)
	}
}

// TestRemovedDataIsSetAside: the volume of a slot that returns has the data of the member that was removed. The agent sets it aside,
// and the record that the slot is absent goes away before the member has data again.
func TestRemovedDataIsSetAside(t *testing.T) {
	a := testAgent(t)
	a.Run = &killedRunner{killer: &killer{left: 1000}}
	a.EC2 = &fakeEC2{volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-me", time.Now())}}
	writeMountinfo(t, a, true)
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	slot, _ := a.doc.Slot("a")
	m := &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir()), volume: "vol-1"}
	m.others = func(context.Context, etcd.Facts) []etcd.Member {
		return []etcd.Member{{ID: 2, Slot: "b", Healthy: true}}
	}
	if err := m.writeAbsent(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	if err := m.decideAndAct(t.Context()); !errors.As(err, new(notReadyError)) {
		t.Fatal(err)
	}
	if m.hasData() || !a.Root.Exists(leftDir+"/member") {
		t.Error("the data was not set aside")
	}
	f, err := m.gatherFacts(t.Context())
	if err != nil || !f.Absent || f.HasData {
		t.Fatalf("%+v, %v", f, err)
	}
	if err := m.startJoining(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if record, err := m.readAbsent(t.Context(), "a"); err != nil || record.Absent {
		t.Errorf("absent %+v, %v", record, err)
	}
}

// TestSlotsOfOneZone: two slots in one zone never take each other's volume.
func TestSlotsOfOneZone(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	api := &fakeEC2{volumes: []types.Volume{
		slotVolume("vol-a", "a", "us-east-1a", "", old), slotVolume("vol-d", "d", "us-east-1a", "", time.Now()),
	}}
	for slot, want := range map[string]string{"a": "vol-a", "d": "vol-d", "e": ""} {
		mounter := VolumeMounter{Client: EC2Client{EC2: api, Cluster: "demo"}, Slot: slot, Instance: Instance{ID: "i-1", Zone: "us-east-1a"}}
		got, err := mounter.findVolume(t.Context())
		if got.ID != want || (err == nil) != (want != "") {
			t.Errorf("slot %s takes %q: %v", slot, got.ID, err)
		}
	}
}
