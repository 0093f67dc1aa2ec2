// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"time"
)

// realFault is a fault of one machine.
type realFault struct {
	// name is that of the fault in docs/operations/faults.md, so that its output can be written there.
	name string
	// machine is the instance ID that validate has to name; empty if the fault has several.
	machine string
	// apply and repair are scripts that run in the machines at.
	apply, repair string
	at            []string
	// change and undo are AWS CLI commands instead.
	change, undo []string
	// objects are applied to the cluster, and deleted again.
	objects string
	// severity, kind and cause are what validate has to print.
	severity, kind, cause string
	// within is how long validate may take: 10 s after the fault can be observed.
	within time.Duration
}

// cutOff closes the network of a machine except for its own programs.
const cutOff = `nft 'add table inet cut; add chain inet cut in { type filter hook input priority -300; policy drop; }; ` +
	`add chain inet cut out { type filter hook output priority -300; policy drop; }; ` +
	`add rule inet cut in iif lo accept; add rule inet cut out oif lo accept'`

const rejoin = "nft delete table inet cut"

// freeze stops a program as a hanging disk or a bug would: it exists and answers nothing.
func freeze(program string) (apply, repair string) {
	return "kill -STOP $(pidof " + program + ")", "kill -CONT $(pidof " + program + ")"
}

// faultGroups are the faults in the order in which they are applied. Each group is made when its turn comes, for the
// machines and the leader of that time.
func faultGroups() []func(*environment) []realFault {
	return []func(*environment) []realFault{
		podFaults, memberFaults, targetFaults, stoppedLeader, hangingLeader, programFaults, partFaults,
		stoppedMachine, terminatedMachine, terminatedQuorum,
	}
}

// machinesToBreak returns a worker, and the machines of the control plane by slot.
func (e *environment) machinesToBreak() (worker string, bySlot map[string]string) {
	e.t.Helper()
	for id := range e.listMachines("worker") {
		worker = id
	}
	bySlot = map[string]string{}
	for id, slot := range e.listMachines("control-plane") {
		bySlot[slot] = id
	}

	return worker, bySlot
}

// programFaults are programs of a worker that are stopped or hang, and a quorum that is lost. Agents measure every 5 s, with timeouts of up to 4 s.
func programFaults(e *environment) []realFault {
	e.t.Helper()
	worker, bySlot := e.machinesToBreak()
	stopKubelet, startKubelet := freeze("kubelet")
	stopEtcd, startEtcd := freeze("etcd")
	const seconds = time.Second
	return []realFault{
		{
			name: "The kubelet hangs", machine: worker, at: []string{worker}, apply: stopKubelet, repair: startKubelet,
			severity: "failed", kind: "machine", cause: "kubelet does not answer", within: 10 * seconds,
		},
		{
			name: "The kubelet is stopped", machine: worker, at: []string{worker},
			apply: "systemctl mask --runtime --now kubelet", repair: "systemctl unmask --runtime kubelet; systemctl start kubelet",
			severity: "failed", kind: "machine", cause: "kubelet", within: 10 * seconds,
		},
		{
			// Three heartbeats are missed after 15 s, and a member reports that within 5 s.
			name: "The agent of a worker is stopped", machine: worker, at: []string{worker},
			apply: "systemctl stop slipway-node", repair: "systemctl start slipway-node",
			severity: "failed", kind: "machine", cause: "its agent has not reported", within: 25 * seconds,
		},
		{
			name: "The container runtime is stopped", machine: worker, at: []string{worker},
			apply:    "systemctl mask --runtime --now containerd",
			repair:   "systemctl unmask --runtime containerd; systemctl start containerd; systemctl restart kubelet",
			severity: "failed", kind: "machine", cause: "containerd", within: 10 * seconds,
		},
		{
			// The agents notice it, find that no API server can write, and write to their consoles.
			name: "Two of three members are stopped", at: []string{bySlot["a"], bySlot["b"]}, apply: stopEtcd, repair: startEtcd,
			severity: "critical", kind: "etcd", cause: "quorum lost: 2 of 3 members do not work", within: 25 * seconds,
		},
	}
}

