// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestExternalCloudProvider runs a cluster whose nodes the real cloud controller manager keeps. Without its channel all nodes have
// the taint of new ones, and validate says what is missing. With it they get what EC2 knows of them, also a new machine of the
// control plane; a Service has a load balancer; and the node of a machine that has ended is deleted by the controller.
func TestExternalCloudProvider(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"the cluster starts without the controller", createClusterForController},
		{"the channel initializes the nodes", initializeNodes},
		{"a Service gets an address and answers", checkLoadBalancer},
		{"the node of a terminated worker is deleted", loseWorkerToController},
		{"a new machine of the control plane is initialized", replaceControlPlaneMachine},
		{"delete leaves nothing", deleteWithLoadBalancer},
	})
}

// createClusterForController creates the cluster, and waits until all nodes are Ready and have the taint.
func createClusterForController(e *environment) {
	e.prepareClusterWithRoles(map[string]map[string]string{cloudController: {"CLUSTER": clusterName}})
	e.editManifest("  cloudProvider:\n", "  cloudProvider:\n    nodeController: External\n")
	e.runSlipway("apply", clusterName, "--yes")
	e.exportKubeconfig()
	e.waitUntil("all nodes are Ready and not initialized", 5*time.Minute, func() error {
		ready, err := e.readyNodes()
		if tainted := len(e.nodesToInitialize()); err != nil || len(ready) != 5 || tainted != 5 {
			return fmt.Errorf("%d nodes are Ready, %d have the taint: %w", len(ready), tainted, err)
		}

		return nil
	})
	r := e.runProgram(e.slipway, "validate", "cluster", clusterName)
	if r.code == 0 || !strings.Contains(r.out+r.err, "the cloud controller manager has not initialized it") {
		e.t.Errorf("validate has exit status %d and does not name the cause:\n%s%s", r.code, r.out, r.err)
	}
	if zones := e.kubectl("get", "nodes", "-l", "topology.kubernetes.io/zone", "-o", "name"); zones != "" {
		e.t.Errorf("kubelets have set zones:\n%s", zones)
	}
}

// nodesToInitialize returns the names of nodes that have the taint of new ones.
func (e *environment) nodesToInitialize() []string {
	e.t.Helper()
	r := e.tryKubectl("get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.taints[*].key}{"\n"}{end}`)
	var all []string
	for line := range strings.Lines(r.out) {
		if name, taints, _ := strings.Cut(line, " "); strings.Contains(taints, "node.cloudprovider.kubernetes.io/uninitialized") {
			all = append(all, name)
		}
	}

	return all
}

// initializeNodes applies the channel, after which the cluster becomes healthy.
func initializeNodes(e *environment) {
	start := time.Now()
	e.applyChannel("cloud-provider.yaml", cloudController, nil, "aws-cloud-nodes.yaml")
	e.waitHealthy(5 * time.Minute)
	e.t.Logf("COUNT the cluster is healthy %s after the channel was applied", time.Since(start).Round(time.Second))
	e.checkInitialized()
}

// checkInitialized compares what nodes have with EC2, and checks that none waits for the controller.
func (e *environment) checkInitialized() {
	e.t.Helper()
	if left := e.nodesToInitialize(); len(left) > 0 {
		e.t.Errorf("%v have the taint still", left)
	}
	checkNodeMetadata(e)
	addresses := e.kubectl("get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.addresses[?(@.type=="InternalDNS")].address}{"\n"}{end}`)
	for line := range strings.Lines(addresses) {
		if name, dns, _ := strings.Cut(strings.TrimSpace(line), " "); name != dns {
			e.t.Errorf("node %s has the name %q in EC2", name, dns)
		}
	}
}

// loseWorkerToController terminates a worker, whose node the controller deletes: it says so in an event. The Service goes on.
func loseWorkerToController(e *environment) {
	victim := slices.Sorted(maps.Keys(e.listMachines("worker")))[0]
	node := strings.TrimSpace(e.kubectl("get", "nodes", "-o", `jsonpath={range .items[*]}{.spec.providerID} {.metadata.name}{"\n"}{end}`))
	name := ""
	for line := range strings.Lines(node) {
		if id, n, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasSuffix(id, "/"+victim) {
			name = n
		}
	}
	start := time.Now()
	e.terminate(victim)
	e.waitUntil("the node of "+victim+" is deleted", 4*time.Minute, func() error {
		if r := e.tryKubectl("get", "node", name); r.code == 0 || !strings.Contains(r.err, "NotFound") {
			return fmt.Errorf("it is there: %s%s", r.out, r.err)
		}

		return nil
	})
	e.t.Logf("COUNT the node is deleted %s after its machine was terminated", time.Since(start).Round(time.Second))
	if events := e.kubectl("get", "events", "-A", "--field-selector", "reason=DeletingNode,involvedObject.name="+name); !strings.Contains(events, name) {
		e.t.Errorf("the controller has not deleted node %s", name)
	}
	e.waitHealthy(6 * time.Minute)
	e.checkInitialized()
}

// replaceControlPlaneMachine terminates a machine of the control plane. The controller runs on the others.
func replaceControlPlaneMachine(e *environment) {
	e.terminateAndWait(slices.Sorted(maps.Keys(e.listMachines("control-plane")))[0])
	e.waitHealthy(8 * time.Minute)
	e.checkInitialized()
}
