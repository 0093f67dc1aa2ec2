// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxConsoleFileBytes is the maximum size of each of a console's two files: 1 MiB together.
const maxConsoleFileBytes = 512 << 10

// serialConsole is the machine's serial console: a pseudoterminal whose output the supervisor
// writes to a bounded log.
type serialConsole struct {
	master *os.File
	// slave is kept open. Otherwise the master reads EOF whenever no process in the machine has it open.
	slave *os.File
}

func openConsole(path string) (*serialConsole, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open console: %w", err)
	}

	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("unlock console: %w", err), master.Close())
	}

	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("name console: %w", err), master.Close())
	}

	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open console: %w", err), master.Close())
	}

	log := &rotatingLog{path: path, limit: maxConsoleFileBytes}
	go func() { _, _ = io.Copy(log, master) }() // ends with the supervisor

	return &serialConsole{master: master, slave: slave}, nil
}

func (c *serialConsole) close() { _ = errors.Join(c.slave.Close(), c.master.Close()) }

// rotatingLog is a log of two files: when the first is full, it replaces the second.
type rotatingLog struct {
	path  string
	limit int64
}

// Write appends p. It never fails: output that cannot be written is dropped, because a full disk
// must not stop the machine.
func (r *rotatingLog) Write(p []byte) (int, error) {
	if info, err := os.Stat(r.path); err == nil && info.Size()+int64(len(p)) > r.limit {
		_ = os.Rename(r.path, r.path+".1")
	}

	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.Write(p)
		_ = f.Close()
	}

	return len(p), nil
}

// deadlineAfter returns the time d from now by the kernel's clock, for deadlines of pipes.
func deadlineAfter(d time.Duration) time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return time.Time{}
	}

	return time.Unix(ts.Unix()).Add(d)
}