// partFaults are networks, disks and files.
func partFaults(e *environment) []realFault {
	e.t.Helper()
	worker, bySlot := e.machinesToBreak()
	const manifest = "/etc/kubernetes/manifests/kube-scheduler.yaml"
	volume := e.listVolumes()["a"][0]
	const seconds = time.Second
	return []realFault{
		{
			name: "etcd's disk is full", machine: bySlot["b"], at: []string{bySlot["b"]},
			apply: "fallocate -l $(($(df -B1 --output=avail /var/lib/slipway/etcd | tail -1) - 1048576)) /var/lib/slipway/etcd/ballast", repair: "rm /var/lib/slipway/etcd/ballast",
			severity: "failed", kind: "machine", cause: "is full", within: 10 * seconds,
		},
		{
			// The agent looks every 3 s, and reports every 5 s.
			name: "A static pod manifest is corrupted", machine: bySlot["b"], at: []string{bySlot["b"]},
			apply: "echo '{' >" + manifest, repair: "grep -q 'name: kube-scheduler' " + manifest,
			severity: "warning", kind: "machine", cause: manifest + " was changed; restored at ", within: 10 * seconds,
		},
		{
			// A file system that cannot be written, at one path only.
			name: "A file of the agent cannot be restored", machine: bySlot["b"], at: []string{bySlot["b"]},
			apply: "echo '{' >/run/broken && chmod 600 /run/broken && mount --bind -o ro /run/broken " + manifest + " && mount -o remount,bind,ro " + manifest, repair: "umount " + manifest,
			severity: "failed", kind: "machine", cause: manifest + " was changed and cannot be restored", within: 10 * seconds,
		},
		{
			// Its members see it after a timeout of 2 s in reports every 5 s.
			name: "A control-plane machine is cut off from the network", machine: bySlot["c"], at: []string{bySlot["c"]}, apply: cutOff, repair: rejoin,
			severity: "failed", kind: "etcd", cause: "does not answer", within: 12 * seconds,
		},
		{
			// A kubelet renews its lease every 10 s, so its silence can be observed after as long.
			name: "A worker is cut off from the network", machine: worker, at: []string{worker}, apply: cutOff, repair: rejoin,
			severity: "failed", kind: "node", cause: "its kubelet has not reported", within: 20 * seconds,
		},
		{
			name: "etcd's volume is lost", machine: bySlot["a"],
			change:   []string{"ec2", "detach-volume", "--force", "--volume-id", volume},
			undo:     []string{"ec2", "attach-volume", "--volume-id", volume, "--instance-id", bySlot["a"], "--device", "/dev/xvdf"},
			severity: "failed", kind: "machine", cause: "the etcd volume " + volume, within: 15 * seconds,
		},
	}
}

func hangingLeader(e *environment) []realFault {
	e.t.Helper()
	leader := e.findLeader()
	stop, start := freeze("etcd")

	return []realFault{{
		name: "The leader of etcd hangs", machine: leader, at: []string{leader}, apply: stop, repair: start,
		severity: "failed", kind: "etcd", cause: "does not answer", within: 10 * time.Second,
	}}
}

func stoppedLeader(e *environment) []realFault {
	e.t.Helper()
	leader := e.findLeader()

	return []realFault{{
		name: "The leader of etcd is stopped", machine: leader, at: []string{leader},
		apply: "systemctl mask --runtime --now etcd", repair: "systemctl unmask --runtime etcd; systemctl start etcd",
		severity: "failed", kind: "etcd", cause: "does not answer", within: 10 * time.Second,
	}}
}

// memberFaults are parts of one machine of the control plane that fail while the machine works.
func memberFaults(e *environment) []realFault {
	e.t.Helper()
	_, bySlot := e.machinesToBreak()
	stopServer, startServer := freeze("kube-apiserver")
	const seconds = time.Second

	return []realFault{
		{
			// Its own lease tells it: it is renewed every 5 s.
			name: "The agent is stopped", machine: bySlot["c"], at: []string{bySlot["c"]},
			apply: "systemctl stop slipway-node", repair: "systemctl start slipway-node",
			severity: "failed", kind: "machine", cause: "its agent has not reported", within: 25 * seconds,
		},
		{
			// Its members see it after a timeout of 2 s in reports every 5 s; it loses the leader after as long.
			name: "A member does not reach the others", machine: bySlot["c"], at: []string{bySlot["c"]},
			apply:  dropPorts("2379, 2380"),
			repair: rejoin, severity: "failed", kind: "etcd", cause: "is cut off from the other members", within: 15 * seconds,
		},
		{
			name: "An API server does not answer", machine: bySlot["b"], at: []string{bySlot["b"]}, apply: stopServer, repair: startServer,
			severity: "failed", kind: "api", cause: "does not answer", within: 12 * seconds,
		},
	}
}

// dropPorts closes ports of a machine for all others, in both directions.
func dropPorts(ports string) string {
	return `nft 'add table inet cut; add chain inet cut in { type filter hook input priority -300; }; ` +
		`add chain inet cut out { type filter hook output priority -300; }; ` +
		`add rule inet cut in iifname != "lo" tcp dport { ` + ports + ` } drop; ` +
		`add rule inet cut out oifname != "lo" tcp dport { ` + ports + ` } drop'`
}

