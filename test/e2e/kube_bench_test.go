// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kubeBench is kube-bench, unmodified, and the directory with the checks of its version.
type kubeBench struct{ program, checks string }

// buildKubeBench builds kube-bench as tools/kube-bench.mod pins it, in the shared cache.
func (e *environment) buildKubeBench() kubeBench {
	e.t.Helper()
	const module = "github.com/aquasecurity/kube-bench"
	pins, err := os.ReadFile("../../tools/kube-bench.sum")
	if err != nil {
		e.t.Fatal(err)
	}
	run := func(args ...string) string {
		e.t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath")
		out, err := cmd.Output()
		if err != nil {
			e.t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	k := kubeBench{program: filepath.Join(filepath.Dir(e.cache), "tools", fmt.Sprintf("kube-bench-%x", sha256.Sum256(pins))[:23])}
	run("mod", "download", "-modfile=tools/kube-bench.mod")
	k.checks = filepath.Join(run("list", "-modfile=tools/kube-bench.mod", "-m", "-f", "{{.Dir}}", module), "cfg")
	if _, err := os.Stat(k.program); err != nil {
		if err := os.MkdirAll(filepath.Dir(k.program), 0o755); err != nil {
			e.t.Fatal(err)
		}
		run("build", "-modfile=tools/kube-bench.mod", "-o", k.program, module)
	}

	return k
}

// benchReport is what kube-bench prints with --json.
type benchReport struct {
	Controls []struct {
		Tests []struct {
			Results []struct {
				Number      string `json:"test_number"`
				Description string `json:"test_desc"`
				Status      string
				Reason      string
				Actual      string `json:"actual_value"`
			}
		}
	}
}

// runKubeBench runs the checks of targets in a machine. It fails the test for each check that fails.
func (e *environment) runKubeBench(k kubeBench, machine, targets string) {
	e.t.Helper()
	first, err := e.findInit(machine)
	if err != nil {
		e.t.Fatal(err)
	}
	root := filepath.Join("/proc", first, "root")
	for from, to := range map[string]string{k.program: "/run/kube-bench/kube-bench", k.checks: "/run/kube-bench/cfg"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(to)), 0o755); err != nil {
			e.t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-r", from, root+to).CombinedOutput(); err != nil {
			e.t.Fatalf("copy %s: %v\n%s", from, err, out)
		}
	}
	// The newest checks of this version of kube-bench. Without the name of a benchmark it looks for the version of Kubernetes in a table.
	out := e.mustRunInMachine(machine, "cd /run/kube-bench && ./kube-bench run --benchmark cis-1.10 --json --targets "+targets+
		" --config-dir cfg --config cfg/config.yaml 2>errors || { cat errors; exit 1; }")
	e.mustRunInMachine(machine, "rm -r /run/kube-bench")
	var report benchReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		e.t.Fatalf("kube-bench prints no JSON: %v\n%s", err, clipLog(out))
	}
	counts := map[string]int{}
	var byHand []string
	for _, control := range report.Controls {
		for _, group := range control.Tests {
			for _, r := range group.Results {
				counts[r.Status]++
				switch r.Status {
				case "FAIL":
					e.t.Errorf("%s %s: %s %s", r.Number, r.Description, r.Reason, r.Actual)
				case "WARN":
					byHand = append(byHand, r.Number)
				}
			}
		}
	}
	e.t.Logf("COUNT kube-bench of %s: %d passed, %d failed, %d to check by hand: %s", targets, counts["PASS"], counts["FAIL"],
		counts["WARN"], strings.Join(byHand, " "))
	if counts["PASS"] < 15 {
		e.t.Errorf("kube-bench has run %d checks only", counts["PASS"])
	}
}

// checkBenchmark runs kube-bench on a machine of each role.
func checkBenchmark(e *environment) {
	skipUnlessLong(e.t)
	k := e.buildKubeBench()
	e.runKubeBench(k, anyKey(e.listMachines("control-plane")), "master,etcd,controlplane,node")
	e.runKubeBench(k, anyKey(e.listMachines("worker")), "node")
}
