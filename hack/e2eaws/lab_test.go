// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

var update = flag.Bool("update", false, "write expected.json")

// TestMain runs slipway or this command if the binary is called by that name.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "slipway":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // as cmd/slipway
		context.AfterFunc(ctx, stop)
		os.Exit(cli.Main(ctx, cli.Env{
			Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			Getenv: os.Getenv, Now: time.Now, Hostname: os.Hostname, Registries: assettest.Registries{},
		}))
	case "e2eaws":
		main()
	}
	os.Exit(m.Run())
}

// lab is a region that stands for AWS, and the environment of a run.
type lab struct {
	region regiontest.Region
	dir    string
	env    map[string]string
	before []string // what the account has without the run

	mu      sync.Mutex
	trigger string    // the text of a request at which act is called, once
	act     func(int) // with the process id of the command
	pid     int
	acted   bool
}

// newLab starts a region behind a proxy.
func newLab(t *testing.T, o regiontest.Options) *lab {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := exec.LookPath("true")
	if err != nil {
		t.Skip("SKIPPED: no program true to use as the agent")
	}
	l := &lab{region: regiontest.StartWith(t, o), dir: t.TempDir()}
	for _, name := range []string{"slipway", "e2eaws"} {
		if err := os.Symlink(self, filepath.Join(l.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	l.env = l.region.Env()
	l.env["AWS_ENDPOINT_URL"] = l.startProxy(t)
	l.env["HOME"] = l.dir
	l.env["SLIPWAY_NODE_BINARY"] = agent
	l.env["SLIPWAY_STATE"] = "s3://of-the-user" // must not be used
	l.env[variableAccount] = regiontest.AccountID
	l.env[variableRegion] = regiontest.RegionName
	l.env[variableMachines] = "no"
	l.env[variableTopology] = topologySingle
	l.env[variableDirectory] = filepath.Join(l.dir, "runs")
	l.before = l.region.Inventory(t)
	return l
}

// startProxy starts a proxy that calls act at the request with the trigger.
func (l *lab) startProxy(t *testing.T) string {
	t.Helper()
	to, err := url.Parse(l.region.URL)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the signature covers the host
	}}
	pass.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // clients are killed
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if l.isTrigger(string(body) + r.Header.Get("X-Amz-Target")) {
			l.act(l.pid)
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

func (l *lab) isTrigger(request string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acted || l.act == nil || !strings.Contains(request, l.trigger) {
		return false
	}
	l.acted = true
	return true
}

// actAt calls act once, before the region answers a request that contains a text.
func (l *lab) actAt(request string, act func(pid int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trigger = request
	l.act = act
	l.acted = false
}

// killTree kills a process and its children with SIGKILL, as the end of the computer would.
func killTree(pid int) {
	children := childrenOf(pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
}

// childrenOf returns the children of a process.
func childrenOf(pid int) (children []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// run runs the command and returns what it printed and its exit code, -1 if it was killed.
func (l *lab) run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(l.dir, "e2eaws"),
		append([]string{"-program", filepath.Join(l.dir, "slipway")}, args...)...)
	for name, value := range l.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.WaitDelay = 30 * time.Second // an orphan may hold the pipe
	l.mu.Lock()
	err := cmd.Start()
	if err == nil {
		l.pid = cmd.Process.Pid
	}
	l.mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("run e2eaws: %v\n%s", err, b.String())
	}
	return b.String(), cmd.ProcessState.ExitCode()
}

// mustRun runs the command, which must end with an exit code.
func (l *lab) mustRun(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, got := l.run(t, args...)
	if got != code {
		t.Fatalf("exit code %d, want %d\n%s", got, code, out)
	}
	return out
}

// checkEmpty checks that the account has what it had before, and no bucket.
func (l *lab) checkEmpty(t *testing.T, out string) {
	t.Helper()
	if diff := cmp.Diff(l.before, l.region.Inventory(t)); diff != "" {
		t.Errorf("left (-before +after):\n%s\n%s", diff, out)
	}
	buckets, err := s3.NewFromConfig(l.region.AWSConfig()).ListBuckets(t.Context(), &s3.ListBucketsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range buckets.Buckets {
		t.Errorf("left: bucket %s\n%s", aws.ToString(b.Name), out)
	}
}

// runIDs returns the ids of the runs so far, in their order.
func (l *lab) runIDs(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(l.env[variableDirectory], "*", recordFile))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, path := range paths {
		ids = append(ids, filepath.Base(filepath.Dir(path)))
	}
	return ids
}

// readReport reads the report of the only run.
func (l *lab) readReport(t *testing.T) (out report, text string) {
	t.Helper()
	ids := l.runIDs(t)
	if len(ids) != 1 {
		t.Fatalf("runs: %v, want one", ids)
	}
	b, err := os.ReadFile(filepath.Join(l.env[variableDirectory], ids[0], "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out, string(b)
}

// stepNamed returns the report of a step; zero if it did not run.
func stepNamed(r report, name string) stepReport {
	for _, s := range r.Steps {
		if s.Name == name {
			return s
		}
	}
	return stepReport{}
}
