// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// loadManifest is a Deployment of four pods with a budget that lets one of them be missing, behind a Service. A pod that
// is to end serves until every node has heard of it.
const loadManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: load, namespace: default}
spec:
  replicas: 4
  selector: {matchLabels: {app: load}}
  template:
    metadata: {labels: {app: load}}
    spec:
      automountServiceAccountToken: false
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: load}}}
      containers:
      - name: load
        image: %s
        args: [serve]
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
---
apiVersion: v1
kind: Service
metadata: {name: load, namespace: default}
spec: {selector: {app: load}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: load, namespace: default}
spec: {maxUnavailable: %d, selector: {matchLabels: {app: load}}}
`

// Limits of a rolling update under load.
const (
	// blockedLimit is the time after which a drain names the budget that blocks it.
	blockedLimit = 10 * time.Second
)

// TestRollingUpdate replaces all five machines of a cluster under load, and lets updates stop in every way.
func TestRollingUpdate(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createCluster},
		{"all machines are replaced under load", replaceUnderLoad},
		{"a budget that allows nothing is reported", checkBlockedDrain},
		{"a configuration that does not work is rolled back", checkAutomaticRollback},
		{"delete leaves nothing", func(e *environment) { e.runSlipway("delete", "cluster", clusterName, "--yes") }},
	})
}

// deployLoad creates the Deployment, its Service and a budget.
func (e *environment) deployLoad(maxUnavailable int) {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "load.yaml")
	writeFile(e.t, file, fmt.Sprintf(loadManifest, probeImage, maxUnavailable))
	e.kubectl("apply", "-f", file)
	e.kubectl("rollout", "status", "deployment/load", "--timeout=120s")
}

// changeRootVolume gives all machines of the cluster another root volume, which needs new machines.
func (e *environment) changeRootVolume(size int) {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "groups.yaml")
	groups := e.runSlipway("get", "groups", clusterName, "-o", "yaml")
	volume := regexp.MustCompile(`(?m)^  rootVolume:\n(?:    .*\n)*`)
	groups = volume.ReplaceAllString(groups, "")
	writeFile(e.t, file, strings.ReplaceAll(groups, "\nspec:\n", fmt.Sprintf("\nspec:\n  rootVolume:\n    size: %d\n", size)))
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
}

// replaceUnderLoad replaces all machines. The first process is interrupted while the first machine is replaced, another
// one continues, and a third one watches.
func replaceUnderLoad(e *environment) {
	before := e.listMachines("control-plane")
	workers := e.listMachines("worker")
	e.changeRootVolume(41)
	if r := e.runProgram(e.slipway, "rolling-update", "cluster", clusterName); strings.Count(r.out, "its launch template is version 1") != 5 {
		e.t.Errorf("the plan does not name five machines:\n%s%s", r.out, r.err)
	}

	load := e.putUnderLoad("rolling update", anyKey(workers))
	watched := make(chan commandResult, 1)
	go func() {
		watched <- e.runProgram(e.slipway, "rolling-update", "status", clusterName, "--watch")
	}()

	begin := time.Now()
	first := e.startRoll("--yes")
	first.waitFor("drain", func(v rollEvent) bool { return v.Slot != "" })
	first.signal(syscall.SIGINT)
	r := first.wait()
	if r.code == 0 || !strings.Contains(r.err, "interrupted: 1 of 5 machines were replaced") {
		e.t.Fatalf("exit status %d after Ctrl-C\n%s%s", r.code, r.out, r.err)
	}
	if strings.Contains(r.err, "is cordoned") {
		e.t.Errorf("the interrupted update left a machine cordoned: %s", r.err)
	}
	e.t.Log(e.runSlipway("rolling-update", "status", clusterName))

	load.moveClient(e.findOther("control-plane", before))
	second := e.startRoll("--yes", "--lock-timeout", "2m")
	if r := second.wait(); r.code != 0 {
		e.t.Fatalf("exit status %d of the process that continues\n%s%s", r.code, r.out, r.err)
	}
	took := time.Since(begin)
	load.stop(maxWriteGap())
	e.checkSteps(append(first.events(), second.events()...), took)

	if r := <-watched; r.code != 0 || !strings.Contains(r.out, "handing over") && !strings.Contains(r.out, "standby") {
		e.t.Errorf("status --watch: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	for id := range e.listMachines("control-plane") {
		if _, old := before[id]; old {
			e.t.Errorf("machine %s was not replaced", id)
		}
	}
	for id := range e.listMachines("worker") {
		if _, old := workers[id]; old {
			e.t.Errorf("machine %s was not replaced", id)
		}
	}
	e.waitHealthy(5 * time.Minute)
	checkEmptyPlan(e)
}

// checkSteps checks what the events tell: every slot was handed over, and how long its member was missing.
func (e *environment) checkSteps(events []rollEvent, took time.Duration) {
	e.t.Helper()
	handedOver := 0
	for _, v := range events {
		if v.Type != "joined" || v.Slot == "" {
			continue
		}
		handedOver++
		e.t.Logf("COUNT rolling update: the etcd member of slot %s was missing for %.1f s", v.Slot, v.MemberMissingSeconds)
		if v.MemberMissingSeconds == 0 || v.MemberMissingSeconds > maxMemberMissing() {
			e.t.Errorf("the member of slot %s was missing for %.1f s", v.Slot, v.MemberMissingSeconds)
		}
	}
	e.t.Logf("COUNT rolling update: five machines in %s", took.Round(time.Second))
	if handedOver != 3 {
		e.t.Errorf("%d slots were handed over, want 3", handedOver)
	}
}

// checkBlockedDrain makes a budget impossible to satisfy. The drain names it and its pod, and ends.
func checkBlockedDrain(e *environment) {
	e.deployLoad(0)
	roll := e.startRoll("--group", "workers", "--force", "--drain-timeout", "15s", "--yes")
	drain := roll.waitFor("drain", func(v rollEvent) bool { return v.Group == "workers" })
	blocked := roll.waitFor("blocked", func(v rollEvent) bool { return strings.Contains(v.Message, "budget") })
	took := blocked.Time.Sub(drain.Time)
	e.t.Logf("COUNT rolling update: a budget that allows nothing was reported after %s", took.Round(100*time.Millisecond))
	if took > blockedLimit || !strings.Contains(blocked.Message, "default/load") {
		e.t.Errorf("after %s: %s", took, blocked.Message)
	}
	r := roll.wait()
	if r.code == 0 || !strings.Contains(r.err, "the drain did not end in time") || !strings.Contains(r.err, "default/load") {
		e.t.Errorf("exit status %d\n%s", r.code, r.err)
	}
	e.kubectl("delete", "poddisruptionbudget", "load")
}

// checkAutomaticRollback gives the workers a kubelet with another hash. The drain of the step before had begun, so that
// machine is replaced; its replacement does not join, and the update stops and rolls back.
func checkAutomaticRollback(e *environment) {
	bad := e.writeCatalog("kubelet", map[string]string{e.readCatalogField("kubelet", "sha256"): strings.Repeat("0f", 32)})
	manifest := filepath.Join(e.t.TempDir(), "cluster.yaml")
	writeFile(e.t, manifest, e.runSlipway("get", "clusters", clusterName, "-o", "yaml"))
	e.runSlipway("replace", "-f", manifest, "--assets", bad, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	before := e.listMachines("worker")

	roll := e.startRoll("--group", "workers", "--automatic-rollback", "--join-timeout", "60s", "--yes")
	r := roll.wait()
	e.t.Log(r.err)
	for _, want := range []string{"stopped after 1 machines", "it stopped at stage verify", "kubelet", "rolled back"} {
		if r.code == 0 || !strings.Contains(r.err, want) {
			e.t.Errorf("exit status %d, and no %q in:\n%s", r.code, want, r.err)
		}
	}
	kept := 0
	for id := range e.listMachines("worker") {
		if _, old := before[id]; old {
			kept++
		}
	}
	if kept != 1 {
		e.t.Errorf("%d workers of before are left, want 1", kept)
	}
	e.waitHealthy(5 * time.Minute)
	e.kubectl("rollout", "status", "deployment/load", "--timeout=120s")
}

// handOverSlot replaces one control-plane machine, and is asked to stop meanwhile.
func handOverSlot(e *environment) {
	skipUnlessLong(e.t)
	before := e.listMachines("control-plane")
	writes := e.startWriter()
	begin := time.Now()
	roll := e.startRoll("--group", "control-plane", "--force", "--yes")
	roll.waitFor("drain", func(v rollEvent) bool { return v.Slot != "" })
	roll.signal(syscall.SIGINT)
	r := roll.wait()
	if r.code == 0 || !strings.Contains(r.err, "interrupted: 1 of 3 machines were replaced") {
		e.t.Fatalf("exit status %d after Ctrl-C\n%s%s", r.code, r.out, r.err)
	}
	e.checkWrites("hand-over", writes.stop(), maxWriteGap())
	missing := -1.0
	for _, v := range roll.events() {
		if v.Type == "joined" {
			missing = v.MemberMissingSeconds
		}
	}
	e.t.Logf("COUNT hand-over: one slot in %s, its etcd member was missing for %.1f s", time.Since(begin).Round(time.Second), missing)
	if missing <= 0 || missing > maxMemberMissing() {
		e.t.Errorf("the member was missing for %.1f s", missing)
	}
	if kept := countOld(before, e.listMachines("control-plane")); kept != 2 {
		e.t.Errorf("%d control-plane machines of before are left, want 2", kept)
	}
	e.waitHealthy(3 * time.Minute)
	checkData(e)
}

// countOld counts the machines that were there before.
func countOld(before, after map[string]string) int {
	n := 0
	for id := range after {
		if _, old := before[id]; old {
			n++
		}
	}
	return n
}

// anyKey returns a key of a map.
func anyKey(m map[string]string) string {
	for k := range m {
		return k
	}
	return ""
}

// writeCatalog writes a copy of the asset catalogue in which texts of one file are replaced, and returns its path.
func (e *environment) writeCatalog(name string, texts map[string]string) string {
	e.t.Helper()
	catalogue, err := os.ReadFile(filepath.Join(e.cache, "assets", "catalog.yaml"))
	if err != nil {
		e.t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(catalogue), "\nimages:")
	rest := strings.TrimPrefix(string(catalogue), text)
	head, file, _ := strings.Cut(text, "\n  name: "+name+"\n")
	for from, to := range texts {
		file = strings.Replace(file, from, to, 1)
	}
	path := filepath.Join(e.t.TempDir(), "catalog.yaml")
	writeFile(e.t, path, head+"\n  name: "+name+"\n"+file+rest)
	return path
}
