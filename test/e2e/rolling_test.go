// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// webManifest is a Deployment with a budget that lets one of its two pods be missing.
const webManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: %s
        args: [serve]
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
`

// editWorkers replaces the kubelet's settings in the workers' manifest by these lines, which may have other settings, too.
func (e *environment) editWorkers(lines string) {
	e.t.Helper()
	group := ""
	for doc := range strings.SplitSeq(e.runSlipway("get", "groups", clusterName, "-o", "yaml"), "---\n") {
		if strings.Contains(doc, "name: workers\n") {
			group = withoutBlock(doc, "  kubelet:")
		}
	}
	file := filepath.Join(e.t.TempDir(), "workers.yaml")
	if err := os.WriteFile(file, []byte(group+lines), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
}

// withoutBlock returns YAML without the block that begins with a line.
func withoutBlock(text, begin string) string {
	var out strings.Builder
	inBlock := false
	for line := range strings.Lines(text) {
		inside := strings.HasPrefix(line, "   ")
		inBlock = strings.TrimRight(line, "\n") == begin || inBlock && inside
		if !inBlock && strings.TrimSpace(line) != "" {
			out.WriteString(line)
		}
	}
	return out.String()
}

// replaceWorkers changes a setting of the workers that needs new machines, and replaces them one after the other. A Deployment with a budget
// keeps a pod that serves at all times.
func replaceWorkers(e *environment) {
	dir := e.t.TempDir()
	web := filepath.Join(dir, "web.yaml")
	if err := os.WriteFile(web, fmt.Appendf(nil, webManifest, probeImage), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.kubectl("apply", "-f", web)
	e.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
	before := e.listMachines("worker")

	e.editWorkers("  nodeLabels:\n    example.com/replaced: \"yes\"\n")
	e.runSlipway("apply", clusterName, "--yes")
	if after := e.listMachines("worker"); fmt.Sprint(after) != fmt.Sprint(before) {
		e.t.Fatalf("apply replaced machines: %v, before %v", after, before)
	}

	stop := e.watchDeployment("web")
	e.runSlipway("rolling-update", "cluster", clusterName, "--group", "workers", "--yes")
	if least := stop(); least < 1 {
		e.t.Error("the Deployment had no available pod for a while")
	}

	after := e.listMachines("worker")
	if len(after) != len(before) {
		e.t.Errorf("%d workers, before %d", len(after), len(before))
	}
	for id := range after {
		if _, old := before[id]; old {
			e.t.Errorf("machine %s was not replaced", id)
		}
	}
	e.waitHealthy(5 * time.Minute)
	e.kubectl("delete", "-f", web, "--wait=false")
	// The control plane may still have to get the number of a version whose document its machines follow already.
	r := e.runProgram(e.slipway, "rolling-update", "cluster", clusterName, "--yes")
	if r.code != 0 || !strings.Contains(r.err, "newest launch template") && !strings.Contains(r.err, "replaced 0 machines") {
		e.t.Errorf("a second update: exit status %d\n%s%s", r.code, r.out, r.err)
	}
}

// watchDeployment reads how many pods of a Deployment are available until stop is called, which returns the least.
func (e *environment) watchDeployment(name string) (stop func() int) {
	var halt atomic.Bool
	done := make(chan int)
	go func() {
		least := 1 << 30
		for !halt.Load() {
			r := e.runProgram(kubectlPath(filepath.Dir(e.cache)), "--kubeconfig", e.kubeconfig(), "--request-timeout=5s",
				"get", "deployment", name, "-o", "jsonpath={.status.availableReplicas}")
			n := 0
			if _, err := fmt.Sscan(r.out, &n); r.code == 0 && (err == nil || strings.TrimSpace(r.out) == "") {
				least = min(least, n)
			}
			time.Sleep(500 * time.Millisecond)
		}
		done <- least
	}()

	return func() int { halt.Store(true); return <-done }
}
