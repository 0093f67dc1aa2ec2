// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTermination ends machines in the ways that nobody has asked Slipway for. Each time, their pods move first.
func TestTermination(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	for _, s := range []step{
		{"up", createCluster},
		{"scale-in drains", drainOnScaleIn},
		{"a rebalance recommendation drains", drainOnRecommendation},
		{"a spot notice drains", drainOnSpotNotice},
		{"a reboot stops pods in order", rebootGracefully},
		{"a worker without a kubelet is replaced", repairWorker},
		{"delete leaves nothing", func(e *environment) { e.runSlipway("delete", "cluster", clusterName, "--yes") }},
	} {
		e.runStep(t, s)
	}
}

// shopManifest is a Deployment behind a Service, whose pods finish their requests before they stop, and a budget.
const shopManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      automountServiceAccountToken: false
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: shop}}}
      containers:
      - name: shop
        image: %s
        args: [serve]
        lifecycle: {preStop: {sleep: {seconds: 3}}}
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: default}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop, namespace: default}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: shop}}}
`

// openShop creates the Deployment, and sends requests to it from a control-plane machine until stop is called, which
// returns the number of answers and of failed requests.
func (e *environment) openShop() (stop func() (answers, failures int)) {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, shopManifest, probeImage), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.kubectl("apply", "-f", file)
	e.kubectl("rollout", "status", "deployment/shop", "--timeout=120s")
	address := strings.TrimSpace(e.kubectl("get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}"))
	var client string
	for id := range e.listMachines("control-plane") {
		client = id
	}
	e.mustRunInMachine(client, `rm -f /tmp/shop*; touch /tmp/shop-open
		until curl -sf -m 2 -o /dev/null http://`+address+`/hostname; do sleep 0.2; done # the Service has reached this machine
		(while [ -e /tmp/shop-open ]; do
		curl -sf -m 2 -o /dev/null http://`+address+`/hostname && echo ok || echo failed $(date +%T) $?; sleep 0.1; done >/tmp/shop.log 2>&1 &)`)

	return func() (int, int) {
		e.t.Helper()
		log := e.mustRunInMachine(client, "rm -f /tmp/shop-open; sleep 3; cat /tmp/shop.log")
		e.kubectl("delete", "-f", file, "--wait=false")
		failures := strings.Count(log, "failed")
		if failures > 0 {
			e.t.Logf("failed requests:\n%s", strings.Join(grepLines(log, "failed"), "\n"))
		}

		return strings.Count(log, "ok"), failures
	}
}

// grepLines returns the lines of text that contain word, at most 20.
func grepLines(text, word string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) && len(out) < 20 {
			out = append(out, strings.TrimSpace(line))
		}
	}

	return out
}

// scaling runs an operation of Auto Scaling on the group of the workers.
func (e *environment) scaling(args ...string) {
	e.t.Helper()
	if r := e.runProgram("aws", append([]string{"autoscaling"}, args...)...); r.code != 0 {
		e.t.Fatal(r.err)
	}
}

// drainOnScaleIn shrinks the group of the workers. The machine that Auto Scaling terminates is drained by its agent, so
// that no request is lost.
func drainOnScaleIn(e *environment) {
	group := "workers." + clusterName
	before := e.listMachines("worker")
	stop := e.openShop()
	start := time.Now()
	e.scaling("update-auto-scaling-group", "--auto-scaling-group-name", group, "--min-size", "1", "--desired-capacity", "1")
	e.waitUntil("a worker is drained and terminated", 3*time.Minute, func() error {
		if after := e.listMachines("worker"); len(after) != len(before)-1 {
			return fmt.Errorf("workers %v, before %v", after, before)
		}
		return nil
	})
	e.t.Logf("COUNT scale-in: a worker ended after %s", time.Since(start).Round(100*time.Millisecond))
	e.kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	if answers, failures := stop(); failures > 0 || answers < 20 {
		e.t.Errorf("%d answers, %d failed requests, want none", answers, failures)
	} else {
		e.t.Logf("COUNT scale-in: %d requests, none failed", answers)
	}
	if events := e.kubectl("get", "events", "-n", "default", "--field-selector", "involvedObject.kind=Node,reason=Terminating"); !strings.Contains(events, "drained in ") {
		e.t.Errorf("events: %s", events)
	} else {
		e.t.Log(events)
	}
	e.scaling("update-auto-scaling-group", "--auto-scaling-group-name", group, "--min-size", "2", "--desired-capacity", "2")
	e.waitHealthy(5 * time.Minute)
}

