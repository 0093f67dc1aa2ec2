// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// detachingEC2 is an EC2 whose volumes can be detached.
type detachingEC2 struct {
	fakeEC2
	denied bool
	// slow leaves the volume in state detaching, as EC2 does for some seconds.
	slow bool
	log  *[]string
}

func (f *detachingEC2) DetachVolume(_ context.Context, in *ec2.DetachVolumeInput, _ ...func(*ec2.Options)) (*ec2.DetachVolumeOutput, error) {
	switch {
	case f.denied:
		return nil, &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "not allowed"}
	case aws.ToBool(in.DryRun):
		return nil, &smithy.GenericAPIError{Code: "DryRunOperation", Message: "Request would have succeeded"}
	}

	*f.log = append(*f.log, "detach "+*in.VolumeId+" from "+*in.InstanceId)
	for i := range f.volumes {
		if f.slow {
			f.volumes[i].Attachments[0].State = types.VolumeAttachmentStateDetaching
		} else {
			f.volumes[i].Attachments = nil
		}
	}

	return &ec2.DetachVolumeOutput{}, nil
}

// loggingRunner logs commands, and fails those with a text.
type loggingRunner struct {
	log  *[]string
	fail string
}

func (r loggingRunner) Run(_ context.Context, name string, args ...string) (string, error) {
	line := name + " " + strings.Join(args, " ")
	*r.log = append(*r.log, line)
	if r.fail != "" && strings.Contains(line, r.fail) {
		return "", errors.New("target is busy")
	}

	return "", nil
}

// slotHolder returns an agent whose machine has the volume of its slot, and the log of what it does.
func slotHolder(t *testing.T) (*Agent, *detachingEC2, *[]string) {
	t.Helper()
	a := testAgent(t)
	var log []string
	api := &detachingEC2{log: &log}
	api.volumes = []types.Volume{slotVolume("vol-1", a.Boot.Slot, a.instance.Zone, a.instance.ID, time.Now())}
	a.EC2 = api
	a.Run = loggingRunner{log: &log}
	a.Wait = func(context.Context, time.Duration) error { return nil }
	files := store.NewFileStore(t.TempDir())
	a.Store = func(string) (store.Store, error) { return files, nil }
	writeMountinfo(t, a, true)
	if err := a.writeStaticPods(); err != nil {
		t.Fatal(err)
	}

	return a, api, &log
}

// writeMountinfo writes whether the etcd volume is mounted.
func writeMountinfo(t *testing.T, a *Agent, mounted bool) {
	t.Helper()
	body := ""
	if mounted {
		body = "70 42 7:4 / " + etcd.DataMount + " rw shared:30 - ext4 /dev/nvme1n1 rw\n"
	}

	if _, err := a.Root.Write(File{Path: "/proc/self/mountinfo", Body: []byte(body), Mode: 0o644, Shared: true}); err != nil {
		t.Fatal(err)
	}
}

// releaseOf returns the release of an agent's slot.
func releaseOf(t *testing.T, a *Agent, log *[]string) slotRelease {
	t.Helper()
	m, err := a.newEtcdMember()
	if err != nil {
		t.Fatal(err)
	}

	return slotRelease{member: m, successor: "i-new", yield: func(context.Context) (bool, error) {
		*log = append(*log, "yield")
		return true, nil
	}}
}

func staticPodFiles(t *testing.T, a *Agent) []string {
	t.Helper()
	entries, err := os.ReadDir(a.Root.Path(kube.ConfigDir + "/manifests"))
	if err != nil {
		t.Fatal(err)
	}

	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}

	return out
}

