// SPDX-License-Identifier: Apache-2.0

// Package e2e_test runs Slipway's commands against a local region with real machines, and checks
// the cluster with independent clients: the AWS SDK, the AWS CLI and kubectl. The end-to-end tests
// do not call Slipway's code.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go/middleware"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
)

const (
	clusterName = "e2e"
	region      = "us-east-1"
	bucket      = "slipway-e2e-state"
)

// environment is a local region that only this test uses, and the commands that run against it.
type environment struct {
	t       *testing.T
	cache   string // the folder of the region; assets and image are links to the shared cache
	slipway string // the path of the program
	env     map[string]string
	aws     aws.Config
	// created is how long createCluster took from apply until the cluster was healthy.
	created time.Duration
}

// skipUnlessLong skips t in the short form, which make test runs. Make e2e sets SLIPWAY_LONG.
func skipUnlessLong(t *testing.T) {
	t.Helper()
	if os.Getenv("SLIPWAY_LONG") == "" {
		t.Skip("SKIPPED: a long form, see make e2e")
	}
}

// requireHost skips t, with the reason, if this machine cannot run the tests. It fails t instead if
// SLIPWAY_E2E=require.
func requireHost(t *testing.T) (shared string) {
	t.Helper()
	reject := t.Skip
	if os.Getenv("SLIPWAY_E2E") == "require" {
		reject = t.Fatal
	}
	if testing.Short() {
		t.Skip("e2e: -short")
	}
	if os.Geteuid() != 0 {
		reject("e2e: real machines need root on Linux")
	}
	shared = os.Getenv("SLIPWAY_CACHE")
	if shared == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		shared = filepath.Join(home, ".cache", "slipway")
	}
	if _, err := os.Stat(filepath.Join(shared, "assets", "catalog.yaml")); err != nil {
		reject("e2e: no built assets in " + shared + " (make assets)")
	}
	for _, program := range []string{"nft", "ip", "kubectl"} {
		if _, err := exec.LookPath(program); err != nil && (program != "kubectl" || kubectlPath(shared) == "") {
			reject("e2e: this machine has no " + program + " (make deps)")
		}
	}
	return shared
}

// kubectlPath returns the path of an installed kubectl, or else of the kubectl in the built assets.
func kubectlPath(shared string) string {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path
	}
	found, _ := filepath.Glob(filepath.Join(shared, "assets", "files", "dl.k8s.io", "release", "*", "bin", "linux", "amd64", "kubectl"))
	if len(found) > 0 {
		return found[0]
	}
	return ""
}

// newEnvironment starts a region on a free port, and destroys it when the test ends.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	shared := requireHost(t)
	slipway, err := filepath.Abs("../../bin/slipway")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(slipway); err != nil {
		t.Fatalf("%s does not exist: run make build", slipway)
	}
	e := &environment{t: t, cache: filepath.Join(shared, "e2e"), slipway: slipway, env: map[string]string{}}
	if err := os.MkdirAll(e.cache, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"assets", "image"} {
		link := filepath.Join(e.cache, name)
		if err := os.Symlink(filepath.Join(shared, name), link); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	e.env["SLIPWAY_CACHE"], e.env["SLIPWAY_STATE"] = e.cache, "s3://"+bucket
	e.runSlipway("region", "destroy", "--yes") // removes the leftovers of an earlier run
	t.Cleanup(func() {
		if os.Getenv("SLIPWAY_E2E_KEEP") == "" {
			e.runSlipway("region", "destroy", "--yes")
		}
	})
	e.startRegion()
	return e
}

// startRegion starts the region and configures every client for it.
func (e *environment) startRegion() {
	e.t.Helper()
	e.runSlipway("region", "start", "--port", freePort(e.t))
	for line := range strings.Lines(e.runSlipway("region", "env")) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		e.env[name] = strings.Trim(value, "'")
	}
	cfg, err := config.LoadDefaultConfig(e.t.Context(), config.WithRegion(region), config.WithBaseEndpoint(e.env["AWS_ENDPOINT_URL"]),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(e.env["AWS_ACCESS_KEY_ID"], e.env["AWS_SECRET_ACCESS_KEY"], "")),
		config.WithAPIOptions([]func(*middleware.Stack) error{awsfix.AddBodyMiddleware}))
	if err != nil {
		e.t.Fatal(err)
	}
	e.aws = cfg
}

// freePort returns a port that the region can also have again after a restart: no connection gets one below 32768.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20000 + rand.IntN(12000))
		if ln, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			ln.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return ""
}

// commandResult is the output and the exit status of a command.
type commandResult struct {
	out, err string
	code     int
}

