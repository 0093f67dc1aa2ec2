// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProcessIsHardened: the process and what it starts write no core dump, and its memory is root's.
func TestProcessIsHardened(t *testing.T) {
	if os.Getenv("SLIPWAY_TEST_HARDEN") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessIsHardened$")
		cmd.Env = append(os.Environ(), "SLIPWAY_TEST_HARDEN=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}

	if err := hardenProcess(); err != nil {
		t.Fatal(err)
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 0 {
		t.Errorf("the process is dumpable: %d, %v", dumpable, err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -Hc").Output()
	if err != nil || strings.TrimSpace(string(out)) != "0" {
		t.Errorf("limit of core dumps of a child: %s, %v", out, err)
	}
}
