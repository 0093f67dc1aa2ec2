// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clockTicks is USER_HZ, the unit of times in /proc/PID/stat. It is 100 on every Linux that
// Kubernetes supports.
const clockTicks = 100

// process is a running process.
type process struct {
	pid     int
	started time.Time
}

// findProcess returns the process with exactly this command line, and whether there is one.
func findProcess(root *HostFS, command []string) (process, bool) {
	names, err := filepath.Glob(root.Path("/proc/[0-9]*/cmdline"))
	if err != nil {
		return process{}, false
	}

	for _, name := range names {
		body, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}

		if !slices.Equal(strings.Split(strings.TrimSuffix(string(body), "\x00"), "\x00"), command) {
			continue
		}

		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}

		if started, err := processStart(root, pid); err == nil {
			return process{pid: pid, started: started}, true
		}
	}

	return process{}, false
}

// processStart returns when a process was started.
func processStart(root *HostFS, pid int) (time.Time, error) {
	body, err := os.ReadFile(root.Path(fmt.Sprintf("/proc/%d/stat", pid)))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the start of process %d: %w", pid, err)
	}

	ticks, err := parseStartTicks(string(body))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the start of process %d: %w", pid, err)
	}

	boot, err := bootTime(root)
	if err != nil {
		return time.Time{}, err
	}

	return boot.Add(time.Duration(ticks) * (time.Second / clockTicks)), nil
}

// parseStartTicks returns the field starttime of /proc/PID/stat. The second field is the program's
// name in parentheses, which may contain spaces and parentheses.
func parseStartTicks(stat string) (int64, error) {
	_, rest, found := strings.Cut(stat[max(strings.LastIndex(stat, ")"), 0):], ") ")
	fields := strings.Fields(rest)
	const startTime = 19 // field 22 of the file; the rest begins with field 3
	if !found || len(fields) <= startTime {
		return 0, fmt.Errorf("not a line of /proc/PID/stat: %q", stat)
	}

	ticks, err := strconv.ParseInt(fields[startTime], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("not a line of /proc/PID/stat: %q", stat)
	}

	return ticks, nil
}

// bootTime returns when the kernel started.
func bootTime(root *HostFS) (time.Time, error) {
	body, err := root.Read("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}

	for line := range strings.Lines(string(body)) {
		if seconds, ok := strings.CutPrefix(strings.TrimSpace(line), "btime "); ok {
			n, err := strconv.ParseInt(seconds, 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("parse btime in /proc/stat: %q is not a number", seconds)
			}

			return time.Unix(n, 0), nil
		}
	}

	return time.Time{}, errors.New("read /proc/stat: it has no line btime")
}