// targetFaults are API servers that work and that the load balancer leaves out.
func targetFaults(e *environment) []realFault {
	e.t.Helper()
	_, bySlot := e.machinesToBreak()
	const seconds = time.Second
	r := e.runProgram("aws", "elbv2", "describe-target-groups", "--query", "TargetGroups[?Port==`6443`].TargetGroupArn | [0]", "--output", "text")
	if r.code != 0 {
		e.t.Fatal(r.err)
	}
	arn := strings.TrimSpace(r.out)
	target := []string{"--target-group-arn", arn, "--targets", "Id=" + bySlot["a"]}

	return []realFault{
		{
			// It leaves for 10 s, the deregistration delay, and validate calls that a replacement.
			name: "A machine is not registered with the load balancer", machine: bySlot["a"],
			change:   append([]string{"elbv2", "deregister-targets"}, target...),
			undo:     append([]string{"elbv2", "register-targets"}, target...),
			severity: "failed", kind: "target", cause: "is not registered", within: 20 * seconds,
		},
		{
			// Two health checks fail, 5 s apart and after 4 s each.
			name: "The load balancer does not reach an API server", machine: bySlot["b"], at: []string{bySlot["b"]},
			apply: dropPorts("6443"), repair: rejoin,
			severity: "failed", kind: "target", cause: "the load balancer sends it no requests", within: 20 * seconds,
		},
	}
}

// brokenPod is a Pod of kube-system on one node: name, node, image, argument and port of the readiness probe.
const brokenPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: kube-system}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - name: probe
    image: %s
    args: [%s, ":8080"]
    readinessProbe: {tcpSocket: {port: %d}, periodSeconds: 2, failureThreshold: 1}
    securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
`

// podFaults are system pods that do not run.
func podFaults(e *environment) []realFault {
	e.t.Helper()
	worker, _ := e.machinesToBreak()
	node := e.kubectl("get", "nodes", "-o", `jsonpath={range .items[*]}{.spec.providerID} {.metadata.name}{"\n"}{end}`)
	_, node, _ = strings.Cut(node, "/"+worker+" ")
	node, _, _ = strings.Cut(node, "\n")
	const seconds = time.Second

	return []realFault{
		{
			name: "A container crashes", machine: worker,
			objects:  fmt.Sprintf(brokenPod, "crashes", node, probeImage, "no-such-command", 8080),
			severity: "failed", kind: "pod", cause: "CrashLoopBackOff", within: 15 * seconds,
		},
		{
			name: "An image cannot be pulled", machine: worker,
			objects:  fmt.Sprintf(brokenPod, "no-image", node, strings.Replace(probeImage, "probe:", "no-such-image:", 1), "serve", 8080),
			severity: "failed", kind: "pod", cause: "ImagePull", within: 10 * seconds,
		},
		{
			name: "A pod is not ready", machine: worker,
			objects:  fmt.Sprintf(brokenPod, "not-ready", node, probeImage, "serve", 8081),
			severity: "failed", kind: "pod", cause: "not Ready: readiness probe failed", within: 10 * seconds,
		},
	}
}

// stoppedMachine is a worker that somebody stops: its group replaces it.
func stoppedMachine(e *environment) []realFault {
	e.t.Helper()
	worker, _ := e.machinesToBreak()

	return []realFault{{
		name: "A machine is stopped", change: []string{"ec2", "stop-instances", "--instance-ids", worker},
		severity: "failed", kind: "group", cause: worker + " is stopp", within: 10 * time.Second,
	}}
}

// terminatedMachine is a machine of the control plane that somebody terminates: its slot's group replaces it.
func terminatedMachine(e *environment) []realFault {
	e.t.Helper()
	_, bySlot := e.machinesToBreak()

	return []realFault{{
		name: "A control-plane machine is terminated", change: []string{"ec2", "terminate-instances", "--instance-ids", bySlot["a"]},
		severity: "failed", kind: "group", cause: "0 of 1 machines are running", within: 10 * time.Second,
	}}
}

func terminatedQuorum(e *environment) []realFault {
	e.t.Helper()
	_, bySlot := e.machinesToBreak()

	return []realFault{{
		name:     "Two of three control-plane machines are gone",
		change:   []string{"ec2", "terminate-instances", "--instance-ids", bySlot["b"], bySlot["c"]},
		severity: "critical", kind: "etcd", cause: "quorum lost: 2 of 3 members do not work", within: 10 * time.Second,
	}}
}
