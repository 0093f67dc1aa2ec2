// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// minimumSysctls returns the kernel limits that a host of several machines needs. Each machine has
// its own systemd, kubelet, and containers, but these limits apply to all machines together.
// Debian's defaults are 128 inotify instances and 32768 processes.
func minimumSysctls() map[string]int {
	return map[string]int{
		"fs/inotify/max_user_instances": 8192,
		"fs/inotify/max_user_watches":   1 << 20,
		"kernel/pid_max":                1 << 22,
		"kernel/keys/maxkeys":           20000,
		"kernel/keys/maxbytes":          2000000,
	}
}

// conntrackMax is the setting of the size of the connection table, which only the host's own network namespace can change.
const conntrackMax = "net/netfilter/nf_conntrack_max"

// fixedSysctls returns the settings for which a machine accepts no other value. kube-proxy sets the size of the connection
// table if it differs from its own default: 32768 for each processor, at least 131072. In a machine that fails, and
// kube-proxy exits.
func fixedSysctls(cpus int) map[string]int {
	return map[string]int{conntrackMax: max(131072, 32768*cpus)}
}

// kubeletSysctls returns the settings that a kubelet requires and changes otherwise. Machines cannot change them.
func kubeletSysctls() map[string]string {
	return map[string]string{
		"kernel/keys/root_maxbytes": "25000000",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
	}
}

// hostModules returns the kernel modules that a machine expects of the kernel, with a path that exists if the host has it.
func hostModules() map[string]string {
	return map[string]string{
		"br_netfilter": "/proc/sys/net/bridge",
		"overlay":      "/sys/module/overlay",
		"vxlan":        "/sys/module/vxlan",
		"wireguard":    "/sys/module/wireguard",
		"nf_conntrack": "/proc/sys/" + conntrackMax,
	}
}

// loadHostModules loads the modules that the host's kernel has as files. A failure is ignored: the module may be built in,
// and a machine that lacks one reports it.
func loadHostModules(ctx context.Context) {
	for _, name := range slices.Sorted(maps.Keys(hostModules())) {
		if _, err := os.Stat(hostModules()[name]); errors.Is(err, fs.ErrNotExist) {
			_ = exec.CommandContext(ctx, "modprobe", name).Run()
		}
	}
}

// savedSysctls returns the host-wide settings whose values are saved and restored.
func savedSysctls() []string {
	return slices.Concat(
		slices.Sorted(maps.Keys(minimumSysctls())),
		slices.Sorted(maps.Keys(kubeletSysctls())),
		[]string{conntrackMax},
	)
}

func savedSysctlsFile(dir string) string { return filepath.Join(dir, "sysctls.json") }

// raiseSysctls raises kernel limits and first saves the previous values. Existing saved values are
// kept, because the current ones may already be changed.
func raiseSysctls(dir string) error {
	if _, err := os.Stat(savedSysctlsFile(dir)); errors.Is(err, fs.ErrNotExist) {
		before := map[string]string{}
		for _, name := range savedSysctls() {
			if value, err := readSysctl(name); err == nil { // the kernel may not have this setting
				before[name] = value
			}
		}

		if err := writeJSON(savedSysctlsFile(dir), before); err != nil {
			return fmt.Errorf("save kernel settings: %w", err)
		}
	}

	for name, want := range minimumSysctls() {
		value, err := readSysctl(name)
		if err != nil {
			continue
		}

		if have, err := strconv.Atoi(value); err == nil && have < want {
			// A failure is ignored: the limit may suffice, and a machine that needs more reports
			// it.
			_ = os.WriteFile(filepath.Join("/proc/sys", name), []byte(strconv.Itoa(want)), 0o600)
		}
	}

	for name, want := range kubeletSysctls() {
		if have, err := readSysctl(name); err == nil && have != want {
			_ = os.WriteFile(filepath.Join("/proc/sys", name), []byte(want), 0o600) // a kubelet reports it
		}
	}

	return setFixedSysctls()
}

func setFixedSysctls() error {
	for name, value := range fixedSysctls(runtime.NumCPU()) {
		want := strconv.Itoa(value)
		if have, err := readSysctl(name); err != nil || have == want {
			continue // kube-proxy sets nothing either if the kernel does not have it
		}

		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(want), 0o600); err != nil {
			return fmt.Errorf("set kernel setting %s to %s, which kube-proxy requires: %w", name, want, err)
		}
	}

	return nil
}

// restoreSysctls restores the saved kernel settings.
func restoreSysctls(dir string) error {
	data, err := os.ReadFile(savedSysctlsFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("read saved kernel settings: %w", err)
	}

	var before map[string]string
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("parse saved kernel settings: %w", err)
	}

	var errs []error

	for _, name := range slices.Sorted(maps.Keys(before)) {
		value, err := readSysctl(name)
		if err != nil || value == before[name] {
			continue
		}

		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(before[name]), 0o600); err != nil {
			errs = append(errs, fmt.Errorf("restore kernel setting %s: %w", name, err))
		}
	}

	return errors.Join(append(errs, os.Remove(savedSysctlsFile(dir)))...)
}

func readSysctl(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return "", fmt.Errorf("read kernel setting %s: %w", name, err)
	}

	return strings.TrimSpace(string(data)), nil
}