// repairWorker stops the kubelet of a worker for good. The worker is drained and replaced.
func repairWorker(e *environment) {
	e.scaling("create-or-update-tags", "--tags",
		"ResourceId=workers."+clusterName+",ResourceType=auto-scaling-group,Key=slipway.dev/repair,Value=20s 50%,PropagateAtLaunch=true")
	before := e.listMachines("worker")
	var victim string
	for id := range before {
		victim = id
	}
	start := time.Now()
	e.mustRunInMachine(victim, "systemctl stop slipway-node; systemctl mask --runtime --now kubelet; ! systemctl is-active -q kubelet")
	e.waitUntil("the worker is replaced", 5*time.Minute, func() error {
		after := e.listMachines("worker")
		if _, there := after[victim]; there || len(after) != len(before) {
			return fmt.Errorf("workers %v, before %v", after, before)
		}
		return nil
	})
	e.t.Logf("COUNT repair: a worker without a kubelet was terminated after %s", time.Since(start).Round(time.Second))
	e.t.Log(e.kubectl("get", "events", "-n", "default", "--field-selector", "involvedObject.kind=Node", "--sort-by=.lastTimestamp"))
	e.waitHealthy(5 * time.Minute)
	e.runSlipway("apply", clusterName, "--yes") // sets the tag again
}

// spotsManifest is a group of one spot machine that is replaced before AWS interrupts it.
const spotsManifest = `apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata:
  name: spots
spec:
  role: Worker
  minSize: 1
  maxSize: 2
  machineType: t3.large
  capacityRebalance: true
  mixedInstancesPolicy:
    instances: [t3.large]
    onDemandBase: 0
    onDemandAboveBase: 0
`

// drainOnRecommendation gives a spot machine a rebalance recommendation. Auto Scaling launches another machine, and then
// ends the first one, as it does when it balances zones. Its agent drains it, so that no request is lost.
func drainOnRecommendation(e *environment) {
	file := filepath.Join(e.t.TempDir(), "spots.yaml")
	writeFile(e.t, file, spotsManifest)
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(5 * time.Minute)
	name, id := e.findSpotNode()
	stop := e.openShop()
	start := time.Now()
	e.runSlipway("region", "faults", "add", "--effect", "rebalance-recommendation", "--instance", id)
	e.waitUntil("another machine has replaced the one at risk", 4*time.Minute, func() error {
		if _, there := e.listMachines("worker")[id]; there {
			return fmt.Errorf("%s runs", id)
		}
		return nil
	})
	e.t.Logf("COUNT rebalance recommendation: the machine was replaced after %s", time.Since(start).Round(100*time.Millisecond))
	answers, failures := stop()
	e.t.Logf("COUNT rebalance recommendation: %d requests, %d failed", answers, failures)
	if failures > 0 || answers < 20 {
		e.t.Errorf("%d answers, %d failed requests, want none", answers, failures)
	}
	events := e.kubectl("get", "events", "-n", "default", "--field-selector", "involvedObject.name="+name)
	if !strings.Contains(events, "RebalanceRecommendation") || !strings.Contains(events, "drained in ") {
		e.t.Errorf("events: %s", events)
	}
	e.runSlipway("region", "faults", "clear")
	e.waitHealthy(5 * time.Minute)
}

// findSpotNode returns the name and the machine of a Ready spot node.
func (e *environment) findSpotNode() (name, machine string) {
	e.t.Helper()
	nodes := e.kubectl("get", "nodes", "-l", "node.kubernetes.io/lifecycle=spot", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.providerID} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "True" {
			return f[0], f[1][strings.LastIndex(f[1], "/")+1:]
		}
	}

	e.t.Fatalf("no spot node is Ready:\n%s", nodes)
	return "", ""
}

