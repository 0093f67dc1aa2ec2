// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// TestVolumeGrowth: the file system grows when the device has another size, and a failed attempt is repeated.
func TestVolumeGrowth(t *testing.T) {
	a := testAgent(t)
	run := &unitRunner{}
	a.Run = run
	g := &volumeGrowth{agent: a}
	write := func(path, text string) {
		t.Helper()
		if _, err := a.Root.Write(File{Path: path, Body: []byte(text), Mode: 0o644, Shared: true}); err != nil {
			t.Fatal(err)
		}
	}
	look := func(want ...string) {
		t.Helper()
		run.lines = nil
		if err := g.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, run.lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	writeMountinfo(t, a, false)
	look()
	writeMountinfo(t, a, true)
	if err := g.run(t.Context()); err == nil {
		t.Error("a size that cannot be read was accepted")
	}
	write("/sys/dev/block/7:4/size", "41943040\n")
	look("resize2fs /dev/nvme1n1") // it may have grown while no agent ran
	look()
	write("/sys/dev/block/7:4/size", "62914560\n")
	look("resize2fs /dev/nvme1n1")
	look()
	write("/proc/self/mountinfo", "70 42 7:4 / "+etcd.DataMount+" ro shared:30 - ext4 /dev/nvme1n1 ro\n")
	write("/sys/dev/block/7:4/size", "83886080\n")
	look()
	writeMountinfo(t, a, true)
	look("resize2fs /dev/nvme1n1")
	write("/sys/dev/block/7:4/size", "many\n")
	if err := g.run(t.Context()); err == nil {
		t.Error("a size that is no number was accepted")
	}
}
