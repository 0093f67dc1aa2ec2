// SPDX-License-Identifier: Apache-2.0

// Package bench_test measures the calls, seconds and CPU time of the real program against an
// emulator, and compares them with their goals in docs/benchmarks.md and with kops, if it is
// installed. It uses slipway through its command line only.
package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// processResult is the result and the duration of a process.
type processResult struct {
	out, errs string
	code      int
	wall, cpu time.Duration
	memory    int64 // the largest resident size, in bytes; 0 if the system does not tell
	start     time.Time
}

// program is a program and its environment.
type program struct {
	path string
	env  []string
	dir  string
}

// watchMemory returns the largest resident size of a process in bytes, as Linux tells it every 5 ms until done; 0 if it does
// not. The resource usage of the process that ended would include the size of this test, from which it was started.
func watchMemory(pid int, done <-chan struct{}) int64 {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var largest int64
	for {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
			if kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64); err == nil {
				largest = max(largest, kib<<10) //nolint:mnd // it is in KiB
			}
		}
		select {
		case <-done:
			return largest
		case <-tick.C:
		}
	}
}

func (x program) runProcess(t *testing.T, args ...string) processResult {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), x.path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + x.dir}, x.env...)
	cmd.Dir = x.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	r := processResult{start: time.Now()}
	err := cmd.Start()
	if err == nil {
		done := make(chan struct{})
		watched := make(chan int64)
		go func() { watched <- watchMemory(cmd.Process.Pid, done) }()
		err = cmd.Wait()
		r.wall = time.Since(r.start)
		close(done)
		r.memory = <-watched
	}
	r.out, r.errs = out.String(), errs.String()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %s: %v", x.path, strings.Join(args, " "), err)
	}
	r.code = cmd.ProcessState.ExitCode()
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r
}

// mustRun runs a command, which must exit with one of codes.
func (x program) mustRun(t *testing.T, codes []int, args ...string) processResult {
	t.Helper()
	r := x.runProcess(t, args...)
	if slices.Contains(codes, r.code) {
		return r
	}
	t.Fatalf("%s %s: exit status %d\n%s%s", filepath.Base(x.path), strings.Join(args, " "), r.code, clipTail(r.out), clipTail(r.errs))
	return r
}

func clipTail(s string) string {
	const most = 3000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// newSlipway returns the program that make build created, with its state in the emulator's S3.
func newSlipway(t *testing.T, p *proxy, credentials ...string) program {
	t.Helper()
	path := filepath.Join(repositoryRoot(t), "bin", "slipway")
	if _, err := os.Stat(path); err != nil {
		t.Skip("SKIPPED: there is no bin/slipway: make build")
	}
	x := program{path: path, dir: t.TempDir(), env: append(p.env(), "SLIPWAY_STATE=s3://slipway-bench")}
	// As slipway region env does; otherwise each command asks STS whose the access key is.
	x.env = append(append(x.env, credentials...), "SLIPWAY_STATE_OWNER="+regiontest.AccountID) // moto has the same account
	return x
}

// fastestRun runs a command several times without the delay of calls, then counts the calls of one more run. The
// result has the shortest processor time.
func (x program) fastestRun(t *testing.T, p *proxy, args ...string) processResult {
	t.Helper()
	p.reset(0)
	best := x.mustRun(t, []int{0}, args...)
	for range renderRuns - 1 {
		p.reset(0)
		if r := x.mustRun(t, []int{0}, args...); r.cpu < best.cpu {
			best = r
		}
	}
	return best
}

// clusterManifest is the highly available private cluster of the table: three control-plane machines, groups of
// one worker over three zones, a bastion with its load balancer, and an SSH key.
func clusterManifest(name, image string, workers int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: %[1]s}
spec:
  cloudProvider: {aws: {region: us-east-1}}
  sshAccess: [192.0.2.0/24]
  sshKey: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPLLbNYYsVe9WrZhsnw7dmEhqHxzyZyqzqeoAxxhCcc8 operator@example.com
  networking:
    subnets:
    - {name: public-a, zone: us-east-1a, type: Public}
    - {name: public-b, zone: us-east-1b, type: Public}
    - {name: public-c, zone: us-east-1c, type: Public}
    - {name: private-a, zone: us-east-1a, type: Private}
    - {name: private-b, zone: us-east-1b, type: Private}
    - {name: private-c, zone: us-east-1c, type: Private}
`, name)
	group := func(group, spec string) {
		fmt.Fprintf(&b, `---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: %s, labels: {slipway.dev/cluster: %s}}
spec: {%s, image: %q}
`, group, name, spec, image)
	}
	group("control-plane", "role: ControlPlane")
	group("bastion", "role: Bastion")
	for i := range workers {
		group(fmt.Sprintf("workers-%d", i), fmt.Sprintf("role: Worker, minSize: 1, maxSize: 1, subnets: [private-%c]", 'a'+i%3)) //nolint:mnd // zones
	}
	return b.String()
}
