// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

func TestParseVolumeMount(t *testing.T) {
	const mount = "70 42 7:4 / " + etcd.DataMount + " %s shared:30 - ext4 /dev/nvme1n1 %s\n"
	for name, c := range map[string]struct {
		text string
		want volumeMount
	}{
		"none":            {"22 1 0:20 / /var/lib/slipway rw - ext4 /dev/vda rw\n", volumeMount{}},
		"another's below": {"22 1 0:20 / " + etcd.DataMount + "/x ro - ext4 /dev/vda ro\n", volumeMount{}},
		"writable":        {fmt.Sprintf(mount, "rw,noatime", "rw"), volumeMount{mounted: true, device: "7:4", source: "/dev/nvme1n1"}},
		"read-only":       {fmt.Sprintf(mount, "ro,noatime", "rw"), volumeMount{mounted: true, readOnly: true, device: "7:4", source: "/dev/nvme1n1"}},
		"after an error":  {fmt.Sprintf(mount, "rw,noatime", "rw,emergency_ro"), volumeMount{mounted: true, readOnly: true, device: "7:4", source: "/dev/nvme1n1"}},
		"remounted by it": {fmt.Sprintf(mount, "rw,noatime", "ro"), volumeMount{mounted: true, readOnly: true, device: "7:4", source: "/dev/nvme1n1"}},
		"the last counts": {fmt.Sprintf(mount, "ro", "ro") + strings.Replace(fmt.Sprintf(mount, "rw", "rw"), "7:4", "7:9", 1), volumeMount{mounted: true, device: "7:9", source: "/dev/nvme1n1"}},
	} {
		if got := parseVolumeMount(c.text); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func workingVolume() volumeFacts {
	return volumeFacts{id: "vol-1", mount: volumeMount{mounted: true, device: "7:4"}, availableBytes: 10 << 30}
}

func probeError(no syscall.Errno) error {
	return fmt.Errorf("write to the etcd volume: %w", &fs.PathError{Op: "sync", Path: "x", Err: no})
}

func TestJudgeVolume(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*volumeFacts)
		want   string // in the cause
		yield  bool
		stop   bool
	}{
		"works":             {func(*volumeFacts) {}, "", false, false},
		"detached":          {func(f *volumeFacts) { f.mount = volumeMount{} }, "vol-1 is not mounted", true, true},
		"read-only":         {func(f *volumeFacts) { f.mount.readOnly = true }, "is read-only", true, true},
		"written read-only": {func(f *volumeFacts) { f.probeErr = probeError(syscall.EROFS) }, "is read-only", true, true},
		"I/O error":         {func(f *volumeFacts) { f.probeErr = probeError(syscall.EIO) }, "does not take writes: ", true, true},
		"hangs":             {func(f *volumeFacts) { f.hanging = 8 * time.Second }, "does not finish a write", true, false},
		"slow":              {func(f *volumeFacts) { f.hanging = 3 * time.Second }, "", false, false},
		"no space":          {func(f *volumeFacts) { f.probeErr = probeError(syscall.ENOSPC) }, "is full", true, false},
		"almost no space":   {func(f *volumeFacts) { f.availableBytes = 63 << 20 }, "is full: 63 MiB are left, and etcd needs 64 MiB", true, false},
		"some space":        {func(f *volumeFacts) { f.availableBytes = 64 << 20 }, "", false, false},
		"an unknown volume": {func(f *volumeFacts) { f.id, f.mount = "", volumeMount{} }, "the etcd volume is not mounted", true, true},
	} {
		f := workingVolume()
		c.change(&f)
		got := judgeVolume(f, brokenLooks)
		if !strings.Contains(got.condition.Cause, c.want) || (got.condition.State == report.OK) != (c.want == "") ||
			(got.condition.Next == "") != (c.want == "") {
			t.Errorf("%s: %+v", name, got.condition)
		}
		if got.yield != c.yield || got.stop != c.stop {
			t.Errorf("%s: yield %v, stop %v; want %v, %v", name, got.yield, got.stop, c.yield, c.stop)
		}
		if first := judgeVolume(f, 1); first.stop || first.yield != c.yield {
			t.Errorf("%s: one look alone stops the member: %+v", name, first)
		}
	}
}

