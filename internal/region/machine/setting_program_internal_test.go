// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSettingsOfTheHost: root with a new mount of /proc, in the cgroup of a machine, cannot write kernel settings of the host, and can
// write those of its own network. Seen to succeed as the attacker without the program.
func TestSettingsOfTheHost(t *testing.T) {
	groups, err := listHierarchies()
	if err != nil {
		t.Fatal(err)
	}

	at := slices.IndexFunc(groups, func(h cgroupHierarchy) bool { return h.V2 })
	if os.Geteuid() != 0 || at < 0 {
		t.Skip("SKIPPED: cgroup version 2, and root, are needed")
	}

	if _, err := loadProgram(unix.BPF_PROG_TYPE_CGROUP_SYSCTL, settingProgram(ownSettings())); err != nil {
		t.Skipf("SKIPPED: the kernel takes no program for the settings of a cgroup: %v", err)
	}

	unified := groups[at : at+1]
	top := fmt.Sprintf("slipway-settings-%d", os.Getpid())
	t.Cleanup(func() {
		if err := removeCgroups(context.Background(), unified, top); err != nil {
			t.Error(err)
		}
	})
	if err := unified[0].createCgroup(top, nil); err != nil {
		t.Fatal(err)
	}

	procs := filepath.Join(unified[0].Mount, top, "cgroup.procs")
	write := func(setting string) bool {
		t.Helper()
		path := "$d/sys/" + setting
		script := "echo $$ >" + procs + " && d=$(mktemp -d) && mount -t proc proc $d && v=$(cat " + path + ") || exit 1; " +
			"if (echo \"$v\" >" + path + ") 2>/dev/null; then echo written; else echo refused; fi; umount $d; rmdir $d"
		out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--uts", "--ipc", "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", setting, err, out)
		}

		return strings.TrimSpace(string(out)) == "written"
	}

	if !write("kernel/panic") {
		t.Error("without the program, the test's own write fails")
	}

	denyHostSettings(unified, top)
	for _, host := range []string{"kernel/panic", "vm/overcommit_memory", "kernel/core_pattern", "fs/file-max"} {
		if write(host) {
			t.Errorf("%s of the host was written", host)
		}
	}

	for _, own := range []string{"net/ipv4/ip_forward", "kernel/hostname", "kernel/shmmax", "kernel/sem"} {
		if !write(own) {
			t.Errorf("%s of the own namespace was refused", own)
		}
	}
}
