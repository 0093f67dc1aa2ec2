// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processIdentity identifies a process uniquely. Process ids are reused, but not with the same
// start time.
type processIdentity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // clock ticks after boot, field 22 of /proc/PID/stat
	Boot  string `json:"boot"`  // the host's boot id
}

// machineProcesses is the content of a machine's pid file.
type machineProcesses struct {
	Init       processIdentity `json:"init"`
	Supervisor processIdentity `json:"supervisor"`
}

// identifyProcess returns the identity of a running process.
func identifyProcess(pid int) (processIdentity, error) {
	start, _, err := procStat(pid)
	if err != nil {
		return processIdentity{}, err
	}

	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return processIdentity{}, fmt.Errorf("read boot id: %w", err)
	}

	return processIdentity{PID: pid, Start: start, Boot: string(bytes.TrimSpace(boot))}, nil
}

// procStat returns a process's start time and state letter.
func procStat(pid int) (start, state string, err error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", "", fmt.Errorf("read process %d: %w", pid, err)
	}

	start, state, ok := parseStat(data)
	if !ok {
		return "", "", fmt.Errorf("read process %d: unexpected stat %q", pid, data)
	}

	return start, state, nil
}

// parseStat parses /proc/PID/stat. The process name, in parentheses, may contain any characters.
func parseStat(data []byte) (start, state string, ok bool) {
	i := bytes.LastIndex(data, []byte(") "))
	if i < 0 {
		return "", "", false
	}

	fields := strings.Fields(string(data[i+2:]))
	if len(fields) < 20 {
		return "", "", false
	}

	return fields[19], fields[0], true
}

// isRunning reports whether this process runs. A zombie does not count as running.
func (p processIdentity) isRunning() bool {
	if p.PID <= 0 {
		return false
	}

	now, err := identifyProcess(p.PID)
	if err != nil || now != p {
		return false
	}

	_, state, err := procStat(p.PID)

	return err == nil && state != "Z" && state != "X"
}

// killAndWait kills this process and waits until it has exited.
func (p processIdentity) killAndWait(ctx context.Context) error {
	if !p.isRunning() {
		return nil
	}

	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}

	defer func() { _ = unix.Close(fd) }()
	if !p.isRunning() { // the process id was reused before it was opened
		return nil
	}

	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}

	return pollUntil(ctx, 20*time.Second, func() (bool, error) { return !p.isRunning(), nil })
}

// pollUntil calls done every 10 ms until it returns true or an error, for at most limit.
func pollUntil(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out after %s: %w", limit, ctx.Err())
		case <-tick.C:
		}
	}
}

func (d machineDir) readProcesses() (machineProcesses, bool) {
	data, err := os.ReadFile(d.pidFile())
	if err != nil {
		return machineProcesses{}, false
	}

	var r machineProcesses
	if json.Unmarshal(data, &r) != nil {
		return machineProcesses{}, false
	}

	return r, true
}

func (d machineDir) isAlive() bool {
	r, ok := d.readProcesses()
	return ok && r.Init.isRunning()
}

// killProcesses kills the machine's supervisor and PID 1; the kernel then kills all other processes
// of the PID namespace.
func (d machineDir) killProcesses(ctx context.Context) error {
	r, ok := d.readProcesses()
	if !ok {
		return nil
	}

	// The supervisor first, so that it cannot boot the machine again. Its death kills PID 1 too
	// (Pdeathsig).
	if err := r.Supervisor.killAndWait(ctx); err != nil {
		return fmt.Errorf("kill supervisor: %w", err)
	}

	if err := r.Init.killAndWait(ctx); err != nil {
		return fmt.Errorf("kill PID 1: %w", err)
	}

	return nil
}

// killSupervisors kills the supervisors of the machine with the directory dir, or of all machines
// below dir. It finds them by their command line, in case the pid file is lost.
func killSupervisors(ctx context.Context, dir string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}

	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !isSupervisor(pid, dir) {
			continue
		}

		p, err := identifyProcess(pid)
		if err != nil { // it has exited meanwhile
			continue
		}

		if err := p.killAndWait(ctx); err != nil {
			return fmt.Errorf("kill supervisor %d: %w", pid, err)
		}
	}

	return nil
}

func isSupervisor(pid int, dir string) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}

	return matchesSupervisor(string(data), dir)
}

func matchesSupervisor(cmdline, dir string) bool {
	args := strings.Split(cmdline, "\x00")
	if len(args) < 4 || args[1] != SupervisorCommand || (args[2] != "supervise" && args[2] != "boot") {
		return false
	}

	return args[3] == dir || strings.HasPrefix(args[3], dir+"/")
}
