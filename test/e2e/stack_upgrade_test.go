// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStackUpgrade changes what the machines of a stack are launched from: the version of Kubernetes, then the labels of
// the workers. The template's update policies replace the machines, the control plane one slot after the other, and the
// lifecycle hooks drain the workers.
func TestStackUpgrade(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"CloudFormation creates a cluster of an earlier version", createEarlierStack},
		{"the stack is upgraded", upgradeStack},
		{"workers with other labels are replaced", relabelStackWorkers},
		{"delete leaves nothing", func(e *environment) {
			e.runSlipway("delete", "cluster", clusterName, "--destroy-data", "--yes")
			if left := e.listTagged(); len(left) > 0 {
				e.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
		}},
	})
}

func createEarlierStack(e *environment) { createEarlierCluster(e, "--via", "cloudformation") }

// upgradeStack upgrades the cluster by a minor version with one update of the stack, under load.
func upgradeStack(e *environment) {
	later := e.builtVersion(laterMinor)
	before := e.listMachines("control-plane")
	workers := e.listMachines("worker")
	load := e.putUnderLoad("stack upgrade", anyKey(workers))
	begin := time.Now()
	ended := make(chan commandResult, 1)
	go func() {
		ended <- e.runProgram(e.slipway, "upgrade", "cluster", clusterName, "--kubernetes-version", later, "--yes")
	}()
	load.moveClient(e.waitForOther("control-plane", before))
	r := <-ended
	if r.code != 0 {
		e.t.Fatalf("exit status %d\n%s%s", r.code, r.out, r.err)
	}
	e.t.Log(r.out)
	e.t.Log(r.err)
	e.t.Logf("COUNT stack upgrade: five machines in %s", time.Since(begin).Round(time.Second))
	load.stop(maxAPIDowntime)
	if kept := countOld(before, e.listMachines("control-plane")) + countOld(workers, e.listMachines("worker")); kept > 0 {
		e.t.Errorf("%d machines were not replaced", kept)
	}
	e.checkDrains(2)
	e.waitHealthy(5 * time.Minute)
	e.checkKubelets(later)
	e.checkUpgraded(later)
	e.kubectl("delete", "deployment,service,poddisruptionbudget", "load", "--wait=false")
}

// relabelStackWorkers changes the labels of the workers, which a kubelet sets only when it registers its node. The stack
// replaces the workers, and no request to their pods fails.
func relabelStackWorkers(e *environment) {
	workers := e.listMachines("worker")
	controlPlane := e.listMachines("control-plane")
	groups := e.runSlipway("get", "groups", "workers", "--name", clusterName, "-o", "yaml")
	file := filepath.Join(e.t.TempDir(), "workers.yaml")
	writeFile(e.t, file, strings.Replace(groups, "\nspec:\n", "\nspec:\n  nodeLabels:\n    example.com/shelf: upper\n", 1))
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	stop := e.openShop()
	begin := time.Now()
	r := e.runProgram(e.slipway, "apply", clusterName, "--yes")
	answers, failures := stop()
	if r.code != 0 || failures > 0 || answers < 100 {
		e.t.Fatalf("exit status %d, %d answers, %d failed requests\n%s", r.code, answers, failures, r.err)
	}
	e.t.Logf("COUNT stack: two workers replaced in %s, %d requests, none failed", time.Since(begin).Round(time.Second), answers)
	if kept := countOld(workers, e.listMachines("worker")); kept > 0 {
		e.t.Errorf("%d workers were not replaced", kept)
	}
	if kept := countOld(controlPlane, e.listMachines("control-plane")); kept != 3 {
		e.t.Errorf("%d control-plane machines are left, want 3", kept)
	}
	if labelled := strings.Fields(e.kubectl("get", "nodes", "-l", "example.com/shelf=upper", "-o", "name")); len(labelled) != 2 {
		e.t.Errorf("nodes with the label: %v", labelled)
	}
	e.checkDrains(4)
	e.waitHealthy(3 * time.Minute)
	checkEmptyPlan(e)
}

// checkDrains checks that so many machines have been drained because Auto Scaling terminated them.
func (e *environment) checkDrains(want int) {
	e.t.Helper()
	events := e.kubectl("get", "events", "-n", "default", "--field-selector", "involvedObject.kind=Node,reason=Terminating")
	if got := strings.Count(events, "drained in "); got < want {
		e.t.Errorf("%d machines were drained, want %d:\n%s", got, want, events)
	}
}
