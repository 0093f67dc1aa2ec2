// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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

// sharedSysctls returns the host-wide settings that a kubelet changes inside a machine. Their
// values are saved and restored.
func sharedSysctls() []string {
	return []string{
		"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
		"vm/max_map_count", "vm/overcommit_memory", "vm/panic_on_oom",
	}
}

func savedSysctlsFile(dir string) string { return filepath.Join(dir, "sysctls.json") }

// raiseSysctls raises kernel limits and first saves the previous values. Existing saved values are
// kept, because the current ones may already be changed.
func raiseSysctls(dir string) error {
	if _, err := os.Stat(savedSysctlsFile(dir)); errors.Is(err, fs.ErrNotExist) {
		before := map[string]string{}
		for _, name := range slices.Concat(slices.Sorted(maps.Keys(minimumSysctls())), sharedSysctls()) {
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
