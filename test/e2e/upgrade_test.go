// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The minor versions of the upgrade; the patches are those that the assets have.
const (
	earlierMinor = "1.35."
	laterMinor   = "1.36."
)

// TestUpgrade upgrades a highly available cluster by a minor version while a client writes at a fixed rate and a
// Deployment with a budget runs. The upgrade fails once and is killed once, and is run again each time.
func TestUpgrade(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	earlier := e.builtVersion(earlierMinor)
	later := e.builtVersion(laterMinor)
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--kubernetes-version", earlier, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	os.Remove(e.kubeconfig())
	e.runSlipway("export", "kubeconfig", clusterName, "--kubeconfig", e.kubeconfig())
	if got := e.kubeletVersions(); len(got) != 1 || got["v"+earlier] != 5 {
		t.Fatalf("the versions of nodes are %v, want 5 of v%s", got, earlier)
	}

	web := filepath.Join(t.TempDir(), "web.yaml")
	writeFile(t, web, fmt.Sprintf(webManifest, probeImage))
	e.kubectl("apply", "-f", web)
	e.kubectl("rollout", "status", "deployment/web", "--timeout=120s")

	stopWrites := e.writeAtFixedRate()
	stopWatch := e.watchDeployment("web")

	// A machine cannot join in a second, so the first step that replaces machines fails.
	r := e.runProgram(e.slipway, "upgrade", "cluster", clusterName, "--kubernetes-version", later, "--join-timeout", "1s", "--yes")
	if r.code == 0 || !strings.Contains(r.err, "it continues with the step that failed") {
		t.Fatalf("exit status %d, want a failed step\n%s%s", r.code, r.out, clipLog(r.err))
	}
	t.Log(r.out)
	t.Log(clipLog(r.err))
	if groups := e.runSlipway("get", "groups", clusterName, "-o", "yaml"); !strings.Contains(groups, "kubernetesVersion: "+earlier) {
		t.Errorf("workers do not keep version %s while the control plane is upgraded:\n%s", earlier, groups)
	}

	e.killUpgrade("step 3")
	r = e.runProgram(e.slipway, "upgrade", "cluster", clusterName, "--lock-timeout", "3m", "--yes")
	if r.code != 0 {
		t.Fatalf("exit status %d\n%s%s", r.code, r.out, clipLog(r.err))
	}
	t.Log(r.out)
	t.Log(clipLog(r.err))

	if least := stopWatch(); least < 1 {
		t.Error("the Deployment had no available pod for a while")
	}
	acknowledged, failed, longest := stopWrites()
	t.Logf("COUNT upgrade: %d acknowledged writes, %d failed ones, the longest gap %s", len(acknowledged), failed, longest.Round(100*time.Millisecond))
	stored := strings.Fields(e.kubectl("get", "configmaps", "-l", "written=yes", "-o", "jsonpath={.items[*].metadata.name}"))
	for _, name := range acknowledged {
		if !slices.Contains(stored, name) {
			t.Errorf("the acknowledged write %s is lost", name)
		}
	}

	e.waitHealthy(5 * time.Minute)
	if got := e.kubeletVersions(); len(got) != 1 || got["v"+later] != 5 {
		t.Errorf("the versions of nodes are %v, want 5 of v%s", got, later)
	}
	e.checkUpgraded(later)
	e.runSlipway("delete", "cluster", clusterName, "--yes")
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

// writeInterval is the time between two writes of the client.
const writeInterval = 500 * time.Millisecond

// writeAtFixedRate writes objects until stop is called, which returns the acknowledged ones, the number of failed
// writes, and the longest time without an acknowledged write.
func (e *environment) writeAtFixedRate() (stop func() (acknowledged []string, failed int, longest time.Duration)) {
	var halt atomic.Bool
	done := make(chan struct{})
	var names []string
	var failures int
	var gap time.Duration
	go func() {
		defer close(done)
		last := time.Now()
		ticks := time.NewTicker(writeInterval)
		defer ticks.Stop()
		for n := 0; !halt.Load(); n++ {
			<-ticks.C
			name := fmt.Sprintf("write-%d", n)
			manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"written":"yes"}}}`, name)
			file := filepath.Join(e.cache, "write.json")
			if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
				failures++
				continue
			}
			r := e.runProgram(kubectlPath(filepath.Dir(e.cache)), "--kubeconfig", e.kubeconfig(), "--request-timeout=5s", "create", "-f", file)
			if r.code != 0 {
				failures++
				continue
			}
			names = append(names, name)
			gap = max(gap, time.Since(last))
			last = time.Now()
		}
	}()

	return func() ([]string, int, time.Duration) {
		halt.Store(true)
		<-done

		return names, failures, gap
	}
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