// runProgram runs a program with the environment's variables, for at most 15 minutes.
func (e *environment) runProgram(program string, args ...string) commandResult {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = os.Environ()
	for k, v := range e.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		e.t.Fatalf("run %s: %v", program, err)
	}
	r := commandResult{out: out.String(), err: errs.String(), code: cmd.ProcessState.ExitCode()}
	e.t.Logf("%s %s → %d\n%s%s", filepath.Base(program), strings.Join(args, " "), r.code, clipLog(r.out), clipLog(r.err))
	return r
}

// clipLog shortens long output for the log.
func clipLog(s string) string {
	if len(s) > 3000 {
		return s[:1000] + "\n…\n" + s[len(s)-2000:]
	}
	return s
}

// runSlipway runs slipway, and fails the test unless it exits with 0.
func (e *environment) runSlipway(args ...string) string {
	e.t.Helper()
	r := e.runProgram(e.slipway, args...)
	if r.code != 0 {
		e.t.Fatalf("slipway %s: exit status %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// kubectl runs kubectl against the cluster, and fails the test unless it exits with 0.
func (e *environment) kubectl(args ...string) string {
	e.t.Helper()
	r := e.tryKubectl(args...)
	if r.code != 0 {
		e.t.Fatalf("kubectl %s: exit status %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

func (e *environment) tryKubectl(args ...string) commandResult {
	e.t.Helper()
	return e.runProgram(kubectlPath(filepath.Dir(e.cache)), append([]string{"--kubeconfig", e.kubeconfig(), "--request-timeout=15s"}, args...)...)
}

func (e *environment) kubeconfig() string { return filepath.Join(e.cache, "kubeconfig") }

// exportKubeconfig writes a new kubeconfig of the cluster.
func (e *environment) exportKubeconfig() {
	e.t.Helper()
	e.exportKubeconfigOf(clusterName)
}

// createFrom creates the cluster of a file of manifests in AWS, and waits until it is healthy.
func (e *environment) createFrom(file string, limit time.Duration) {
	e.t.Helper()
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "-f", file, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(limit)
	e.exportKubeconfig()
}

// waitUntil calls f every second until it returns nil. It fails the test with the last error when
// the time is up.
func (e *environment) waitUntil(what string, limit time.Duration, f func() error) {
	e.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(time.Second)
	}
}

// waitHealthy waits until slipway reports that the cluster is healthy.
func (e *environment) waitHealthy(limit time.Duration) {
	e.t.Helper()
	r := e.runProgram(e.slipway, "validate", "cluster", clusterName, "--wait", limit.String(), "-o", "json")
	var report struct {
		Valid  bool
		Checks []struct {
			Kind, Name, Severity, Cause string
			OK                          bool
		}
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		e.t.Fatalf("validate prints no JSON: %v\n%s", err, r.err)
	}
	if !report.Valid || r.code != 0 {
		var problems strings.Builder
		for _, c := range report.Checks {
			if !c.OK {
				fmt.Fprintf(&problems, "%s %s %s: %s\n", c.Severity, c.Kind, c.Name, c.Cause)
			}
		}
		e.t.Fatalf("the cluster is not healthy after %s (exit status %d):\n%s%s", limit, r.code, problems.String(), clipLog(r.err))
	}
}

// readyNodes returns the names of Ready nodes.
func (e *environment) readyNodes() ([]string, error) {
	r := e.tryKubectl("get", "nodes", "-o", "json")
	if r.code != 0 {
		return nil, errors.New(r.err)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		return nil, err
	}
	var names []string
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				names = append(names, n.Metadata.Name)
			}
		}
	}
	return names, nil
}

// leftovers lists everything on this machine that belongs to the region with this ID: namespaces,
// mounts, cgroups and processes.
func leftovers(id string) (found []string) {
	if out, err := exec.Command("ip", "netns", "list").Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "slw-"+id) {
				found = append(found, "namespace "+strings.TrimSpace(line))
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "/e2e/region/") {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/slipway/" + id)
	for _, g := range groups {
		found = append(found, "cgroup "+g)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		b, _ := os.ReadFile(p)
		if bytes.Contains(b, []byte("/e2e/region")) {
			found = append(found, fmt.Sprintf("process %s %q", p, b))
		}
	}
	return found
}

// step is one part of a test of a cluster.
type step struct {
	name string
	do   func(*environment)
}

// runStep runs a step as a subtest of t, and reports whether it passed.
func (e *environment) runStep(t *testing.T, s step) bool {
	t.Helper()
	return t.Run(s.name, func(t *testing.T) {
		inner := *e
		inner.t = t
		s.do(&inner)
		inner.t = e.t
		*e = inner
	})
}

// runSteps runs steps in order. It stops after the first that fails, since the others would fail too.
func (e *environment) runSteps(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		if !e.runStep(t, s) {
			t.FailNow()
		}
	}
}
