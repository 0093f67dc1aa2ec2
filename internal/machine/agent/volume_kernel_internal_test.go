// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// TestVolumeInTheKernel mounts a real file system, fills it, and takes its device away.
func TestVolumeInTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: mounts need root")
	}
	const size = 256 << 20
	a := testAgent(t)
	image := filepath.Join(t.TempDir(), "volume.img")
	mounted := a.Root.Path(etcd.DataMount)
	device := strings.TrimSpace(shell(t, fmt.Sprintf("truncate -s %d %s && mkfs.ext4 -q -m 0 %s && losetup --find --show %s", size, image, image, image)))
	t.Cleanup(func() {
		_ = exec.Command("umount", "--lazy", mounted).Run()
		_ = exec.Command("losetup", "--detach", device).Run()
	})
	shell(t, fmt.Sprintf("mkdir -p %s && mount %s %s", mounted, device, mounted))
	m := &etcdMember{agent: a, volume: "vol-1"}
	probe := &volumeProbe{write: func() error { return writeProbeFile(a.Root) }, now: time.Now}
	look := func() report.Condition {
		t.Helper()
		var table strings.Builder // with the path as on a machine
		body, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			if strings.Contains(line, " "+mounted+" ") {
				table.WriteString(strings.Replace(line, mounted, etcd.DataMount, 1))
			}
		}
		if _, err := a.Root.Write(File{Path: "/proc/self/mountinfo", Body: []byte(table.String()), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		return judgeVolume(m.lookAtVolume(probe), 1).condition
	}
	if c := look(); c.State != report.OK {
		t.Errorf("a working volume: %+v", c)
	}
	shell(t, fmt.Sprintf("fallocate -l 200M %s/filler && sync -f %s", mounted, mounted))
	if c := look(); c.State != report.Failed || !strings.Contains(c.Cause, "vol-1 is full") {
		t.Errorf("a full volume: %+v", c)
	}
	shell(t, "rm "+mounted+"/filler")
	if c := look(); c.State != report.OK {
		t.Errorf("after files were deleted: %+v", c)
	}
	shell(t, "mount -o remount,ro "+mounted)
	if c := look(); c.State != report.Failed || !strings.Contains(c.Cause, "vol-1 is read-only") {
		t.Errorf("a read-only volume: %+v", c)
	}
	shell(t, "mount -o remount,rw "+mounted)
	takeSectorsAway(t, device, size)
	for range 2 { // the first failure is an I/O error, later ones find the file system read-only
		c := look()
		if c.State != report.Failed || !strings.Contains(c.Cause, "read-only") && !strings.Contains(c.Cause, "does not take writes") {
			t.Errorf("a volume without a device: %+v", c)
		}
		t.Log(c.Cause)
	}
	shell(t, "umount --lazy "+mounted)
	if c := look(); c.State != report.Failed || !strings.Contains(c.Cause, "vol-1 is not mounted") {
		t.Errorf("an unmounted volume: %+v", c)
	}
}

func shell(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// takeSectorsAway makes a loop device fail, as the local region does when a volume is detached by force.
func takeSectorsAway(t *testing.T, device string, size uint64) {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	info.Offset = size
	if err := unix.IoctlLoopSetStatus64(int(f.Fd()), info); err != nil {
		t.Fatal(err)
	}
}
