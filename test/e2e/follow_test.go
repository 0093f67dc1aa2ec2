// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// setEtcdHeartbeat changes etcd's timing in the cluster's manifest.
func (e *environment) setEtcdHeartbeat(milliseconds int) {
	e.t.Helper()
	var lines []string
	for line := range strings.SplitSeq(e.runSlipway("get", "cluster", clusterName, "-o", "yaml"), "\n") {
		if strings.Contains(line, "heartbeatIntervalMS:") || strings.Contains(line, "electionTimeoutMS:") {
			continue
		}
		lines = append(lines, line)
		if line == "  etcd:" {
			lines = append(lines, fmt.Sprintf("    heartbeatIntervalMS: %d", milliseconds), fmt.Sprintf("    electionTimeoutMS: %d", 10*milliseconds))
		}
	}
	file := filepath.Join(e.t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.runSlipway("replace", "-f", file, "--yes")
}

// followDocuments changes settings that running machines apply themselves. Within a minute they are in effect, no machine
// is replaced, the API answers all the time, and rolling-update has nothing to do. A value with which the kubelet does
// not start is refused by one machine, which then works as before, and tried by no other one.
func followDocuments(e *environment) {
	workers := e.listMachines("worker")
	controlPlane := e.listMachines("control-plane")
	e.waitForRevisions("workers", "current", 2*time.Minute)
	e.waitForRevisions("control-plane", "current", 2*time.Minute)

	stop := e.watchAvailability()
	e.editWorkers("  kubelet:\n    systemReserved:\n      memory: 111Mi\n")
	e.setEtcdHeartbeat(150)
	e.runSlipway("apply", clusterName, "--yes")
	e.waitForRevisions("workers", "current", time.Minute)
	e.waitForRevisions("control-plane", "current", 3*time.Minute)
	longest := stop()
	e.t.Logf("COUNT while machines followed, the API did not answer for at most %s", longest)
	if longest > 10*time.Second {
		e.t.Errorf("the API did not answer for %s", longest)
	}
	for _, m := range e.revisions() {
		if m.Group != "workers" {
			continue
		}
		if conf := e.kubectl("get", "--raw=/api/v1/nodes/"+m.Node+"/proxy/configz"); !strings.Contains(conf, `"memory":"111Mi"`) {
			e.t.Errorf("the kubelet of %s has not the new setting:\n%s", m.ID, conf)
		}
	}
	if now := e.listMachines("worker"); fmt.Sprint(now) != fmt.Sprint(workers) {
		e.t.Errorf("workers %v, before %v", now, workers)
	}
	if now := e.listMachines("control-plane"); fmt.Sprint(now) != fmt.Sprint(controlPlane) {
		e.t.Errorf("control plane %v, before %v", now, controlPlane)
	}
	if r := e.runProgram(e.slipway, "rolling-update", "cluster", clusterName, "--yes"); r.code != 0 || !strings.Contains(r.err, "newest launch template") {
		e.t.Errorf("rolling-update: exit status %d\n%s%s", r.code, r.out, r.err)
	}

	// The kubelet does not start with reservations above the capacity.
	e.editWorkers("  kubelet:\n    systemReserved:\n      memory: 900Gi\n")
	e.runSlipway("apply", clusterName, "--yes")
	for _, m := range e.waitForRevisions("workers", "refused", 4*time.Minute) {
		if m.Group == "workers" && !strings.Contains(m.Revision.Cause, "kubelet: does not work") {
			e.t.Errorf("machine %s: %s", m.ID, m.Revision.Cause)
		}
	}
	e.editWorkers("  kubelet:\n    systemReserved:\n      memory: 111Mi\n")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitForRevisions("workers", "current", 2*time.Minute)
	e.waitHealthy(3 * time.Minute)
}
