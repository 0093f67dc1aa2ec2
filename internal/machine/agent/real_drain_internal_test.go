// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// checkNodeDrain drains a node with the node's own certificate: the node authorizer and NodeRestriction let it cordon
// itself, evict its own pods and write events, and nothing of the kind for another node.
func checkNodeDrain(t *testing.T, a *Agent, admin kube.Client) {
	t.Helper()
	for _, name := range []string{"node-1", "node-2"} {
		body := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `"}}`
		if _, err := admin.Do(t.Context(), http.MethodPost, "/api/v1/nodes", "application/json", []byte(body)); err != nil {
			t.Fatal(err)
		}

		pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"on-` + name + `","namespace":"default"},"spec":{"nodeName":"` + name + `",
			"automountServiceAccountToken":false,"securityContext":{"runAsNonRoot":true,"runAsUser":65534,"seccompProfile":{"type":"RuntimeDefault"}},
			"containers":[{"name":"c","image":"x","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}`
		eventually(t, "pod created", func() error { // its service account comes first
			_, err := admin.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/default/pods", "application/json", []byte(pod))
			return err
		})
	}

	leaf, _ := join.NodeLeaves("node-1", netip.MustParseAddr("127.0.0.1"), time.Hour)
	node := kube.Client{Server: admin.Server, HTTP: clientOf(t, a, leaf)}
	own := nodeDrain{api: node, node: "node-1", now: time.Now}
	eventually(t, "the node cordons itself", func() error { return own.cordon(t.Context(), "test") })

	var n repairNode
	if err := admin.Get(t.Context(), "/api/v1/nodes/node-1", &n); err != nil || !n.Spec.Unschedulable {
		t.Errorf("not cordoned: %+v, %v", n, err)
	}

	if _, ok := n.Metadata.Labels[excludeLabel]; !ok {
		t.Errorf("labels %v", n.Metadata.Labels)
	}

	if _, err := own.hasLoadBalancers(t.Context()); err != nil {
		t.Error(err)
	}

	waiting, err := own.evictOnce(t.Context())
	if err != nil || waiting != "default/on-node-1 is terminating" && waiting != "" {
		t.Errorf("evict: %q, %v", waiting, err)
	}

	own.record(t.Context(), "Terminating", "test")
	var events struct {
		Items []struct{ Reason string } `json:"items"`
	}
	path := "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dnode-1"
	if err := admin.Get(t.Context(), path, &events); err != nil || len(events.Items) == 0 {
		t.Errorf("events %v, %v", events, err)
	}

	foreign := nodeDrain{api: node, node: "node-2", now: time.Now}
	if err := foreign.cordon(t.Context(), "test"); err == nil {
		t.Error("a node may cordon another one")
	}

	var other drainedPod
	other.Metadata.Namespace = "default"
	other.Metadata.Name = "on-node-2"
	if reason := foreign.evict(t.Context(), other); !strings.Contains(reason, "can only evict pods with spec.nodeName set to itself") &&
		!strings.Contains(reason, "forbidden") {
		t.Errorf("a node may evict a pod of another one: %q", reason)
	}
}
