// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// followedMachine is a machine as slipway get machines shows it.
type followedMachine struct {
	ID       string
	Node     string
	Group    string
	Slot     string
	State    string
	Revision struct{ Current, Desired, State, Cause string }
}

// revisions returns the running machines of the cluster's groups.
func (e *environment) revisions() []followedMachine {
	e.t.Helper()
	var list struct{ Items []followedMachine }
	out := e.runSlipway("get", "machines", clusterName, "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		e.t.Fatalf("get machines: %v\n%s", err, out)
	}
	var running []followedMachine
	for _, m := range list.Items {
		if m.State == "running" && m.Revision.Desired != "" {
			running = append(running, m)
		}
	}
	return running
}

// desiredSerial returns the serial of the newest revision that a node of the group has seen.
func (e *environment) desiredSerial(group string) int64 {
	e.t.Helper()
	newest := int64(0)
	text := e.kubectl("get", "nodes", "-l", "slipway.dev/group="+group, "-o", `jsonpath={range .items[*]}{.metadata.annotations.slipway\.dev/report}{"\n"}{end}`)
	for line := range strings.Lines(text) {
		var report struct{ Revision struct{ DesiredSerial int64 } }
		if err := json.Unmarshal([]byte(line), &report); err != nil {
			e.t.Fatalf("the report of a node of %s: %v\n%s", group, err, line)
		}
		newest = max(newest, report.Revision.DesiredSerial)
	}
	return newest
}

// waitForRevisions waits until all machines of a group report a state of the document that is desired now.
func (e *environment) waitForRevisions(group, state string, limit time.Duration) []followedMachine {
	e.t.Helper()
	start := time.Now()
	for {
		var waiting []followedMachine
		machines := e.revisions()
		seen := 0
		for _, m := range machines {
			if m.Group != group {
				continue
			}
			seen++
			if m.Revision.State != state || state == "current" && m.Revision.Current != m.Revision.Desired {
				waiting = append(waiting, m)
			}
		}
		if seen > 0 && len(waiting) == 0 {
			e.t.Logf("COUNT all %d machines of %s are %s after %s", seen, group, state, time.Since(start).Round(time.Second))
			return machines
		}
		if time.Since(start) > limit {
			e.t.Fatalf("after %s these machines are not %s: %+v", limit, state, waiting)
		}
		time.Sleep(time.Second)
	}
}

// editCluster changes etcd's timing in the cluster's manifest and adds lines to its spec.
func (e *environment) editCluster(heartbeatMS int, more string) {
	e.t.Helper()
	var lines []string
	for line := range strings.SplitSeq(e.runSlipway("get", "cluster", clusterName, "-o", "yaml"), "\n") {
		if strings.Contains(line, "heartbeatIntervalMS:") || strings.Contains(line, "electionTimeoutMS:") {
			continue
		}
		lines = append(lines, line)
		switch {
		case line == "  etcd:":
			lines = append(lines, fmt.Sprintf("    heartbeatIntervalMS: %d", heartbeatMS), fmt.Sprintf("    electionTimeoutMS: %d", 10*heartbeatMS))
		case line == "  kubeControllerManager:" && more != "": // create cluster writes this field
			lines = append(lines, "    terminatedPodGCThreshold: 77")
		}
	}
	file := filepath.Join(e.t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(strings.TrimRight(strings.Join(lines, "\n"), "\n")+"\n"+more), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.runSlipway("replace", "-f", file, "--yes")
}

// turn is the time in which a machine restarted components because of a new document, in seconds.
type turn struct {
	machine    string
	begin, end float64
}

// checkTurns checks by the journals of the agents that no two control-plane machines restarted components at the same time.
func (e *environment) checkTurns(machines map[string]string) {
	e.t.Helper()
	var turns []turn
	for id := range machines {
		out := e.mustRunInMachine(id, "journalctl -u slipway-node -o short-unix --no-pager | grep -E 'restarting for a new node document|applied a new node document'")
		now := turn{machine: id}
		for line := range strings.Lines(out) {
			var at float64
			if _, err := fmt.Sscan(line, &at); err != nil {
				e.t.Fatalf("%s: %v", line, err)
			}
			if now.begin == 0 {
				now.begin = at
			}
			now.end = at
		}
		if !strings.Contains(out, "applied a new node document") {
			e.t.Errorf("machine %s has applied nothing:\n%s", id, out)
		}
		turns = append(turns, now)
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.begin, b.begin) })
	for i, now := range turns {
		e.t.Logf("COUNT control-plane machine %s restarted components for %.0f s", now.machine, now.end-now.begin)
		if i > 0 && now.begin < turns[i-1].end {
			e.t.Errorf("two control-plane machines restarted components at the same time: %+v", turns[i-1:i+1])
		}
	}
}

