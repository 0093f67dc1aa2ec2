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

// SupervisorCommand is the hidden first argument with which a program that runs machines must call [Main].
const SupervisorCommand = "region-machine"

// startTimeout is how long a machine may take from its supervisor's start to its PID 1. It takes about 50 ms; a loaded
// host gets the rest.
const startTimeout = 30 * time.Second

// readyReport is what the supervisor and the boot stage say when they are done; anything else is what went wrong.
const readyReport = "ready"

// Main is the supervisor's and the boot stage's entry: args is what follows Command. It returns the exit code.
func Main(args []string, stderr io.Writer) int {
	if len(args) < 2 {
		fmt.Fprintln(
			stderr,
			"usage: region-machine supervise|boot FOLDER; started by the region, not by hand",
		)

		return 2
	}

	in := machineDir{path: args[1]}
	report := os.NewFile(3, "report")
	syscall.CloseOnExec(3)
	var err error

	switch args[0] {
	case "supervise":
		err = runSupervisor(in, report)
	case "boot":
		err = runBootStage(in, args[2:])
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

// startSupervisor starts a machine's supervisor in a session of its own and waits for the machine's PID 1.
func (h *Host) startSupervisor(ctx context.Context, in machineDir) error {
	log, err := os.OpenFile(
		filepath.Join(in.path, "supervisor.log"),
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
		Args:        []string{"slipway", SupervisorCommand, "supervise", in.path},
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

	go func() { _ = cmd.Wait() }() // it stays for the machine's life; this only takes its exit code
	if err := awaitReady(ctx, r); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}

	return nil
}

// awaitReady reads the other end's report. An end that says nothing has died.
func awaitReady(ctx context.Context, r *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	said := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(r) // an error is an end that said nothing
		said <- data
	}()

	select {
	case <-ctx.Done():
		return fmt.Errorf("its supervisor does not answer: %w", ctx.Err())
	case data := <-said:
		if text := strings.TrimSpace(string(data)); text != readyReport {
			return fmt.Errorf("its supervisor says: %q", text)
		}

		return nil
	}
}

// runSupervisor boots a machine, keeps its console, and boots it again when it asks for it from inside (reboot(2) shows as
// SIGHUP). It ends when the machine does.
func runSupervisor(in machineDir, report *os.File) error {
	// The death signal of PID 1 is bound to the thread that started it.
	runtime.LockOSThread()
	unlock, err := in.lockSupervisor()
	if err != nil {
		return err
	}

	defer unlock()
	con, err := openConsole(in.consoleLog())
	if err != nil {
		return err
	}

	defer con.close()

	for {
		s, err := in.readSpec()
		if err != nil {
			return err
		}

		cmd, err := in.startInit(s, con)
		if err != nil {
			return err
		}

		if report != nil {
			fmt.Fprint(report, readyReport)
			_ = report.Close()
			report = nil
		}

		again, err := waitForExit(cmd)
		if err != nil || !again {
			return err
		}

		if err := in.prepareDisk(s); err != nil {
			return err
		}
	}
}

// lockSupervisor makes this process the machine's only supervisor for as long as it lives.
func (in machineDir) lockSupervisor() (func(), error) {
	f, err := os.OpenFile(filepath.Join(in.path, "supervisor.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim machine: %w", err)
	}

	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("claim machine: another supervisor has it: %w", err), f.Close())
	}

	return func() { _ = f.Close() }, nil
}

// startInit makes the machine's cgroups and its first process, and writes the pid file once PID 1 is systemd.
func (in machineDir) startInit(s machineSpec, con *serialConsole) (*exec.Cmd, error) {
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
		Args:       []string{"slipway", SupervisorCommand, "boot", in.path, con.slave.Name()},
		Dir:        "/",
		Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Stdin:      con.slave,
		Stdout:     con.slave,
		Stderr:     con.slave,
		ExtraFiles: []*os.File{w},
		SysProcAttr: &syscall.SysProcAttr{
			Setsid: true, Pdeathsig: syscall.SIGKILL,
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
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

	return cmd, in.writePIDFile(cmd.Process.Pid)
}

// awaitExec waits until the boot stage became systemd (its end of the pipe closes silently) or says why it cannot.
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

func (in machineDir) writePIDFile(pid int) error {
	child, err := identifyProcess(pid)
	if err != nil {
		return err
	}

	self, err := identifyProcess(os.Getpid())
	if err != nil {
		return err
	}

	return writeJSON(in.pidFile(), machineProcesses{Init: child, Supervisor: self})
}

// inNetwork runs start while this thread is in the network namespace, which the new process inherits.
func inNetwork(path string, start func() error) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}

	defer func() { _ = home.Close() }()
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}

	defer func() { _ = ns.Close() }()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}

	err = start()
	// Staying there would keep the namespace for as long as the supervisor lives.
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
	}

	return err
}

// waitForExit waits for PID 1's end and tells whether the machine asked to be booted again.
func waitForExit(cmd *exec.Cmd) (again bool, err error) {
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return false, fmt.Errorf("wait for PID 1: %w", err)
	}

	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)

	return ok && status.Signaled() && status.Signal() == syscall.SIGHUP, nil
}

func (s machineSpec) cgroupPath() string { return filepath.Join(cgroupTop, s.Region, s.Machine.ID) }
