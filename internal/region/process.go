// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process identifies the running process of a region.
type Process struct {
	PID       int    `json:"pid"`
	StartTime string `json:"startTime"` // field 22 of /proc/PID/stat; a later process with the same PID has another
}

// Status is what `slipway region status` shows.
type Status struct {
	Running  bool     `json:"running"`            // the region's process is running
	Endpoint string   `json:"endpoint,omitempty"` // URL of the API; empty if there is no region
	Region   string   `json:"region,omitempty"`   // name of the AWS region; empty if there is no region
	PID      int      `json:"pid,omitempty"`      // of the region's process; 0 if it is not running
	Folder   string   `json:"folder"`             // folder of the settings, the state and the log
	Exists   bool     `json:"exists"`             // the region has been started before
	Settings Settings `json:"-"`                  // zero if there is no region
}

// healthPath returns 200 when the region is ready. No AWS service uses this path.
const healthPath = "/_slipway/health"

// GetStatus returns the status of the region in the cache folder.
func GetStatus(cache string) (Status, error) {
	p := regionPaths{cache}
	st := Status{Folder: p.regionDir()}
	s, err := loadSettings(p)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}

	if err != nil {
		return st, err
	}

	st.Exists = true
	st.Settings = s
	st.Endpoint = s.Endpoint()
	st.Region = s.Region
	if proc, ok := findRunningProcess(p); ok {
		st.Running = true
		st.PID = proc.PID
	}

	return st, nil
}

// Start starts the region as a background process and waits until it is ready. It does nothing if the region
// is running. serve is the command line that calls [Serve].
func Start(ctx context.Context, o Options, serve []string) (Status, error) {
	if o.Port < 0 || o.Port > maxPort {
		return Status{}, fmt.Errorf(
			"port %d does not exist: give --port 1024 to %d, or omit it",
			o.Port,
			maxPort,
		)
	}

	if d := o.VisibilityDelay; d != nil && (*d < 0 || *d > maxVisibilityDelay) {
		return Status{}, fmt.Errorf(
			"visibility delay %s is out of range: give --visibility-delay 0s to %s, or omit it",
			*d,
			maxVisibilityDelay,
		)
	}

	s, err := ensureSettings(o)
	if err != nil {
		return Status{}, err
	}

	p := regionPaths{o.CacheDir}
	if _, ok := findRunningProcess(p); !ok {
		if err := checkPort(ctx, s.Port); err != nil {
			return Status{}, err
		}

		if err := startDetached(p, serve); err != nil {
			return Status{}, err
		}
	}

	if err := waitHealthy(ctx, p, s); err != nil {
		return Status{}, err
	}

	return GetStatus(o.CacheDir)
}

// maxVisibilityDelay is the longest delay for which clients wait: Slipway repeats a call for a minute.
const maxVisibilityDelay = 10 * time.Second

// maxPort is the highest TCP port.
const maxPort = 65535

// portReleaseTime is for how long a port may still be in use: the threads of a process that was killed close its sockets one
// after another, and a connection of any program may have the port for a moment.
const portReleaseTime = 2 * time.Second

// checkPort returns an error if the region cannot listen at a port of this computer. It waits for a port that is about to
// become free.
func checkPort(ctx context.Context, port int) error {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	ln, err := listenWithin(ctx, portReleaseTime, address)

	switch {
	case err == nil:
		return ln.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another program listens at %s: stop it, or start the region with another --port", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf(
			"this user may not listen at %s: give a --port above 1023, or start the region as root",
			address,
		)
	}

	return fmt.Errorf("listen at %s: %w", address, err)
}

// listenWithin listens at a TCP address. While it is in use, it tries again for the time of limit.
func listenWithin(ctx context.Context, limit time.Duration, address string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for {
		ln, err := net.Listen("tcp", address) //nolint:noctx // an address of this computer needs no lookup
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}

		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// startDetached starts serve as a detached process that writes to the region's log.
func startDetached(p regionPaths, serve []string) error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the region's log: %w", err)
	}

	defer func() { _ = log.Close() }()          // the child has its own descriptor
	cmd := exec.Command(serve[0], serve[1:]...) //nolint:noctx // it must outlive every context of this process
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the region's process: %w", err)
	}

	proc := Process{PID: cmd.Process.Pid, StartTime: processStartTime(cmd.Process.Pid)}
	go func() { _ = cmd.Wait() }() // reaps the child if it exits before this process

	return writeJSON(p.processFile(), proc)
}

// waitHealthy waits until the region is ready. It returns an error if the region's process ends before that.
func waitHealthy(ctx context.Context, p regionPaths, s Settings) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{Proxy: nil}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint()+healthPath, nil)
		if err != nil {
			return fmt.Errorf("call the region at %s: %w", s.Endpoint(), err)
		}

		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK && res.Header.Get("X-Slipway-Region") == s.ID {
				return nil
			}

			return fmt.Errorf(
				"another program listens at %s: stop it, or start the region with another --port",
				s.Endpoint(),
			)
		}

		if _, ok := findRunningProcess(p); !ok {
			return fmt.Errorf(
				"the region's process exited on startup; the last lines of %s:\n%s",
				p.logFile(),
				lastLines(p.logFile(), 15),
			)
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the region at %s: %w", s.Endpoint(), ctx.Err())
		case <-tick.C:
		}
	}
}

// Stop ends the region's process and waits until it has ended. The machines keep running. It does nothing if
// the region is not running.
func Stop(ctx context.Context, cache string) error {
	p := regionPaths{cache}
	proc, ok := findRunningProcess(p)
	if !ok {
		return nil
	}

	return stopProcess(ctx, proc)
}

// stopProcess sends SIGTERM to the process, and SIGKILL after 5 s.
func stopProcess(ctx context.Context, proc Process) error {
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(proc.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the region's process %d: %w", proc.PID, err)
		}

		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := waitForExit(wait, proc)
		cancel()
		if err == nil || i == 1 {
			return err
		}
	}

	return nil
}

func waitForExit(ctx context.Context, proc Process) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for isAlive(proc) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until process %d exits: %w", proc.PID, ctx.Err())
		case <-tick.C:
		}
	}

	return nil
}

// findRunningProcess returns the region's process; false if it is not running.
func findRunningProcess(p regionPaths) (Process, bool) {
	var proc Process
	b, err := os.ReadFile(p.processFile())
	if err != nil || json.Unmarshal(b, &proc) != nil {
		return proc, false
	}

	return proc, isAlive(proc)
}

// isAlive reports whether proc is running: its PID belongs to a process with the same start time that is not
// a zombie.
func isAlive(proc Process) bool {
	return proc.PID > 0 && proc.StartTime != "" && processStartTime(proc.PID) == proc.StartTime
}

// processStartTime returns when a process started, in clock ticks since boot; empty for a zombie or if there
// is no such process.
func processStartTime(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}

	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" {
		return ""
	}

	return f[19]
}

// lastLines returns the last n lines of a file, or the error if the file cannot be read.
func lastLines(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}

	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")

	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
