// SPDX-License-Identifier: Apache-2.0

package machine_test

import "testing"

// TestStoppedMachineKeepsItsDisk: a machine that was stopped boots with its disk again, and what was in memory is gone.
func TestStoppedMachineKeepsItsDisk(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	b.mustRun(m.ID, "touch /root/kept /var/lib/containerd/kept /run/lost")
	for range 2 {
		must(t, b.host.Stop(t.Context(), m.ID)) // again is the same
	}
	if b.host.Alive(m.ID) {
		t.Error("the machine runs after it was stopped")
	}
	must(t, b.host.Launch(t.Context(), m))
	b.awaitRunning(m.ID)
	if got := b.mustRun(m.ID, "ls /root/kept /var/lib/containerd/kept; test -e /run/lost || echo gone"); got != "/root/kept\n/var/lib/containerd/kept\ngone" {
		t.Errorf("after the second boot: %q", got)
	}
	must(t, b.host.Stop(t.Context(), "i-00000000000000009")) // unknown
	must(t, b.host.Terminate(t.Context(), m.ID))
	must(t, b.host.Launch(t.Context(), m))
	b.awaitRunning(m.ID)
	if got := b.mustRun(m.ID, "test -e /root/kept || echo gone"); got != "gone" {
		t.Errorf("after a termination: %q", got)
	}
}
