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

// minimumSysctls are kernel limits that a host of several machines needs: each has its own systemd, kubelet and containers, but
// these are counted over all of them. Debian's defaults are 128 inotify instances and 32768 processes.
func minimumSysctls() map[string]int {
	return map[string]int{
		"fs/inotify/max_user_instances": 8192,
		"fs/inotify/max_user_watches":   1 << 20,
		"kernel/pid_max":                1 << 22,
		"kernel/keys/maxkeys":           20000,
		"kernel/keys/maxbytes":          2000000,
	}
}

// sharedSysctls are the settings of the whole host that a kubelet sets in a machine. They are remembered, to be put back.
func sharedSysctls() []string {
	return []string{
		"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
		"vm/max_map_count", "vm/overcommit_memory", "vm/panic_on_oom",
	}
}

func savedSysctlsFile(dir string) string { return filepath.Join(dir, "sysctls.json") }

// raiseSysctls raises limits, after it wrote down what they were. It writes down only once: later values are our own.
func raiseSysctls(dir string) error {
	if _, err := os.Stat(savedSysctlsFile(dir)); errors.Is(err, fs.ErrNotExist) {
		before := map[string]string{}
		for _, name := range slices.Concat(slices.Sorted(maps.Keys(minimumSysctls())), sharedSysctls()) {
			if value, err := readSysctl(name); err == nil { // a kernel may lack one
				before[name] = value
			}
		}

		if err := writeJSON(savedSysctlsFile(dir), before); err != nil {
			return fmt.Errorf("remember kernel settings: %w", err)
		}
	}

	for name, want := range minimumSysctls() {
		value, err := readSysctl(name)
		if err != nil {
			continue
		}

		if have, err := strconv.Atoi(value); err == nil && have < want {
			// What cannot be raised may still suffice; a machine that needs more says so itself.
			_ = os.WriteFile(filepath.Join("/proc/sys", name), []byte(strconv.Itoa(want)), 0o600)
		}
	}

	return nil
}

// restoreSysctls puts the kernel settings back to what they were before the first machine.
func restoreSysctls(dir string) error {
	data, err := os.ReadFile(savedSysctlsFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("read remembered kernel settings: %w", err)
	}

	var before map[string]string
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("read remembered kernel settings: %w", err)
	}

	var errs []error

	for _, name := range slices.Sorted(maps.Keys(before)) {
		value, err := readSysctl(name)
		if err != nil || value == before[name] {
			continue
		}

		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(before[name]), 0o600); err != nil {
			errs = append(errs, fmt.Errorf("put back kernel setting %s: %w", name, err))
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
