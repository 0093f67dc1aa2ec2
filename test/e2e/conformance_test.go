// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/conformance"
)

// conformanceTimeout is the limit of one run of the conformance tests. A full run takes less than an hour on a machine that does
// nothing else.
const conformanceTimeout = 4 * time.Hour

// conformanceTests are the conformance tests as this run was asked to run them.
type conformanceTests struct {
	programs   conformance.Programs
	directory  string // gets reports and logs, and is kept
	exceptions []conformance.Exception
	selection  conformance.Selection
	processes  int
	selected   []string // the names of the specs that are to pass
}

// TestConformance runs Kubernetes' conformance tests against a cluster of one control-plane machine and two workers. Each spec must
// pass unless test/conformance/exceptions.txt lists it. SUITE=NetworkPolicy runs the specs about NetworkPolicies in their place. FOCUS is a
// regular expression of the names of specs, and PROCESSES the number of specs at the same time.
func TestConformance(t *testing.T) {
	if os.Getenv("SLIPWAY_CONFORMANCE") == "" {
		t.Skip("SKIPPED: Kubernetes' conformance tests, see make conformance")
	}
	c := prepareConformance(t, requireHost(t))
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createConformanceCluster},
		{"a debug pod on a node needs a privileged namespace", checkDebugNode},
		{"the conformance tests pass", c.run},
		{"delete leaves nothing", deleteCluster},
	})
}

// prepareConformance finds the programs of the tests, and checks the list of exceptions and the focus before a cluster is made.
func prepareConformance(t *testing.T, shared string) *conformanceTests {
	t.Helper()
	built, err := filepath.Glob(filepath.Join(shared, "assets", "work", "conformance-*", "bin"))
	if err != nil || len(built) != 1 {
		t.Fatalf("%d builds of the conformance tests in %s, want 1: slipway assets build --conformance", len(built), shared)
	}
	processes, err := strconv.Atoi(cmp.Or(os.Getenv("PROCESSES"), "4"))
	if err != nil || processes < 1 {
		t.Fatalf("PROCESSES is %q, want a number of specs at the same time", os.Getenv("PROCESSES"))
	}
	file, err := os.Open("../conformance/exceptions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	all, err := conformance.ParseExceptions(file)
	if err != nil {
		t.Fatal(err)
	}
	suite, err := conformance.ParseSuite(os.Getenv("SUITE"))
	if err != nil {
		t.Fatalf("SUITE: %v", err)
	}
	exceptions := suite.Exceptions(all)
	c := &conformanceTests{
		programs: conformance.Programs{
			Tests:   filepath.Join(built[0], "e2e.test"),
			Runner:  filepath.Join(built[0], "ginkgo"),
			Kubectl: filepath.Join(shared, "conformance", "kubectl"),
		},
		directory:  filepath.Join(shared, "conformance"),
		exceptions: exceptions,
		selection:  conformance.Selection{Suite: suite, Focus: os.Getenv("FOCUS"), Exceptions: exceptions},
		processes:  processes,
	}
	if err := os.RemoveAll(c.directory); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.directory, "output"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.linkKubectl(t, shared)
	specs := c.list(t, conformance.Selection{Suite: suite})
	for _, unknown := range conformance.FindUnknown(exceptions, specs) {
		t.Fatalf("test/conformance/exceptions.txt: no spec has the name %s", unknown.Spec)
	}
	c.selected = c.list(t, c.selection)
	if len(c.selected) == 0 {
		t.Fatalf("no spec matches FOCUS=%s, or the list leaves all of them out", c.selection.Focus)
	}
	t.Logf("%d of %d specs are selected", len(c.selected), len(specs))
	return c
}

// linkKubectl gives the tests the kubectl of their version: the program of all of Kubernetes, under this name.
func (c *conformanceTests) linkKubectl(t *testing.T, shared string) {
	t.Helper()
	// The results of other versions have longer names.
	built, err := filepath.Glob(filepath.Join(shared, "assets", "work", "kubernetes-"+strings.Repeat("[0-9a-f]", 16), "bin", "kubernetes"))
	if err != nil || len(built) != 1 {
		t.Fatalf("%d builds of Kubernetes in %s, want 1: slipway assets build", len(built), shared)
	}
	if err := os.Symlink(built[0], c.programs.Kubectl); err != nil {
		t.Fatal(err)
	}
}

// list returns the names of the specs of a selection, without running them.
func (c *conformanceTests) list(t *testing.T, s conformance.Selection) []string {
	t.Helper()
	report := filepath.Join(c.directory, "list.json")
	cmd := exec.CommandContext(t.Context(), c.programs.Tests, conformance.ListArguments(report, s)...)
	cmd.Dir = c.directory
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("list the conformance tests: %v\n%s", err, clipLog(string(out)))
	}
	return conformance.PassedSpecs(c.read(t, report))
}

