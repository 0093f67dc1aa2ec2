// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupTop is the cgroup in each hierarchy that contains the machines of all regions:
// slipway/<region>/<instance>.
const cgroupTop = "slipway"

// cgroupHierarchy is a mounted cgroup hierarchy of the host.
type cgroupHierarchy struct {
	Mount string // mount point, such as /sys/fs/cgroup/memory
	V2    bool
	// Options mount the same version 1 hierarchy again: its controllers, or none,name=systemd.
	Options string
}

// DirName returns the hierarchy's usual directory name in /sys/fs/cgroup.
func (h cgroupHierarchy) DirName() string {
	if h.V2 {
		return "unified"
	}

	return strings.TrimPrefix(h.Options, "none,name=")
}

// listHierarchies returns the host's mounted hierarchies without duplicates.
func listHierarchies() ([]cgroupHierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}

	defer func() { _ = f.Close() }()
	var out []cgroupHierarchy

	for lines := bufio.NewScanner(f); lines.Scan(); {
		h, ok := parseHierarchy(lines.Text())
		if ok &&
			!slices.ContainsFunc(out, func(o cgroupHierarchy) bool { return o.DirName() == h.DirName() }) {
			out = append(out, h)
		}
	}

	return out, nil
}

// parseHierarchy parses a line of mountinfo: id parent major:minor root mountpoint options … - type
// source superoptions.
func parseHierarchy(line string) (cgroupHierarchy, bool) {
	head, rest, ok := strings.Cut(line, " - ")
	before := strings.Fields(head)
	after := strings.Fields(rest)
	if !ok || len(before) < 5 || len(after) < 3 || before[3] != "/" {
		return cgroupHierarchy{}, false
	}

	switch after[0] {
	case "cgroup2":
		return cgroupHierarchy{Mount: before[4], V2: true}, true
	case "cgroup":
	default:
		return cgroupHierarchy{}, false
	}

	var controllers []string

	for opt := range strings.SplitSeq(after[2], ",") {
		switch {
		case strings.HasPrefix(opt, "name="):
			return cgroupHierarchy{Mount: before[4], Options: "none," + opt}, opt == "name=systemd"
		case opt == "",
			opt == "rw",
			opt == "ro",
			opt == "xattr",
			opt == "clone_children",
			opt == "noprefix",
			strings.Contains(opt, "="):

		default:
			controllers = append(controllers, opt)
		}
	}

	return cgroupHierarchy{Mount: before[4], Options: strings.Join(controllers, ",")}, len(controllers) > 0
}

// ensureHierarchies mounts the hierarchies that systemd in a machine needs, if the host lacks them:
// version 2 if none is mounted, and the named systemd hierarchy if version 1 is used.
func ensureHierarchies() ([]cgroupHierarchy, error) {
	groups, err := listHierarchies()
	if err != nil {
		return nil, err
	}

	v1 := slices.ContainsFunc(groups, func(h cgroupHierarchy) bool { return !h.V2 })
	named := slices.ContainsFunc(
		groups,
		func(h cgroupHierarchy) bool { return h.Options == "none,name=systemd" },
	)

	switch {
	case len(groups) == 0:
		if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
			return nil, fmt.Errorf("mount cgroup2 on /sys/fs/cgroup: %w", err)
		}

	case v1 && !named:
		const path = "/sys/fs/cgroup/systemd"
		if err := makeDir(path); err != nil {
			return nil, fmt.Errorf("mount cgroup hierarchy name=systemd: %w", err)
		}

		if err := unix.Mount("cgroup", path, "cgroup", 0, "none,name=systemd"); err != nil {
			return nil, fmt.Errorf("mount cgroup hierarchy name=systemd: %w", err)
		}

	default:
		return groups, nil
	}

	return listHierarchies()
}

// makeCgroups creates a cgroup with this path in every hierarchy, sets its CPU weight, and denies it the host's devices and settings. On
// version 1, cpuset needs values; on version 2, controllers must be enabled from the top.
func makeCgroups(groups []cgroupHierarchy, path string, vcpus int) error {
	for _, h := range groups {
		if h.hasDevices() { // its rules are set from the top, see denyHostDevices
			continue
		}

		if err := h.createCgroup(path, nil); err != nil {
			return err
		}
	}

	if err := denyHostDevices(groups, path); err != nil {
		return err
	}

	denyHostSettings(groups, path)
	for _, h := range groups {
		shares := filepath.Join(h.Mount, path, "cpu.shares")
		if _, err := os.Stat(shares); err == nil && vcpus > 0 {
			if err := os.WriteFile(shares, []byte(strconv.Itoa(vcpus*1024)), 0o600); err != nil {
				return fmt.Errorf("set cpu.shares of cgroup: %w", err)
			}
		}
	}

	return nil
}

// createCgroup creates a cgroup with this path and those above it. It calls restrict, unless that is nil, for each of them
// before it creates the next one.
func (h cgroupHierarchy) createCgroup(path string, restrict func(cgroup string) error) error {
	at := h.Mount
	for part := range strings.SplitSeq(path, "/") {
		if h.V2 {
			enableControllers(at)
		}

		next := filepath.Join(at, part)
		if err := unix.Mkdir(next, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create cgroup %s: %w", next, err)
		}

		if err := inheritCPUSet(at, next); err != nil {
			return err
		}

		if restrict != nil {
			if err := restrict(next); err != nil {
				return err
			}
		}

		at = next
	}

	return nil
}

// enableControllers enables all controllers for child cgroups, one at a time, because some may be
// unavailable.
func enableControllers(dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}

	for controller := range strings.FieldsSeq(string(data)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o600)
	}
}

func inheritCPUSet(parent, child string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(child, name))
		if err != nil || strings.TrimSpace(string(have)) != "" {
			continue // the hierarchy has no cpuset, or the value is set
		}

		want, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil || strings.TrimSpace(string(want)) == "" {
			continue // version 2: empty means the parent's value
		}

		if err := os.WriteFile(filepath.Join(child, name), want, 0o600); err != nil {
			return fmt.Errorf("set %s of cgroup: %w", name, err)
		}
	}

	return nil
}

// joinCgroups moves the calling process into the cgroup with this path in every hierarchy.
func joinCgroups(groups []cgroupHierarchy, path string) error {
	for _, h := range groups {
		if err := os.WriteFile(filepath.Join(h.Mount, path, "cgroup.procs"), []byte("0"), 0o600); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}

	return nil
}

// removeCgroups kills all processes in the cgroup with this path and below, in every hierarchy, and
// removes the cgroups.
func removeCgroups(ctx context.Context, groups []cgroupHierarchy, path string) error {
	for _, h := range groups {
		top := filepath.Join(h.Mount, path)
		err := pollUntil(ctx, 20*time.Second, func() (bool, error) {
			if _, err := os.Stat(top); errors.Is(err, fs.ErrNotExist) {
				return true, nil
			}

			killAndRemoveCgroup(top)
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("remove cgroup %s: %w", top, err)
		}
	}

	return nil
}

// killAndRemoveCgroup kills and removes a cgroup, children first. Busy cgroups remain for the next
// attempt.
func killAndRemoveCgroup(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}

	for _, e := range entries {
		if e.IsDir() {
			killAndRemoveCgroup(filepath.Join(dir, e.Name()))
		}
	}

	for _, pid := range cgroupPIDs(dir) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}

	_ = unix.Rmdir(dir)
}

func cgroupPIDs(dir string) []int {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}

	var pids []int

	for field := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}

	return pids
}
