// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHierarchy(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       cgroupHierarchy
		ok         bool
	}{
		{"one controller", "33 32 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory", cgroupHierarchy{Mount: "/sys/fs/cgroup/memory", Options: "memory"}, true},
		{"joined", "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct", cgroupHierarchy{Mount: "/sys/fs/cgroup/cpu,cpuacct", Options: "cpu,cpuacct"}, true},
		{"systemd's", "33 32 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd", cgroupHierarchy{Mount: "/sys/fs/cgroup/systemd", Options: "none,name=systemd"}, true},
		{"with an agent", "33 32 0:29 / /a rw - cgroup systemd rw,xattr,release_agent=/lib/x,pids", cgroupHierarchy{Mount: "/a", Options: "pids"}, true},
		{"version 2", "33 32 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate", cgroupHierarchy{Mount: "/sys/fs/cgroup", V2: true}, true},
		{"another hierarchy", "33 32 0:29 / /a rw - cgroup cgroup rw,name=openrc", cgroupHierarchy{}, false},
		{"a container's part", "33 32 0:29 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", cgroupHierarchy{}, false},
		{"a disk", "33 32 0:29 / / rw - ext4 /dev/vda rw", cgroupHierarchy{}, false},
		{"nothing", "", cgroupHierarchy{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseHierarchy(tt.line)
			if ok != tt.ok {
				t.Fatalf("ok = %v, want %v", ok, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got); ok && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseHierarchy(f *testing.F) {
	f.Add("33 32 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory")
	f.Add("33 32 0:29 / /x rw - cgroup cgroup rw,name=systemd")
	f.Fuzz(func(t *testing.T, line string) {
		h, ok := parseHierarchy(line)
		if ok && (h.Mount == "" || (!h.V2 && h.Options == "")) {
			t.Errorf("%q: half a hierarchy %+v", line, h)
		}
	})
}

func TestParseStat(t *testing.T) {
	for _, tt := range []struct{ name, data, start, state string }{
		{"plain", "7 (sh) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9", "4242", "S"},
		{"a name that looks like more", "7 (a) Z 1 (b)) R 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 77 9 9", "77", "R"},
		{"cut short", "7 (sh) S 1 7", "", ""},
		{"nothing", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start, state, ok := parseStat([]byte(tt.data))
			if start != tt.start || state != tt.state || ok != (tt.start != "") {
				t.Errorf("got %q, %q, %v", start, state, ok)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (sh) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if start, state, ok := parseStat(data); ok && (start == "" || state == "") {
			t.Errorf("%q: %q, %q", data, start, state)
		}
	})
}

func TestOverlayOptionsAreEscaped(t *testing.T) {
	if got, want := escapeOverlayPath(`/a:b,c\d`), `/a\:b\,c\\d`; got != want {
		t.Errorf("escape: %s, want %s", got, want)
	}
}

func TestRingKeepsTheEnd(t *testing.T) {
	r := &rotatingLog{path: filepath.Join(t.TempDir(), "log"), limit: 100}
	for i := range 50 {
		if n, err := r.Write([]byte(strings.Repeat(string(rune('a'+i%26)), 10))); n != 10 || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	var all []byte
	for _, name := range []string{r.path + ".1", r.path} {
		data, err := os.ReadFile(name)
		if err != nil || len(data) > 100 {
			t.Fatalf("%s: %d bytes, %v", name, len(data), err)
		}
		all = append(all, data...)
	}
	if !strings.HasSuffix(string(all), strings.Repeat("w", 10)+strings.Repeat("x", 10)) {
		t.Errorf("the end is not kept: %s", all)
	}
}

func TestSupervisorsAreFoundByTheirFolderOnly(t *testing.T) {
	if isSupervisor(os.Getpid(), "/") {
		t.Error("a process that supervises nothing was taken for a supervisor")
	}
	if !matchesSupervisor("slipway\x00"+SupervisorCommand+"\x00supervise\x00/r/instances/i-1\x00", "/r/instances") {
		t.Error("a machine's supervisor was not found by its region's folder")
	}
	for _, line := range []string{
		"slipway\x00" + SupervisorCommand + "\x00supervise\x00/r/instances2/i-1\x00",
		"grep\x00-r\x00" + SupervisorCommand + "\x00/r/instances/i-1\x00",
		"",
	} {
		if matchesSupervisor(line, "/r/instances") {
			t.Errorf("%q was taken for a supervisor", line)
		}
	}
}