func (c *conformanceTests) read(t *testing.T, path string) []conformance.Result {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	results, err := conformance.ReadReport(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return results
}

func createConformanceCluster(e *environment) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--nat-gateways", "Single",
		"--control-plane-count", "1", "--worker-count", "2", "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	os.Remove(e.kubeconfig())
	e.runSlipway("export", "kubeconfig", clusterName, "--kubeconfig", e.kubeconfig(), "--admin", "24h")
	names, err := e.readyNodes()
	if err != nil || len(names) != 3 {
		e.t.Fatalf("%d Ready nodes, want 3: %v %v", len(names), names, err)
	}
}

// checkDebugNode: the default Pod Security level forbids what kubectl debug needs to look into a machine, and an administrator can
// allow it in a namespace of its own.
func checkDebugNode(e *environment) {
	nodes, err := e.readyNodes()
	if err != nil || len(nodes) == 0 {
		e.t.Fatalf("no Ready node: %v", err)
	}
	debug := []string{"debug", "node/" + nodes[0], "--image=" + probeImage, "--profile=sysadmin"}
	denied := e.tryKubectl(append(debug, "--", "/probe", "cat", "/host/etc/os-release")...)
	if denied.code == 0 || !strings.Contains(denied.err, `violates PodSecurity "baseline:`) {
		e.t.Errorf("exit status %d in namespace default, want 1 because of PodSecurity:\n%s", denied.code, denied.err)
	}

	e.kubectl("create", "namespace", "debug")
	e.kubectl("label", "namespace", "debug", "pod-security.kubernetes.io/enforce=privileged")
	e.kubectl(append(debug, "--namespace=debug", "--", "/probe", "cat", "/host/etc/os-release")...)
	e.waitUntil("the debug pod has ended", 2*time.Minute, func() error {
		if r := e.tryKubectl("get", "pods", "-n", "debug", "-o", "jsonpath={.items[*].status.phase}"); r.out != "Succeeded" {
			return fmt.Errorf("it is %q %s", r.out, r.err)
		}
		return nil
	})
	e.kubectl("delete", "namespace", "debug", "--wait=false")
}

// run runs the selected specs, and once more, one after the other, those that failed: on a small machine some of the
// tests' own time limits are too short while other specs run.
func (c *conformanceTests) run(e *environment) {
	results := c.runOnce(e, "first", c.selection, c.processes)
	failed := conformance.FailedSpecs(results)
	repeated := 0
	if len(failed) > 0 {
		e.t.Logf("%d specs run again, alone:\n%s", len(failed), strings.Join(failed, "\n"))
		again := c.runOnce(e, "second", conformance.Selection{Suite: c.selection.Suite, Only: failed}, 1)
		repeated = len(conformance.PassedSpecs(again))
		results = conformance.Replace(results, again)
	}

	for _, r := range results {
		if r.Outcome == conformance.Failed {
			e.t.Errorf("%s failed after %s:\n%s", r.Spec, r.Time.Round(time.Second), clipLog(r.Text))
		}
	}
	for _, name := range conformance.FindMissing(c.selected, results) {
		e.t.Errorf("%s did not run", name)
	}
	for _, line := range conformance.Counts(results, c.exceptions, repeated) {
		e.t.Log("COUNT conformance: " + line)
	}
}

// runOnce runs the specs of a selection. The report and the output of the run stay in the directory of reports.
func (c *conformanceTests) runOnce(e *environment, name string, s conformance.Selection, processes int) []conformance.Result {
	e.t.Helper()
	begin := time.Now()
	registries := filepath.Join(c.directory, "registries.yaml")
	mirror, _, _ := strings.Cut(probeImage, "/")
	if err := os.WriteFile(registries, []byte(conformance.Registries(mirror)), 0o600); err != nil {
		e.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(c.directory, name+".log"))
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	e.t.Logf("the output of this run is in %s", log.Name())

	run := conformance.Run{
		Programs:   c.programs,
		Kubeconfig: e.kubeconfig(),
		Directory:  c.directory,
		Report:     name + ".json",
		Processes:  processes,
		Timeout:    conformanceTimeout,
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), conformanceTimeout+10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.programs.Runner, conformance.RunArguments(run, s)...)
	cmd.Dir = c.directory
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), "KUBE_TEST_REPO_LIST="+registries)
	for k, v := range e.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	err = cmd.Run() // the report says what has failed, unless there is none
	report := filepath.Join(c.directory, run.Report)
	if _, missing := os.Stat(report); missing != nil {
		e.t.Fatalf("ginkgo wrote no report: %v, %v; see %s", err, missing, log.Name())
	}
	results := c.read(e.t, report)
	e.t.Logf("COUNT conformance, %s run: %d specs in %s, %d at the same time", name,
		len(conformance.PassedSpecs(results))+len(conformance.FailedSpecs(results)), time.Since(begin).Round(time.Second), processes)
	return results
}
