// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// The cloud controller manager of AWS, if the cluster has one, deletes the nodes of machines that have ended. It does that when
// kube-controller-manager has noticed that the kubelet is silent. Agents leave these nodes to it for so long.
const (
	defaultMonitorGrace = 50 * time.Second // Kubernetes' default of nodeMonitorGracePeriod
	controllerGrace     = 2 * time.Minute
)

// rulesOfNodes returns the times by which this agent judges nodes now.
func rulesOfNodes(a *Agent) nodeRules {
	out := nodeRules{listed: listedSince(a)}
	if a.doc.HasExternalNodeController() {
		out.external = a.Now().Add(-timeOfController(a.doc))
	}

	return out
}

// timeOfController returns how long the cloud controller manager has to delete the node of a machine that has ended.
func timeOfController(d node.Document) time.Duration {
	grace, err := time.ParseDuration(d.KubeControllerManager.NodeMonitorGracePeriod)
	if err != nil { // unset
		grace = defaultMonitorGrace
	}

	return grace + controllerGrace
}

// isLeftToController reports whether the cloud controller manager is to delete a node: its own machine has ended after since.
// It does not see that a live machine has the name of the node, nor that a provider id is another machine's, nor that a machine
// sleeps in a warm pool: these nodes are not left to it.
func isLeftToController(n Node, machines []Machine, since time.Time) bool {
	left := false

	for _, m := range machines {
		if !m.isTerminated() && strings.EqualFold(m.Name, n.Metadata.Name) {
			return false
		}

		if m.ID == n.machineID() {
			left = m.isTerminated() && m.EndedSince.After(since)
		}
	}

	return left
}
