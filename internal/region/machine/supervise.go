// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SupervisorCommand is the hidden first argument for which a program that runs machines must call
// [Main].
const SupervisorCommand = "region-machine"

// startTimeout limits the time from a supervisor's start to its machine's PID 1. It usually takes
// 50 ms, but a loaded host needs more.
const startTimeout = 30 * time.Second

// readyReport is what the supervisor reports when the machine has started. Any other report is an
// error message.
const readyReport = "ready"

// Main runs the supervisor or the boot stage. The arguments are those after [SupervisorCommand]. It
// returns the exit code.
func Main(args []string, stderr io.Writer) int {
	if len(args) < 2 {
		fmt.Fprintln(
			stderr,
			"usage: region-machine supervise|boot DIRECTORY (started by the region, not by users)",
		)

		return 2
	}

	dir := machineDir{path: args[1]}
	report := os.NewFile(3, "report")
	syscall.CloseOnExec(3)
	var err error

	switch args[0] {
	case "supervise":
		err = runSupervisor(dir, report)
	case "boot":
		err = runBootStage(dir, args[2:])
	default:
		err = fmt.Errorf("unknown stage %q", args[0])
	}

	if err == nil {
		return 0
	}

	fmt.Fprintln(stderr, "region-machine:", err)
	if report != nil {
		fmt.Fprint(report, err.Error())
	}

	return 1
}

// startSupervisor starts a machine's supervisor in its own session and waits for the machine's PID
// 1.
func (h *Host) startSupervisor(ctx context.Context, dir machineDir) error {
	log, err := os.OpenFile(
		filepath.Join(dir.path, "supervisor.log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600,
	)
	if err != nil {
		return fmt.Errorf("open supervisor's log: %w", err)
	}

	defer func() { _ = log.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}

	defer func() { _ = r.Close() }()
	cmd := &exec.Cmd{
		Path:        h.cfg.Executable,
		Args:        []string{"slipway", SupervisorCommand, "supervise", dir.path},
		Dir:         "/",
		Env:         []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GOMAXPROCS=2", "GOMEMLIMIT=32MiB"},
		Stdout:      log,
		Stderr:      log,
		ExtraFiles:  []*os.File{w},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}

	go func() { _ = cmd.Wait() }() // runs as long as the machine; reaps its exit status
	if err := awaitReady(ctx, r); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}

	return nil
}

// awaitReady waits for the supervisor's report. A supervisor that closes the pipe without a report
// has died.
func awaitReady(ctx context.Context, r *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	report := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(r) // an error counts as an empty report
		report <- data
	}()

	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the machine's supervisor: %w", ctx.Err())
	case data := <-report:
		if text := strings.TrimSpace(string(data)); text != readyReport {
			return fmt.Errorf("the machine's supervisor failed: %q", text)
		}

		return nil
	}
}

// runSupervisor boots a machine, logs its console, and boots it again when the machine reboots
// itself (reboot(2) in a PID namespace shows as SIGHUP). It returns when the machine has stopped.
func runSupervisor(dir machineDir, report *os.File) error {
	// Pdeathsig of PID 1 is bound to the thread that started it.
	runtime.LockOSThread()
	unlock, err := dir.lockSupervisor()
	if err != nil {
		return err
	}

	defer unlock()
	con, err := openConsole(dir.consoleLog())
	if err != nil {
		return err
	}

	defer con.close()

	for {
		s, err := dir.readSpec()
		if err != nil {
			return err
		}

		cmd, err := dir.startInit(s, con)
		if err != nil {
			return err
		}

		if report != nil {
			fmt.Fprint(report, readyReport)
			_ = report.Close()
			report = nil
		}

		reboot, err := waitForExit(cmd)
		if err != nil || !reboot {
			return err
		}

		if err := dir.prepareDisk(s); err != nil {
			return err
		}
	}
}

// lockSupervisor ensures that a machine has one supervisor. The lock lasts until the returned
// function is called or this process ends.
func (d machineDir) lockSupervisor() (func(), error) {
	f, err := os.OpenFile(filepath.Join(d.path, "supervisor.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock machine: %w", err)
	}

	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock machine: another supervisor has it: %w", err), f.Close())
	}

	return func() { _ = f.Close() }, nil
}

// startInit creates the machine's cgroups and PID 1, and writes the pid file when PID 1 is systemd.
func (d machineDir) startInit(s machineSpec, con *serialConsole) (*exec.Cmd, error) {
	groups, err := ensureHierarchies()
	if err != nil {
		return nil, err
	}

	if err := makeCgroups(groups, s.cgroupPath(), s.Machine.VCPUs); err != nil {
		return nil, err
	}

	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start PID 1: %w", err)
	}

	defer func() { _ = r.Close() }()
	cmd := &exec.Cmd{
		Path:       "/proc/self/exe",
		Args:       []string{"slipway", SupervisorCommand, "boot", d.path, con.slave.Name()},
		Dir:        "/",
		Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Stdin:      con.slave,
		Stdout:     con.slave,
		Stderr:     con.slave,
		ExtraFiles: []*os.File{w},
		SysProcAttr: &syscall.SysProcAttr{
			Setsid:    true,
			Pdeathsig: syscall.SIGKILL,
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS |
				syscall.CLONE_NEWIPC,
		},
	}

	err = inNetwork(s.Netns, cmd.Start)
	_ = w.Close()
	if err != nil {
		return nil, fmt.Errorf("start PID 1: %w", err)
	}

	if err := awaitExec(r); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}

	return cmd, d.writePIDFile(cmd.Process.Pid)
}

// awaitExec waits until the boot stage has executed systemd, which closes its end of the pipe, or
// has reported an error.
func awaitExec(r *os.File) error {
	if err := r.SetReadDeadline(deadlineAfter(startTimeout)); err != nil {
		return fmt.Errorf("wait for PID 1: %w", err)
	}

	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("wait for PID 1: %w", err)
	}

	if text := bytes.TrimSpace(data); len(text) > 0 {
		return fmt.Errorf("PID 1 cannot start: %s", text)
	}

	return nil
}

func (d machineDir) writePIDFile(pid int) error {
	child, err := identifyProcess(pid)
	if err != nil {
		return err
	}

	self, err := identifyProcess(os.Getpid())
	if err != nil {
		return err
	}

	return writeJSON(d.pidFile(), machineProcesses{Init: child, Supervisor: self})
}

// inNetwork calls start while this thread is in the network namespace at path, which a new process
// inherits.
func inNetwork(path string, start func() error) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}

	defer func() { _ = own.Close() }()
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}

	defer func() { _ = ns.Close() }()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}

	err = start()
	// If the thread stayed, the supervisor would keep the namespace alive.
	if leaveErr := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); leaveErr != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace: %w", leaveErr))
	}

	return err
}

// waitForExit waits until PID 1 exits and reports whether the machine requested a reboot.
func waitForExit(cmd *exec.Cmd) (reboot bool, err error) {
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return false, fmt.Errorf("wait for PID 1: %w", err)
	}

	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)

	return ok && status.Signaled() && status.Signal() == syscall.SIGHUP, nil
}

func (s machineSpec) cgroupPath() string { return filepath.Join(cgroupTop, s.Region, s.Machine.ID) }