// The leadership moves first, the API server ends before etcd, and the volume is detached when it is unmounted.
func TestReleaseOfSlot(t *testing.T) {
	a, _, log := slotHolder(t)
	if len(staticPodFiles(t, a)) != 3 {
		t.Fatalf("static pods %v", staticPodFiles(t, a))
	}

	if err := releaseOf(t, a, log).run(t.Context()); err != nil {
		t.Fatal(err)
	}

	want := []string{"yield", "systemctl stop etcd", "umount " + etcd.DataMount, "detach vol-1 from " + a.instance.ID}
	if diff := cmp.Diff(want, *log); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if left := staticPodFiles(t, a); len(left) > 0 {
		t.Errorf("static pods are left: %v", left)
	}

	for _, d := range a.Root.findDamage() {
		if strings.Contains(d.path, "/manifests/") {
			t.Errorf("the agent would restore %s", d.path)
		}
	}

	s, _ := a.Store("")
	m := &etcdMember{agent: a, store: s, slot: node.Slot{Name: a.Boot.Slot}}
	record, err := m.readJoinedRecord(t.Context())
	if err != nil || record.Volume != "vol-1" || record.HandOver == nil || record.HandOver.To != "i-new" || record.HandOver.From != a.instance.ID {
		t.Errorf("record %+v, %v", record, err)
	}
}

// TestHandOverWhileALockIsHeld: the update lock of a machine forbids a hand-over; that of the rolling update does not.
func TestHandOverWhileALockIsHeld(t *testing.T) {
	now := time.Now()
	machine := follow.Lock{}.Take(follow.Claim{Machine: "i-1"}, now)
	update := follow.Lock{}.Take(follow.Claim{Machine: follow.RollingUpdate}, now)
	if err := checkNobodyChanges(machine, now); err == nil || err.Error() != "machine i-1 is being changed" {
		t.Errorf("while a machine has the lock: %v", err)
	}
	if err := errors.Join(checkNobodyChanges(update, now), checkNobodyChanges(follow.Lock{}, now), checkNobodyChanges(machine, now.Add(follow.HoldTime))); err != nil {
		t.Errorf("while the update has it, nobody, or nobody any more: %v", err)
	}
}

// Nothing is stopped unless the machine may detach the volume, which a role of an earlier slipway may not.
func TestReleaseIsRefused(t *testing.T) {
	a, api, log := slotHolder(t)
	api.denied = true
	err := releaseOf(t, a, log).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "check whether this machine may detach volume vol-1") || len(*log) > 0 || len(staticPodFiles(t, a)) != 3 {
		t.Errorf("%v, %v", err, *log)
	}

	api.denied = false
	api.volumes[0].Attachments[0].InstanceId = aws.String("i-other")
	err = releaseOf(t, a, log).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is not attached to this machine") || len(*log) > 0 {
		t.Errorf("%v, %v", err, *log)
	}
}

// A volume that is still in use is not detached: the machine converges again and keeps its slot.
func TestReleaseOfBusyVolume(t *testing.T) {
	a, _, log := slotHolder(t)
	a.Run = loggingRunner{log: log, fail: "umount"}
	err := releaseOf(t, a, log).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "unmount the etcd volume: target is busy") || a.handOver.successor != "" {
		t.Errorf("%v, reserved for %q", err, a.handOver.successor)
	}

	if slices.ContainsFunc(*log, func(l string) bool { return strings.HasPrefix(l, "detach") }) {
		t.Errorf("%q", *log)
	}
}

// A volume that EC2 is still detaching is not mounted again: EC2 would never finish.
func TestReleaseIsSlow(t *testing.T) {
	a, api, log := slotHolder(t)
	api.slow = true
	begin := time.Now()
	a.Now = func() time.Time { return begin }
	if err := releaseOf(t, a, log).run(t.Context()); err != nil {
		t.Fatal(err)
	}

	writeMountinfo(t, a, false)
	*log = nil
	for after, want := range map[time.Duration]string{
		0:               "volume vol-1 was released for machine i-new",
		2 * reservation: "volume vol-1 is being detached from this machine",
	} {
		a.Now = func() time.Time { return begin.Add(after) }
		m, err := a.newEtcdMember()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.mountVolume(t.Context()); err == nil || !strings.Contains(err.Error(), want) || len(*log) > 0 {
			t.Errorf("%s after the release: %v, want %s; ran %q", after, err, want, *log)
		}
	}
}