// checkSettings checks that running machines have the settings of the changed manifests.
func (e *environment) checkSettings(workers, controlPlane map[string]string) {
	e.t.Helper()
	for _, m := range e.revisions() {
		if m.Group != "workers" {
			continue
		}
		conf := e.kubectl("get", "--raw=/api/v1/nodes/"+m.Node+"/proxy/configz")
		if !strings.Contains(conf, `"memory":"111Mi"`) || !strings.Contains(conf, `"maxPods":99`) {
			e.t.Errorf("the kubelet of %s has not the new settings:\n%s", m.ID, conf)
		}
		if got := strings.TrimSpace(e.mustRunInMachine(m.ID, "cat /proc/sys/net/ipv4/tcp_keepalive_time")); got != "601" {
			e.t.Errorf("machine %s: tcp_keepalive_time is %s", m.ID, got)
		}
	}
	for id := range controlPlane {
		args := e.mustRunInMachine(id, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -E '^(--event-ttl|--terminated-pod-gc-threshold|ETCD_HEARTBEAT_INTERVAL)=' | LC_ALL=C sort -u")
		if want := "--event-ttl=2h\n--terminated-pod-gc-threshold=77\nETCD_HEARTBEAT_INTERVAL=150"; args != want {
			e.t.Errorf("machine %s runs with\n%swant\n%s", id, args, want)
		}
	}
	if now := e.listMachines("worker"); fmt.Sprint(now) != fmt.Sprint(workers) {
		e.t.Errorf("workers %v, before %v", now, workers)
	}
	if now := e.listMachines("control-plane"); fmt.Sprint(now) != fmt.Sprint(controlPlane) {
		e.t.Errorf("control plane %v, before %v", now, controlPlane)
	}
}

// followDocuments changes settings that running machines apply themselves. They are in effect without replacing a machine,
// one control-plane machine at a time restarts components, and the API answers. In the long form the rest follows: all
// workers have the settings, rolling-update has nothing to do, a value with which the kubelet does not start is tried by one
// machine, which then works as before, and by no other one, and a rollback takes live changes back.
func followDocuments(e *environment) {
	workers := e.listMachines("worker")
	controlPlane := e.listMachines("control-plane")
	e.waitForRevisions("workers", "current", 2*time.Minute)
	e.waitForRevisions("control-plane", "current", 2*time.Minute)
	if os.Getenv("SLIPWAY_LONG") == "" {
		followQuickly(e, controlPlane)
		return
	}

	stop := e.watchAvailability()
	e.editWorkers("  kubelet:\n    maxPods: 99\n    systemReserved:\n      memory: 111Mi\n  sysctls:\n    net.ipv4.tcp_keepalive_time: \"601\"\n")
	e.editCluster(150, "  kubeAPIServer:\n    eventTTL: 2h\n")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitForRevisions("workers", "current", 3*time.Minute)
	e.waitForRevisions("control-plane", "current", 8*time.Minute)
	longest := stop()
	e.t.Logf("COUNT while machines followed, the API did not answer for at most %s", longest)
	if longest > 10*time.Second {
		e.t.Errorf("the API did not answer for %s", longest)
	}
	e.checkSettings(workers, controlPlane)
	e.checkTurns(controlPlane)
	if r := e.runProgram(e.slipway, "rolling-update", "cluster", clusterName, "--yes"); r.code != 0 || !strings.Contains(r.err, "replaced 0 machines") {
		e.t.Errorf("rolling-update: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	refuseDocument(e)
	rollBackDocument(e)
	if now := e.listMachines("worker"); fmt.Sprint(now) != fmt.Sprint(workers) {
		e.t.Errorf("workers %v, before %v", now, workers)
	}
	e.waitHealthy(3 * time.Minute)
}

// followQuickly is the short form: etcd on all control-plane machines, and a kernel setting on all workers, which
// restarts nothing.
func followQuickly(e *environment, controlPlane map[string]string) {
	e.editWorkers("  sysctls:\n    net.ipv4.tcp_keepalive_time: \"601\"\n")
	e.editCluster(150, "")
	e.runSlipway("apply", clusterName, "--yes")
	for _, m := range e.waitForRevisions("workers", "current", time.Minute) {
		if m.Group != "workers" {
			continue
		}
		if got := strings.TrimSpace(e.mustRunInMachine(m.ID, "cat /proc/sys/net/ipv4/tcp_keepalive_time")); got != "601" {
			e.t.Errorf("machine %s: tcp_keepalive_time is %s", m.ID, got)
		}
	}
	e.waitForRevisions("control-plane", "current", 2*time.Minute)
	e.checkTurns(controlPlane)
	if now := e.listMachines("control-plane"); fmt.Sprint(now) != fmt.Sprint(controlPlane) {
		e.t.Errorf("control plane %v, before %v", now, controlPlane)
	}
}

// refuseDocument gives the workers a setting with which no kubelet starts: reservations above the capacity.
func refuseDocument(e *environment) {
	e.editWorkers("  kubelet:\n    maxPods: 99\n    systemReserved:\n      memory: 900Gi\n")
	e.runSlipway("apply", clusterName, "--yes")
	tried := 0
	for _, m := range e.waitForRevisions("workers", "refused", 4*time.Minute) {
		if m.Group != "workers" {
			continue
		}
		if !strings.Contains(m.Revision.Cause, "kubelet: does not work") {
			e.t.Errorf("machine %s: %s", m.ID, m.Revision.Cause)
		}
		if !strings.HasPrefix(m.Revision.Cause, "refused by machine") {
			tried++
		}
		if conf := e.kubectl("get", "--raw=/api/v1/nodes/"+m.Node+"/proxy/configz"); !strings.Contains(conf, `"memory":"111Mi"`) {
			e.t.Errorf("the kubelet of %s has not its former settings:\n%s", m.ID, conf)
		}
	}
	if tried != 1 {
		e.t.Errorf("%d machines have tried the broken setting, want 1", tried)
	}
	e.runSlipway("get", "machines", clusterName)
	e.runSlipway("get", "machines", clusterName, "-o", "wide")
	if r := e.runProgram(e.slipway, "rolling-update", "cluster", clusterName, "--yes"); r.code != 1 || !strings.Contains(r.err, "could not apply the node document that new machines of group workers get") {
		e.t.Errorf("rolling-update with a document that machines have refused: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	serial := e.desiredSerial("workers")
	if r := e.runProgram(e.slipway, "rolling-update", "cluster", clusterName, "--group", "workers", "--retry-refused", "--yes"); r.code != 1 || !strings.Contains(r.err, "refused their node document try it again") || !strings.Contains(r.err, "could not apply the node document") {
		e.t.Errorf("a retry of a document that machines refuse again: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	if again := e.desiredSerial("workers"); again != serial+1 {
		e.t.Errorf("the serial of the revision is %d, want %d", again, serial+1)
	}
}

// rollBackDocument rolls the workers back, whose newest template has a broken setting, to the template of the settings
// that worked before, and then applies these again.
func rollBackDocument(e *environment) {
	e.runSlipway("rolling-update", "cluster", clusterName, "--group", "workers", "--rollback", "--yes")
	for _, m := range e.waitForRevisions("workers", "current", 2*time.Minute) {
		if m.Group != "workers" {
			continue
		}
		if conf := e.kubectl("get", "--raw=/api/v1/nodes/"+m.Node+"/proxy/configz"); !strings.Contains(conf, `"maxPods":99`) {
			e.t.Errorf("the kubelet of %s has not the settings that worked:\n%s", m.ID, conf)
		}
	}
	e.editWorkers("  kubelet:\n    maxPods: 99\n    systemReserved:\n      memory: 111Mi\n")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitForRevisions("workers", "current", 2*time.Minute)
}
