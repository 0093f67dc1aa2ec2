// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is the running region.
type Process struct {
	PID       int    `json:"pid"`
	StartTime string `json:"startTime"` // field 22 of /proc/PID/stat: tells a process from a later one of the same id
}

// Status is what `slipway region status` shows.
type Status struct {
	Running  bool     `json:"running"`
	Endpoint string   `json:"endpoint,omitempty"`
	Region   string   `json:"region,omitempty"`
	PID      int      `json:"pid,omitempty"`
	Folder   string   `json:"folder"`
	Exists   bool     `json:"exists"`
	Settings Settings `json:"-"`
}

// healthPath answers 200 once the region serves. No AWS service has such a path.
const healthPath = "/_slipway/health"

// GetStatus says whether the region in the cache folder exists and runs.
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

// Start starts the region in a process of its own, which outlives the caller, and waits until it answers. It does
// nothing if the region runs already. serve is the command line that ends in [Serve].
func Start(ctx context.Context, o Options, serve []string) (Status, error) {
	s, err := ensureSettings(o)
	if err != nil {
		return Status{}, err
	}

	p := regionPaths{o.CacheDir}
	if _, ok := findRunningProcess(p); !ok {
		if err := startDetached(p, serve); err != nil {
			return Status{}, err
		}
	}

	if err := waitHealthy(ctx, p, s); err != nil {
		return Status{}, err
	}

	return GetStatus(o.CacheDir)
}

// startDetached starts serve detached from this process, its output in the region's log.
func startDetached(p regionPaths, serve []string) error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the region's log: %w", err)
	}

	defer log.Close() //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(
		serve[0],
		serve[1:]...) //nolint:noctx // it must outlive every context of this process
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the region's process: %w", err)
	}

	proc := Process{PID: cmd.Process.Pid, StartTime: processStartTime(cmd.Process.Pid)}
	go cmd.Wait() //nolint:errcheck // reaps it if it ends before we do

	return writeJSON(p.processFile(), proc)
}

// waitHealthy waits until the region answers, its process ends or ctx does.
func waitHealthy(ctx context.Context, p regionPaths, s Settings) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{Proxy: nil}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint()+healthPath, nil)
		if err != nil {
			return fmt.Errorf("ask the region at %s: %w", s.Endpoint(), err)
		}

		if res, err := client.Do(req); err == nil {
			res.Body.Close() //nolint:errcheck // nothing is read
			if res.StatusCode == http.StatusOK && res.Header.Get("X-Slipway-Region") == s.ID {
				return nil
			}

			return fmt.Errorf(
				"something else answers at %s: stop it, or start the region with another --port",
				s.Endpoint(),
			)
		}

		if _, ok := findRunningProcess(p); !ok {
			return fmt.Errorf(
				"the region's process ended at its start; the end of %s:\n%s",
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

// Stop ends the region's process and waits for its end. Machines go on running. It does nothing if none runs.
func Stop(ctx context.Context, cache string) error {
	p := regionPaths{cache}
	proc, ok := findRunningProcess(p)
	if !ok {
		return nil
	}

	return stopProcess(ctx, proc)
}

// stopProcess asks proc to stop, and after 5 s ends it.
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
			return fmt.Errorf("wait for process %d to end: %w", proc.PID, ctx.Err())
		case <-tick.C:
		}
	}

	return nil
}

// findRunningProcess returns the region's process if it is alive.
func findRunningProcess(p regionPaths) (Process, bool) {
	var proc Process
	b, err := os.ReadFile(p.processFile())
	if err != nil || json.Unmarshal(b, &proc) != nil {
		return proc, false
	}

	return proc, isAlive(proc)
}

// isAlive says whether proc is still the process it was, and no zombie.
func isAlive(proc Process) bool {
	return proc.PID > 0 && proc.StartTime != "" && processStartTime(proc.PID) == proc.StartTime
}

// processStartTime returns when pid started, in clock ticks since boot; empty for a zombie or no process.
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

// lastLines returns the last n lines of a file, as far as it can be read.
func lastLines(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}

	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")

	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
