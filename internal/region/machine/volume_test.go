// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/region/machine"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// hasSysResource reports whether this process has CAP_SYS_RESOURCE, which containers often lack.
func hasSysResource(t *testing.T) bool {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && bits>>unix.CAP_SYS_RESOURCE&1 == 1
		}
	}
	return false
}

func TestVolumeMovesWithItsData(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	one, two := b.launch(1), b.launch(2)
	v := netspec.Volume{ID: "vol-0123456789abcdef0", Size: 2}
	byID := "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
	ctx := t.Context()
	must(t, b.host.CreateVolume(ctx, v))
	must(t, b.host.CreateVolume(ctx, v))
	must(t, b.host.Attach(ctx, v.ID, one.ID, "/dev/xvdf"))
	must(t, b.host.Attach(ctx, v.ID, one.ID, "/dev/xvdf"))
	if err := b.host.Attach(ctx, v.ID, two.ID, "/dev/xvdf"); err == nil {
		t.Error("a volume was attached to two machines")
	}
	if err := b.host.DeleteVolume(ctx, v.ID); err == nil {
		t.Error("an attached volume was deleted")
	}
	if got := b.mustRun(one.ID, "blockdev --getsize64 "+byID); got != "2147483648" {
		t.Errorf("size in the machine: %s", got)
	}
	links := byID + " " + byID + "_1 " + byID + "-ns-1 /dev/xvdf"
	if got := b.mustRun(one.ID, "readlink -f "+links+" | sort -u"); got != "/dev/nvme1n1" {
		t.Errorf("the links of systemd's and of Amazon's rules of udev lead to %q", got)
	}
	b.mustRun(one.ID, "mkfs.ext4 -q "+byID+" && mkdir -p /mnt/v && mount "+byID+" /mnt/v && echo kept >/mnt/v/file && sync /mnt/v/file")
	v.Size = 3
	must(t, b.host.CreateVolume(ctx, v)) // it grows while it is mounted
	if got := b.mustRun(one.ID, "blockdev --getsize64 "+byID+" && cat /sys/dev/block/$(mountpoint -d /mnt/v)/size"); got != "3221225472\n6291456" {
		t.Errorf("size in the machine after it has grown: %s", got)
	}
	t.Run("its file system grows", func(t *testing.T) {
		if !hasSysResource(t) {
			t.Skip("SKIPPED: ext4 grows only for a process with CAP_SYS_RESOURCE, which this machine's root lacks")
		}
		if got := b.mustRun(one.ID, "resize2fs $(findmnt -no SOURCE /mnt/v) 2>&1 && cat /mnt/v/file"); !strings.HasSuffix(got, "kept") {
			t.Errorf("its file system does not grow: %s", got)
		}
	})
	if err := b.host.Detach(ctx, v.ID, one.ID); !errors.Is(err, machine.ErrBusy) {
		t.Errorf("detach while mounted: %v, want ErrBusy", err)
	}
	b.mustRun(one.ID, "umount /mnt/v")
	b.eventually("the volume is released", func() bool { return b.host.Detach(ctx, v.ID, one.ID) == nil })
	must(t, b.host.Detach(ctx, v.ID, one.ID))
	if got := b.mustRun(one.ID, "ls -d "+links+" /dev/nvme* 2>/dev/null || true"); got != "" {
		t.Errorf("a detached volume is still there: %q", got)
	}

	must(t, b.host.Attach(ctx, v.ID, two.ID, "/dev/xvdf"))
	b.mustRun(two.ID, "mkdir -p /mnt/v && mount "+byID+" /mnt/v && grep kept /mnt/v/file && echo too >>/mnt/v/file && sync /mnt/v/file")
	must(t, b.host.Terminate(ctx, two.ID)) // mounted: termination unmounts it
	must(t, b.host.Attach(ctx, v.ID, one.ID, "/dev/xvdf"))
	must(t, b.host.Reboot(ctx, one.ID)) // an attached volume survives a reboot
	if got := b.mustRun(one.ID, "mount "+byID+" /mnt/v && cat /mnt/v/file"); got != "kept\ntoo" {
		t.Errorf("data after the move: %q", got)
	}
	b.eventually("its console has the line", func() bool {
		b.mustRun(one.ID, "echo died of this >/dev/console") // again, as a getty that starts late discards what was not read yet
		return b.wrote(one.ID, "died of this")
	})
	must(t, b.host.Terminate(ctx, one.ID))
	must(t, b.host.Terminate(ctx, one.ID))
	if !b.wrote(one.ID, "died of this") {
		t.Error("what a machine wrote is lost with its end")
	}
	must(t, b.host.DeleteVolume(ctx, v.ID))
	must(t, b.host.DeleteVolume(ctx, v.ID))
}

// A forced detachment of a mounted volume is like pulling a disk: writes fail, what was synced is kept, and the
// volume can be attached again.
func TestForcedDetachmentFailsTheDevice(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	one := b.launch(1)
	b.awaitRunning(one.ID)
	ctx := t.Context()
	v := netspec.Volume{ID: "vol-0123456789abcdef1", Size: 1}
	byID := "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef1"
	must(t, b.host.CreateVolume(ctx, v))
	must(t, b.host.Attach(ctx, v.ID, one.ID, "/dev/xvdf"))
	b.mustRun(one.ID, "mkfs.ext4 -q "+byID+" && mkdir -p /mnt/v && mount "+byID+" /mnt/v && echo kept >/mnt/v/file && sync /mnt/v/file")
	must(t, b.host.ForceDetach(ctx, v.ID, one.ID))
	must(t, b.host.ForceDetach(ctx, v.ID, one.ID))
	if out, err := b.run(one.ID, "echo lost >/mnt/v/other && sync /mnt/v/other"); err == nil {
		t.Errorf("a write to the mounted file system succeeded: %s", out)
	}
	b.mustRun(one.ID, "test ! -e "+byID)
	must(t, b.host.Attach(ctx, v.ID, one.ID, "/dev/xvdf"))
	if got := b.mustRun(one.ID, "umount -l /mnt/v && mount "+byID+" /mnt/v && cat /mnt/v/file && echo more >/mnt/v/other && sync /mnt/v/other"); got != "kept" {
		t.Errorf("data after the volume was attached again: %q", got)
	}
	b.mustRun(one.ID, "umount /mnt/v")
	must(t, b.host.Detach(ctx, v.ID, one.ID))
	must(t, b.host.DeleteVolume(ctx, v.ID))
}