// A released volume is left to its successor for a minute. Then the machine takes it back.
func TestReservationEnds(t *testing.T) {
	a, api, log := slotHolder(t)
	begin := time.Now()
	a.Now = func() time.Time { return begin }
	release := releaseOf(t, a, log)
	if err := release.run(t.Context()); err != nil {
		t.Fatal(err)
	}

	writeMountinfo(t, a, false)
	_, err := release.member.newMounter(joinedRecord{}).Mount(t.Context())
	if _, held := errors.AsType[heldVolumeError](err); !held || !strings.Contains(err.Error(), "was released for machine i-new") || len(api.attached) > 0 {
		t.Errorf("%v, attached %v", err, api.attached)
	}

	a.Now = func() time.Time { return begin.Add(reservation) }
	_, err = release.member.newMounter(joinedRecord{}).Mount(t.Context())
	if _, waits := errors.AsType[notReadyError](err); !waits || len(api.attached) != 1 {
		t.Errorf("%v, attached %v", err, api.attached)
	}
}

// The machine that takes over knows since when the member is missing; one that restarts later does not count.
func TestTakeOver(t *testing.T) {
	a, api, _ := slotHolder(t)
	api.volumes[0].Attachments[0].InstanceId = &a.instance.ID
	stopped := time.Now()
	s, _ := a.Store("")
	m, err := a.newEtcdMember()
	if err != nil {
		t.Fatal(err)
	}

	record := joinedRecord{Volume: "vol-1", HandOver: &report.HandOver{From: "i-old", To: a.instance.ID, StoppedAt: stopped}}
	if err := m.writeJoinedRecord(t.Context(), record); err != nil {
		t.Fatal(err)
	}

	if _, err := a.Root.Write(File{Path: "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol1", Mode: 0o644}); err != nil {
		t.Fatal(err)
	}

	for _, mounted := range []bool{true, false} {
		a.handOver.took = nil
		writeMountinfo(t, a, mounted)
		m := &etcdMember{agent: a, store: s, slot: m.slot}
		if err := m.mountVolume(t.Context()); err != nil {
			t.Fatal(err)
		}

		a.Now = func() time.Time { return stopped.Add(9 * time.Second) }
		m.noteTakeOver()
		if took := a.handOver.took; (took != nil) == mounted || took != nil && took.MissingSeconds != 9 {
			t.Errorf("mounted before %v: %+v", mounted, took)
		}
	}
}

func TestSuccessor(t *testing.T) {
	good := Machine{ID: "i-new", Role: node.RoleTagControlPlane, Slot: "a", State: "running"}
	for name, change := range map[string]func(*Machine){
		"":               func(*Machine) {},
		"the machine":    func(m *Machine) { m.ID = "i-me" },
		"a worker":       func(m *Machine) { m.Role = "worker" },
		"another slot":   func(m *Machine) { m.Slot = "b" },
		"it ends":        func(m *Machine) { m.State = "shutting-down" },
		"it starts only": func(m *Machine) { m.State = "pending" },
	} {
		m := good
		change(&m)
		if got := isSuccessor(m, "a", "i-me"); got != (name == "") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// While two machines have one slot, the one with the volume runs the member.
func TestAddressOfSlotWithTwoMachines(t *testing.T) {
	begin := time.Now()
	machines := []Machine{
		{ID: "i-1", Slot: "b", Address: "10.0.0.2", State: "running", Launched: begin},
		{ID: "i-2", Slot: "b", Address: "10.0.0.3", State: "running", Launched: begin.Add(time.Minute)},
		{ID: "i-3", Slot: "c", Address: "10.0.0.4", State: "running", Launched: begin},
	}
	if !hasSlotTwice(machines) || hasSlotTwice(machines[1:]) {
		t.Error("slots with two machines are not found")
	}

	for holder, want := range map[string]string{"i-1": "10.0.0.2", "i-2": "10.0.0.3", "": "10.0.0.3", "i-3": "10.0.0.3"} {
		got := SlotAddresses(machines, []Volume{{Slot: "b", AttachedTo: holder}}, "a", "10.0.0.1")
		if got["b"] != want || got["c"] != "10.0.0.4" || got["a"] != "10.0.0.1" {
			t.Errorf("the volume is at %q: %v", holder, got)
		}
	}
}