// TestVolumeWatch: a volume is lost and attached again.
func TestVolumeWatch(t *testing.T) {
	a := testAgent(t)
	run := &unitRunner{}
	a.Run = run
	now := time.Now()
	a.Now = func() time.Time { return now }
	facts := workingVolume()
	var did []string
	attached, hasOldData := false, false
	w := &volumeWatch{
		member: &etcdMember{agent: a},
		look:   func() volumeFacts { return facts },
		yield:  func(context.Context) (bool, error) { did = append(did, "yield"); return true, nil },
		makeRoom: func() error {
			if !hasOldData {
				return errors.New("full")
			}
			did = append(did, "make room")
			facts = workingVolume()
			return nil
		},
		remount: func(context.Context) error {
			if !attached {
				return newNotReadyError("not attached")
			}
			did = append(did, "remount")
			facts = workingVolume()
			return nil
		},
		start: func(context.Context) error { did = append(did, "start"); return nil },
	}
	step := func(state report.State, want ...string) {
		t.Helper()
		did, run.lines = nil, nil
		var wait notReadyError
		if err := w.watchOnce(t.Context()); err != nil && !errors.As(err, &wait) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, append(did, run.lines...)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := a.conditions.Conditions(); len(got) != 1 || got[0].State != state {
			t.Errorf("conditions %+v, want %s", got, state)
		}
	}
	step(report.OK)
	facts.mount = volumeMount{}
	step(report.Failed, "yield")
	step(report.Failed, "systemctl stop --no-block etcd")
	step(report.Failed)
	if units := a.ownedUnits(); strings.Contains(strings.Join(units, " "), "etcd") {
		t.Errorf("the agent would start etcd again: %v", units)
	}
	attached = true
	step(report.Failed, "remount")
	step(report.OK, "start")
	step(report.OK)
	if units := a.ownedUnits(); !strings.Contains(strings.Join(units, " "), "etcd") {
		t.Errorf("nobody would start etcd: %v", units)
	}
	facts.mount = volumeMount{}
	step(report.Failed, "yield")
	facts = workingVolume()
	step(report.OK) // one look alone does nothing

	// Full volumes: the leadership must not move from member to member without end.
	facts.availableBytes = leastVolumeBytes - 1
	step(report.Failed, "yield")
	step(report.Failed)
	now = now.Add(yieldPause)
	step(report.Failed, "yield")

	hasOldData = true
	step(report.OK, "make room")
}

// TestFullVolumeKeepsOldData: a volume that gets full for a moment keeps what was set aside. See TestOldDataMakesRoom for what is deleted.
func TestFullVolumeKeepsOldData(t *testing.T) {
	a := testAgent(t)
	for hours, dir := range []string{corruptDir, copyDir} {
		putOldData(t, a.Root, dir, 1, hours)
	}
	if err := a.Root.MakeDir(etcd.DataDir, 0o700, 0); err != nil {
		t.Fatal(err)
	}
	w := (&etcdMember{agent: a, volume: "vol-1"}).newVolumeWatch()
	full := workingVolume()
	full.availableBytes = leastVolumeBytes - 1
	w.look = func() volumeFacts { return full }
	w.yield = func(context.Context) (bool, error) { return false, nil }
	if err := w.watchOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !a.Root.Exists(corruptDir) || !a.Root.Exists(copyDir) {
		t.Error("data was deleted although the disk has room") // the one of the test
	}
}

// TestHangingProbe: a write that never ends is started once, and the time is counted.
func TestHangingProbe(t *testing.T) {
	release := make(chan struct{})
	writes := 0
	now := time.Now()
	p := &volumeProbe{write: func() error { writes++; <-release; return syscall.EIO }, now: func() time.Time { return now }}
	for i := range 3 {
		hanging, err := p.try(time.Millisecond)
		if err != nil || hanging < time.Duration(i)*3*time.Second {
			t.Errorf("look %d: hanging %s, %v", i, hanging, err)
		}
		now = now.Add(3 * time.Second)
	}
	close(release)
	if hanging, err := p.try(time.Minute); hanging != 0 || !errors.Is(err, syscall.EIO) || writes != 1 {
		t.Errorf("at the end: hanging %s, %v, %d writes", hanging, err, writes)
	}
}

// TestBrokenVolumeIsNotEmpty: an agent that restarts on a broken volume waits. It must not take the member's
// data for lost, and so remove the member.
func TestBrokenVolumeIsNotEmpty(t *testing.T) {
	a := testAgent(t)
	run := &unitRunner{inactive: map[string]bool{"etcd": true}}
	a.EC2, a.Run = &fakeEC2{}, run
	notes := store.NewFileStore(t.TempDir())
	a.Store = func(string) (store.Store, error) { return notes, nil }
	for _, f := range []File{
		{Path: "/etc/passwd", Body: []byte("etcd:x:2379:2379::/:/\n")},
		{Path: "/proc/self/mountinfo", Body: []byte("1 2 7:4 / " + etcd.DataMount + " rw - ext4 /dev/x rw\n")},
		{Path: etcd.DataMount, Body: []byte("a directory that cannot be read")},
	} {
		f.Mode = 0o644
		if _, err := a.Root.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	m, err := a.newEtcdMember()
	if err != nil {
		t.Fatal(err)
	}
	var wait notReadyError
	if err := a.mountEtcdVolume(t.Context(), m); !errors.As(err, &wait) || !strings.Contains(err.Error(), "does not take writes") {
		t.Errorf("got %v, want to wait for the volume", err)
	}
	if got := strings.Join(run.lines, "\n"); got != "systemctl stop --no-block etcd" {
		t.Errorf("ran %q", got)
	}
}

// What the console says of a volume that does not work has the next step, because validate prints it while the agent
// cannot publish.
func TestVolumeReportHasNextStep(t *testing.T) {
	var console bytes.Buffer
	a := &Agent{Log: slog.New(slog.DiscardHandler)}
	a.Report = &Reporter{Open: func() (io.WriteCloser, error) { return nopCloser{&console}, nil }, Log: a.Log, Now: time.Now}
	w := volumeWatch{member: &etcdMember{agent: a}}
	w.reportChange(report.Condition{State: report.Failed, Cause: "it is read-only", Next: "attach it again"})
	if got := console.String(); !strings.Contains(got, `"error":"it is read-only","hint":"attach it again"`) {
		t.Errorf("got %s", got)
	}
}