// drainOnSpotNotice gives a spot machine the interruption notice. Its agent drains it before AWS terminates it.
func drainOnSpotNotice(e *environment) {
	name, id := e.findSpotNode()
	stop := e.openShop()
	start := time.Now()
	e.runSlipway("region", "faults", "add", "--effect", "spot-interruption", "--instance", id)
	e.waitUntil("the spot machine is drained", time.Minute, func() error {
		pods := e.kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName="+name, "-l", "app=shop", "-o", "name")
		cordoned := e.kubectl("get", "node", name, "-o", "jsonpath={.spec.unschedulable}")
		if cordoned != "true" || strings.TrimSpace(pods) != "" {
			return fmt.Errorf("cordoned %q, pods %s", cordoned, pods)
		}
		return nil
	})
	e.t.Logf("COUNT spot: drained %s after the notice", time.Since(start).Round(100*time.Millisecond))
	e.t.Log(e.kubectl("get", "events", "-n", "default", "--field-selector", "involvedObject.name="+name))
	e.waitUntil("AWS has terminated it", 3*time.Minute, func() error {
		if _, there := e.listMachines("worker")[id]; there {
			return fmt.Errorf("%s runs", id)
		}
		return nil
	})
	if answers, failures := stop(); failures > 0 {
		e.t.Errorf("%d answers, %d failed requests, want none", answers, failures)
	}
	e.runSlipway("region", "faults", "clear")
	e.waitHealthy(5 * time.Minute)
	e.runSlipway("delete", "group", "spots", "--name", clusterName, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(3 * time.Minute)
}

// rebootGracefully reboots a worker. The kubelet stops its pods before the operating system ends it.
func rebootGracefully(e *environment) {
	stop := e.openShop()
	node := strings.Fields(e.kubectl("get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[*].spec.nodeName}"))[0]
	machine := strings.TrimSpace(e.kubectl("get", "node", node, "-o", "jsonpath={.spec.providerID}"))
	machine = machine[strings.LastIndex(machine, "/")+1:]
	if locks := e.mustRunInMachine(machine, "systemd-inhibit --list --no-pager"); !strings.Contains(locks, "kubelet") {
		e.t.Errorf("the kubelet does not hold up a shutdown:\n%s", locks)
	}
	if delay := e.mustRunInMachine(machine, "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec"); !strings.Contains(delay, "60000000") {
		e.t.Errorf("a shutdown waits for %s us, want 60 s", delay)
	}
	podOf := func(namespace, label string) string {
		return strings.TrimSpace(e.kubectl("get", "pods", "-n", namespace, "-l", label, "--field-selector", "spec.nodeName="+node, "-o", "jsonpath={.items[0].metadata.name}"))
	}
	usual := podOf("default", "app=shop")
	critical := podOf("kube-system", "k8s-app=kube-proxy")
	e.mustRunInMachine(machine, "systemctl reboot --no-block")
	var stopped, last string
	e.waitUntil("the pods on "+node+" were stopped because of the shutdown", time.Minute, func() error {
		shutdown := e.kubectl("get", "events", "-n", "default", "--field-selector", "reason=Shutdown,involvedObject.name="+node, "-o", "name")
		stopped = e.findKilling("default", usual)
		last = e.findKilling("kube-system", critical)
		if shutdown == "" || stopped == "" || last == "" {
			return fmt.Errorf("events: shutdown %q, %s %q, %s %q", shutdown, usual, stopped, critical, last)
		}
		return nil
	})
	e.t.Logf("COUNT reboot: %s was stopped at %s, %s at %s", usual, stopped, critical, last)
	if stopped > last {
		e.t.Error("a critical pod was stopped before a usual one")
	}
	answers, failures := stop()
	e.t.Logf("%d answers, %d failed requests", answers, failures)
	e.waitHealthy(5 * time.Minute)
}

// findKilling returns when the kubelet began to stop a pod, by its event; empty: not yet.
func (e *environment) findKilling(namespace, pod string) string {
	e.t.Helper()
	return strings.TrimSpace(e.kubectl("get", "events", "-n", namespace, "--field-selector", "reason=Killing,involvedObject.name="+pod, "-o", "jsonpath={.items[*].lastTimestamp}"))
}
