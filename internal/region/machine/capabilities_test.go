// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strconv"
	"strings"
	"testing"
)

// TestHostCapabilitiesAreMissing: the root of a machine may not do what acts on the host, such as loading a module or setting
// the clock. It was seen to have every capability.
func TestHostCapabilitiesAreMissing(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	line := b.mustRun(m.ID, "grep ^CapBnd /proc/1/status")
	_, text, _ := strings.Cut(line, "\t")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	for name, number := range map[string]int{
		"SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_PACCT": 20, "SYS_TIME": 25, "MAC_OVERRIDE": 32, "MAC_ADMIN": 33, "SYSLOG": 34, "WAKE_ALARM": 35, "BLOCK_SUSPEND": 36,
	} {
		if set&(1<<number) != 0 {
			t.Errorf("systemd may have %s: %s", name, line)
		}
	}
	for name, number := range map[string]int{"NET_ADMIN": 12, "SYS_ADMIN": 21, "SYS_BOOT": 22, "MKNOD": 27} {
		if set&(1<<number) == 0 {
			t.Errorf("systemd may not have %s, which a machine needs: %s", name, line)
		}
	}
}
