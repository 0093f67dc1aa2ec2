// SPDX-License-Identifier: Apache-2.0

// Package bench_test measures the calls, seconds and CPU time of the real program against an
// emulator, and compares them with their goals in docs/benchmarks.md and with kops, if it is
// installed. It uses slipway through its command line only.
package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// processResult is the result and the duration of a process.
type processResult struct {
	out, errs string
	code      int
	wall, cpu time.Duration
	start     time.Time
}

// program is a program and its environment.
type program struct {
	path string
	env  []string
	dir  string
}

func (x program) runProcess(t *testing.T, args ...string) processResult {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), x.path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + x.dir}, x.env...)
	cmd.Dir = x.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	r := processResult{start: time.Now()}
	err := cmd.Run()
	r.wall = time.Since(r.start)
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
	x.env = append(x.env, credentials...)
	return x
}

// clusterManifest is the highly available private cluster of the table: three control-plane
// machines, groups of workers over three zones, and a group of one machine in a public subnet, the
// bastion.
func clusterManifest(name, image string, workers int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: %[1]s}
spec:
  cloudProvider: {aws: {region: us-east-1}}
  networking:
    subnets:
    - {name: public-a, zone: us-east-1a, type: Public}
    - {name: public-b, zone: us-east-1b, type: Public}
    - {name: public-c, zone: us-east-1c, type: Public}
    - {name: private-a, zone: us-east-1a, type: Private}
    - {name: private-b, zone: us-east-1b, type: Private}
    - {name: private-c, zone: us-east-1c, type: Private}
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: control-plane, labels: {slipway.dev/cluster: %[1]s}}
spec: {role: ControlPlane, image: %[2]q}
`, name, image)
	for i := range workers {
		fmt.Fprintf(&b, `---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: workers-%[3]d, labels: {slipway.dev/cluster: %[1]s}}
spec: {role: Worker, image: %[2]q, minSize: 1, maxSize: 1, subnets: [private-%[4]c]}
`, name, image, i, 'a'+i%3) //nolint:mnd // zones
	}
	return b.String()
}
