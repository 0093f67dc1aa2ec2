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
	"path/filepath"
	"slices"
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
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

var update = flag.Bool("update", false, "write expected.json")

// TestMain runs slipway or this command if the binary is called by that name.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "slipway":
		os.Exit(cli.Main(context.Background(), cli.Env{
			Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			Getenv: os.Getenv, Now: time.Now, Hostname: os.Hostname,
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
		for _, field := range strings.Fields(string(text)) {
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

// TestRunLeavesNothing makes a whole run with each topology. It must pass, leave nothing and do what expected.json has.
func TestRunLeavesNothing(t *testing.T) {
	all := map[string]expectedSteps{}
	for _, topology := range []string{topologyHA, topologySingle} {
		l := newLab(t, regiontest.Options{})
		l.env[variableTopology] = topology
		out := l.mustRun(t, exitPassed)
		l.checkEmpty(t, out)
		r, text := l.readReport(t)
		if r.Result != resultPassed || r.Sweep == nil || len(r.Sweep.Scheduled) != 2 {
			t.Errorf("%s: result %s, sweep %+v, want passed and two keys that are deleted later", topology, r.Result, r.Sweep)
		}
		for _, s := range r.Steps {
			want := resultPassed
			if slices.Contains([]string{"validate", "rolling-update", "validate-again"}, s.Name) {
				want = resultSkipped
			}
			if s.Result != want {
				t.Errorf("%s: step %s %s (%s), want %s", topology, s.Name, s.Result, s.Reason, want)
			}
		}
		if r.Cost == nil || r.Cost.UpperBound < r.Cost.Hourly || r.Cost.Hours != 2 {
			t.Errorf("%s: cost %+v", topology, r.Cost)
		}
		for _, secret := range []string{regiontest.AccountID, regiontest.AccessKey} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the report has %s", topology, secret)
			}
		}
		if !strings.Contains(out, "cost: about") || strings.Index(out, "cost: about") > strings.Index(out, "\napply ") {
			t.Errorf("%s: no cost before apply:\n%s", topology, out)
		}
		all[topology] = summarizeAll(r)
		checkExpected(t, r)
	}
	if *update {
		writeExpected(t, all)
	}
}

// summarizeAll returns what the steps of a run did.
func summarizeAll(r report) expectedSteps {
	out := expectedSteps{}
	for _, s := range r.Steps {
		if sum := summarizeStep(s); len(sum.Calls) > 0 || len(sum.Warnings) > 0 {
			out[s.Name] = sum
		}
	}
	return out
}

// checkExpected checks that each step uses the operations of expected.json. Their numbers depend on how calls
// coincide, so that they may differ.
func checkExpected(t *testing.T, r report) {
	t.Helper()
	if *update {
		return
	}
	want, err := readExpected(r.Environment.Topology)
	if err != nil {
		t.Fatal(err)
	}
	got := summarizeAll(r)
	for _, steps := range []expectedSteps{want, got} {
		for name, s := range steps {
			for operation := range s.Calls {
				s.Calls[operation] = 1
			}
			steps[name] = s
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differs from expected.json (-want +got); go test ./hack/e2eaws -run TestRunLeavesNothing -update:\n%s", diff)
	}
}

func writeExpected(t *testing.T, all map[string]expectedSteps) {
	t.Helper()
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("expected.json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestKilledRunIsSwept kills runs with SIGKILL and sweeps them: in the middle of apply, by the id; between the creation
// of the key of the state store and its alias, by the next run; and at the beginning of delete, without its record.
func TestKilledRunIsSwept(t *testing.T) {
	l := newLab(t, regiontest.Options{})
	l.actAt("Action=CreateNatGateway", killTree)
	if out, code := l.run(t); code != -1 {
		t.Fatalf("exit code %d, want the end by SIGKILL\n%s", code, out)
	}
	killed := l.runIDs(t)[0]
	if cmp.Equal(l.before, l.region.Inventory(t)) {
		t.Fatal("nothing exists when the run was killed")
	}
	l.checkEmpty(t, l.mustRun(t, exitPassed, "-sweep", killed))

	l.actAt("TrentService.CreateAlias", killTree)
	if out, code := l.run(t); code != -1 {
		t.Fatalf("exit code %d, want the end by SIGKILL\n%s", code, out)
	}
	out := l.mustRun(t, exitPassed)
	if strings.Count(out, ": nothing is left") != 1 {
		t.Errorf("the next run did not sweep the killed one, and only that:\n%s", out)
	}
	l.checkEmpty(t, out)
}

// TestCommandOutlivesKilledRun kills only this command. The sweep waits until the apply that it had started ends.
func TestCommandOutlivesKilledRun(t *testing.T) {
	l := newLab(t, regiontest.Options{TransitionDelay: 2 * time.Second})
	l.actAt("Action=CreateNatGateway", func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if out, code := l.run(t); code != -1 {
		t.Fatalf("exit code %d, want the end by SIGKILL\n%s", code, out)
	}
	out := l.mustRun(t, exitPassed, "-sweep", l.runIDs(t)[0])
	if !strings.Contains(out, "waiting for a command") {
		t.Errorf("did not wait:\n%s", out)
	}
	l.checkEmpty(t, out)
}

// TestInventoryRemovesEverything kills a run that has created everything. The sweep removes it without slipway, on a
// computer that has no record of the run, and reports what AWS refuses to delete.
func TestInventoryRemovesEverything(t *testing.T) {
	l := newLab(t, regiontest.Options{})
	l.actAt("Action=DeleteAutoScalingGroup", killTree)
	if out, code := l.run(t); code != -1 {
		t.Fatalf("exit code %d, want the end by SIGKILL\n%s", code, out)
	}
	v := newInventory(account{cfg: l.region.AWSConfig(), id: regiontest.AccountID}, runID(l.runIDs(t)[0]))
	if _, err := l.region.Faults.AddRule(fault.Rule{
		Service: "ec2", Action: "DeleteVolume", Count: -1, Effect: fault.EffectFail, Code: "VolumeInUse",
	}); err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(t.Context(), 8*time.Second)
	left := v.removeResources(short)
	stop()
	if len(left) == 0 || !strings.Contains(strings.Join(left, "\n"), "VolumeInUse") {
		t.Errorf("left %q, want a volume with its reason", left)
	}
	l.region.Faults.ClearRules()
	if left := v.removeResources(t.Context()); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	l.checkEmpty(t, "")
}

// TestOtherAccountIsRefused checks that nothing is created with credentials of another account or without settings.
func TestOtherAccountIsRefused(t *testing.T) {
	l := newLab(t, regiontest.Options{})
	for _, c := range []struct{ variable, value, want string }{
		{variableAccount, "210987654321", "the credentials belong to account " + regiontest.AccountID},
		{variableAccount, "", variableAccount + ": is not an account id"},
		{variableRegion, "", variableRegion + ": is not set"},
		{variableTimeout, "45", variableTimeout + ` "45": is not a valid time limit`},
	} {
		former := l.env[c.variable]
		l.env[c.variable] = c.value
		if out := l.mustRun(t, exitRefused); !strings.Contains(out, c.want) {
			t.Errorf("%s=%s: %s, want %q", c.variable, c.value, out, c.want)
		}
		l.env[c.variable] = former
	}
	if out := l.mustRun(t, exitRefused, "-sweep", "prod"); !strings.Contains(out, "is not the id of a run") {
		t.Errorf("-sweep prod: %s", out)
	}
	if diff := cmp.Diff(map[string]int{"sts:GetCallerIdentity": 1}, l.region.CallCounts()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestTimeLimitDeletes checks that a run whose time is over deletes everything: its NAT gateway takes an hour.
func TestTimeLimitDeletes(t *testing.T) {
	l := newLab(t, regiontest.Options{Faults: []fault.Rule{
		{Effect: fault.EffectProvision, Kind: "nat-gateway", Delay: fault.Duration(time.Hour)},
	}})
	l.env[variableTimeout] = "8s"
	out := l.mustRun(t, exitFailed)
	l.checkEmpty(t, out)
	r, _ := l.readReport(t)
	if s := stepNamed(r, "apply"); s.Result != resultFailed || !strings.Contains(s.Reason, errTimeLimit.Error()) {
		t.Errorf("apply: %s (%s), want the time limit\n%s", s.Result, s.Reason, out)
	}
	if s := stepNamed(r, "delete"); s.Result != resultPassed {
		t.Errorf("delete: %s (%s)\n%s", s.Result, s.Reason, out)
	}
}

// TestSignalDeletes checks that a run that is interrupted deletes everything.
func TestSignalDeletes(t *testing.T) {
	l := newLab(t, regiontest.Options{})
	l.actAt("Action=CreateNatGateway", func(pid int) { _ = syscall.Kill(pid, syscall.SIGTERM) })
	out := l.mustRun(t, exitFailed)
	l.checkEmpty(t, out)
	if r, _ := l.readReport(t); stepNamed(r, "apply").Result != resultFailed || stepNamed(r, "delete").Result != resultPassed {
		t.Errorf("apply did not fail, or delete did:\n%s", out)
	}
}
