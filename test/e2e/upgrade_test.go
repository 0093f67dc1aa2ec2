// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The minor versions of the upgrade; the patches are those that the assets have.
const (
	earlierMinor = "1.35."
	laterMinor   = "1.36."
)

// TestUpgrade upgrades a highly available cluster by a minor version under load. The upgrade fails once and is killed once,
// and is run again each time.
func TestUpgrade(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"a cluster of an earlier version", func(e *environment) { createEarlierCluster(e) }},
		{"it is upgraded under load", upgradeUnderLoad},
		{"delete leaves nothing", deleteCluster},
	})
}

// createEarlierCluster creates a cluster of the earlier minor version, with flags for apply.
func createEarlierCluster(e *environment, flags ...string) {
	earlier := e.builtVersion(earlierMinor)
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--kubernetes-version", earlier, "--yes")
	e.runSlipway(append([]string{"apply", clusterName, "--yes"}, flags...)...)
	e.waitHealthy(10 * time.Minute)
	e.exportKubeconfig()
	e.checkKubelets(earlier)
}

func upgradeUnderLoad(e *environment) {
	later := e.builtVersion(laterMinor)
	load := e.putUnderLoad("upgrade", anyKey(e.listMachines("worker")))
	begin := time.Now()
	e.failUpgrade(later)
	e.killUpgrade("step 3")

	// The control plane is upgraded. The workers will be replaced.
	load.moveClient(anyKey(e.listMachines("control-plane")))
	r := e.runProgram(e.slipway, "upgrade", "cluster", clusterName, "--lock-timeout", "3m", "--yes")
	e.t.Log(r.out)
	e.t.Log(r.err)
	if r.code != 0 {
		e.t.Fatalf("exit status %d", r.code)
	}
	e.t.Logf("COUNT upgrade: five machines in three runs in %s", time.Since(begin).Round(time.Second))
	load.stop(maxWriteGap())

	e.checkUpgradeBackups(3)
	e.waitHealthy(5 * time.Minute)
	e.checkKubelets(later)
	e.checkUpgraded(later)
}

// failUpgrade begins the upgrade in a way that fails: a machine cannot join in a second, so the first step that replaces
// machines stops. A backup of etcd was taken before.
func (e *environment) failUpgrade(later string) {
	e.t.Helper()
	r := e.runProgram(e.slipway, "upgrade", "cluster", clusterName, "--kubernetes-version", later, "--join-timeout", "1s", "--yes")
	e.t.Log(r.out)
	e.t.Log(r.err)
	backup := strings.Index(r.err, "took backup ")
	firstStep := strings.Index(r.err, "step 1 of ")
	if backup < 0 || firstStep < backup {
		e.t.Error("no backup was taken before the first step")
	}
	if r.code == 0 || !strings.Contains(r.err, "it continues with the step that failed") {
		e.t.Fatalf("exit status %d, want a failed step", r.code)
	}
	workers := strings.Split(e.runSlipway("get", "groups", "workers", "--name", clusterName, "-o", "yaml"), "\n")
	if want := "  kubernetesVersion: " + e.builtVersion(earlierMinor); !slices.Contains(workers, want) {
		e.t.Errorf("workers do not keep their version while the control plane is upgraded:\n%s", strings.Join(workers, "\n"))
	}
}

// checkUpgradeBackups checks that each run of the upgrade has taken a backup of etcd.
func (e *environment) checkUpgradeBackups(runs int) {
	e.t.Helper()
	taken := 0
	for _, b := range e.listBackups() {
		if b.Reason == "upgrade" {
			taken++
		}
	}
	if taken != runs {
		e.t.Errorf("%d backups were taken because of the upgrade, want %d", taken, runs)
	}
}

// checkKubelets checks the version of all five nodes.
func (e *environment) checkKubelets(version string) {
	e.t.Helper()
	if got := e.kubeletVersions(); len(got) != 1 || got["v"+version] != 5 {
		e.t.Fatalf("the versions of nodes are %v, want 5 of v%s", got, version)
	}
}

// checkUpgraded checks the API, an add-on, the manifests and a second upgrade.
func (e *environment) checkUpgraded(version string) {
	e.t.Helper()
	if out := e.kubectl("version", "-o", "yaml"); !strings.Contains(out, "gitVersion: v"+version) {
		e.t.Errorf("the API server is not version %s:\n%s", version, out)
	}
	e.waitUntil("kube-proxy has version "+version, time.Minute, func() error {
		if image := e.kubectl("get", "daemonset", "kube-proxy", "-n", "kube-system", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); !strings.Contains(image, "v"+version) {
			return fmt.Errorf("its image is %s", image)
		}
		return nil
	})
	if groups := e.runSlipway("get", "groups", clusterName, "-o", "yaml"); strings.Contains(groups, "kubernetesVersion") {
		e.t.Errorf("a group keeps a version of its own:\n%s", groups)
	}
	checkEmptyPlan(e)
	r := e.runProgram(e.slipway, "upgrade", "cluster", clusterName, "--kubernetes-version", version, "--yes")
	if r.code != 0 || !strings.Contains(r.err, "has Kubernetes "+version+" on every machine") {
		e.t.Errorf("a second upgrade: exit status %d\n%s%s", r.code, r.out, r.err)
	}
}

// builtVersion returns the version of a minor version in the built assets. Without one the test is skipped, since it
// takes long to build; with SLIPWAY_E2E=require it fails.
func (e *environment) builtVersion(minor string) string {
	e.t.Helper()
	found, err := filepath.Glob(filepath.Join(e.cache, "assets", "files", "dl.k8s.io", "release", "v"+minor+"*"))
	if err != nil || len(found) == 0 {
		reject := e.t.Skipf
		if os.Getenv("SLIPWAY_E2E") == "require" {
			reject = e.t.Fatalf
		}
		reject("SKIPPED: Kubernetes %sx is not built here (slipway assets build --kubernetes-version %s)", minor, strings.TrimSuffix(minor, "."))
	}

	return strings.TrimPrefix(filepath.Base(found[0]), "v")
}

// kubeletVersions counts the nodes of each version.
func (e *environment) kubeletVersions() map[string]int {
	e.t.Helper()
	out := map[string]int{}
	for v := range strings.FieldsSeq(e.kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")) {
		out[v]++
	}

	return out
}

// killUpgrade starts the upgrade again and kills it (SIGKILL) as soon as it begins a step.
func (e *environment) killUpgrade(step string) {
	e.t.Helper()
	log := filepath.Join(e.t.TempDir(), "upgrade.log")
	script := fmt.Sprintf(`%s upgrade cluster %s --yes >%s 2>&1 &
pid=$!
for i in $(seq 6000); do
  if grep -q %q %s; then kill -9 $pid; exit 0; fi
  kill -0 $pid 2>/dev/null || break
  sleep 0.1
done
cat %s
exit 1`, e.slipway, clusterName, log, step, log, log)
	if r := e.runProgram("sh", "-c", script); r.code != 0 {
		e.t.Fatalf("the upgrade ended before it began %s:\n%s", step, r.out)
	}
}
