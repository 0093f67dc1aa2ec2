// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"time"
)

// clusterLoad uses a cluster while it is changed: one client writes to the API, and another one sends requests to the
// Service of a Deployment, whose budget lets one of four pods be missing.
type clusterLoad struct {
	e      *environment
	name   string // of the change, in the figures
	writes apiWriter
	// countPods ends the counting of available pods, and returns the least number.
	countPods func() int
	clients   []*loadClient // the last one sends requests
}

// putUnderLoad starts the load. The requests come from a machine.
func (e *environment) putUnderLoad(name, machine string) *clusterLoad {
	e.t.Helper()
	e.deployLoad(1)

	return &clusterLoad{
		e:         e,
		name:      name,
		writes:    e.startWriter(),
		countPods: e.watchDeployment("load"),
		clients:   []*loadClient{e.startLoad(machine)},
	}
}

// moveClient lets another machine send the requests, because the present one will be replaced.
func (l *clusterLoad) moveClient(machine string) {
	l.e.t.Helper()
	next := l.e.startLoad(machine)
	l.clients[len(l.clients)-1].stop()
	l.clients = append(l.clients, next)
}

// stop ends the load. No request may have failed, no acknowledged write may be lost, and the API may not have been away
// for longer than maxGap.
func (l *clusterLoad) stop(maxGap time.Duration) {
	l.e.t.Helper()
	l.clients[len(l.clients)-1].stop()
	available := l.countPods()
	requests := 0
	var failures []string
	for _, c := range l.clients {
		if c.requests < 100 {
			l.e.t.Errorf("the client in %s sent %d requests only", c.machine, c.requests)
		}
		requests += c.requests
		failures = append(failures, c.failures...)
	}
	l.e.t.Logf("COUNT %s: %d requests, %d failed, at least %d of 4 pods available", l.name, requests, len(failures), available)
	if len(failures) > 0 {
		l.e.t.Errorf("failed requests: %q", failures)
	}
	if available < 3 {
		l.e.t.Errorf("%d of 4 pods were available, although the budget lets one be missing", available)
	}
	l.e.checkWrites(l.name, l.writes.stop(), maxGap)
}

// checkWrites checks that no acknowledged write is lost, and that none had to wait for longer than maxGap.
func (e *environment) checkWrites(name string, w writeResult, maxGap time.Duration) {
	e.t.Helper()
	e.t.Logf("COUNT %s: %d acknowledged writes, %d failed ones, the longest time without one %s",
		name, len(w.acknowledged), len(w.failures), w.gap.Round(10*time.Millisecond))
	for _, f := range w.failures {
		e.t.Log(f)
	}
	stored := map[string]bool{}
	for name := range strings.FieldsSeq(e.kubectl("get", "configmaps", "-l", "written=yes", "-o", "jsonpath={.items[*].metadata.name}")) {
		stored[name] = true
	}
	for _, name := range w.acknowledged {
		if !stored[name] {
			e.t.Errorf("the acknowledged write %s is lost", name)
		}
	}
	if len(w.acknowledged) < 100 || w.gap > maxGap {
		e.t.Errorf("%d acknowledged writes, the longest time without one %s", len(w.acknowledged), w.gap)
	}
}

// findOther returns a machine of a role that is not one of before; empty if there is none.
func (e *environment) findOther(role string, before map[string]string) string {
	e.t.Helper()
	for id := range e.listMachines(role) {
		if _, old := before[id]; !old {
			return id
		}
	}

	return ""
}

// waitForOther waits for a machine of a role that is not one of before and whose node is Ready.
func (e *environment) waitForOther(role string, before map[string]string) (machine string) {
	e.t.Helper()
	e.waitUntil("another machine of the role "+role+" is Ready", 5*time.Minute, func() error {
		machine = e.findOther(role, before)
		nodes := e.tryKubectl("get", "nodes", "-o",
			`jsonpath={range .items[*]}{.spec.providerID} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if machine == "" || !strings.Contains(nodes.out, "/"+machine+" True\n") {
			return fmt.Errorf("machine %q, nodes:\n%s%s", machine, nodes.out, nodes.err)
		}
		return nil
	})

	return machine
}
