// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// patcher sends merge patches to the API as one user.
type patcher struct {
	client  *http.Client
	server  string
	headers map[string]string
}

// patch returns the status and the text of the answer; status 0 is no answer.
func (p patcher) patch(t *testing.T, path, body string) (int, string) {
	t.Helper()
	return p.send(t, http.MethodPatch, path, body)
}

func (p patcher) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.server+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	for k, v := range p.headers {
		req.Header.Set(k, v)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err.Error() // a busy machine; the caller tries again
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// checkNodeAttacks tries to change Nodes with a token of flannel, which is on every worker, and with the certificate of
// a kubelet. Seen to succeed before the admission policies: flannel's token relabelled a control-plane node and changed
// its addresses, and a kubelet set the group label of its node.
func checkNodeAttacks(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	for _, name := range []string{"worker-a", "control-plane-a"} {
		object := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{
			"name": name, "labels": map[string]string{"slipway.dev/group": "workers"},
		}}
		body, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Do(t.Context(), http.MethodPost, "/api/v1/nodes", "application/json", body); err != nil {
			t.Fatal(err)
		}
	}

	plain := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: a.kubernetesTLSConfig(), DisableKeepAlives: true}}
	flannel := patcher{plain, api.Server, map[string]string{"Authorization": "Bearer " + tokenOnNode(t, api, "worker-a")}}
	kubelet := patcher{clientOf(t, a, joinedLeaf("worker-a", "workers")), api.Server, nil}
	const own, other = "/api/v1/nodes/worker-a", "/api/v1/nodes/control-plane-a"
	const taken = `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"FlannelIsUp","message":"up"}]}}`
	for _, c := range []struct {
		name       string
		who        patcher
		path, body string
		allowed    bool
	}{
		{"flannel annotates its node", flannel, own + "/status", `{"metadata":{"annotations":{"flannel.alpha.coreos.com/public-ip":"10.0.0.9"}}}`, true},
		{"flannel reports its network", flannel, own + "/status", taken, true},
		{"flannel annotates another node", flannel, other + "/status", `{"metadata":{"annotations":{"flannel.alpha.coreos.com/public-ip":"10.0.0.9"}}}`, false},
		{"flannel labels another node", flannel, other + "/status", `{"metadata":{"labels":{"stolen":"yes"}}}`, false},
		{"flannel redirects another node", flannel, other + "/status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`, false},
		{"flannel labels its node", flannel, own + "/status", `{"metadata":{"labels":{"slipway.dev/group":"gpu"}}}`, false},
		{"flannel sets another annotation", flannel, own + "/status", `{"metadata":{"annotations":{"stolen":"yes"}}}`, false},
		{"flannel redirects its node", flannel, own + "/status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`, false},
		{"flannel reports another condition", flannel, own + "/status", `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"x","message":"x"}]}}`, false},
		{"a kubelet sets its group", kubelet, own, `{"metadata":{"labels":{"slipway.dev/group":"gpu"}}}`, false},
		{"a kubelet removes its group", kubelet, own, `{"metadata":{"labels":{"slipway.dev/group":null}}}`, false},
		{"a kubelet sets a free label", kubelet, own, `{"metadata":{"labels":{"example.com/x":"y"}}}`, true},
		{"a kubelet changes the rules of network policies", kubelet, policyMapsPath + "/worker-a", `{"data":{"rules.json":"{}"}}`, false},
	} {
		check := func() error {
			status, text := c.who.patch(t, c.path, c.body)
			if (status == http.StatusOK) != c.allowed || !c.allowed && status != http.StatusForbidden && status != http.StatusUnprocessableEntity {
				return fmt.Errorf("answer %d, want allowed %t: %s", status, c.allowed, text)
			}
			return nil
		}
		if c.allowed {
			eventually(t, c.name, check)
			continue
		}
		err := check()
		for deadline := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
			err = check() // a new admission policy takes effect after a moment
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// tokenOnNode returns a token of flannel as the kubelet of a node gets it: bound to a pod on that node.
func tokenOnNode(t *testing.T, api kube.Client, nodeName string) string {
	t.Helper()
	create := func(path, body string, into any) {
		t.Helper()
		answer, err := api.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/kube-system"+path, "application/json", []byte(body))
		if err == nil {
			err = json.Unmarshal(answer, into)
		}
		if err != nil {
			t.Fatalf("create %s: %v", path, err)
		}
	}
	var pod struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	create("/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"flannel-attack"},"spec":{"serviceAccountName":"flannel","nodeName":"`+nodeName+
		`","containers":[{"name":"x","image":"x"}]}}`, &pod)
	var token struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	create("/serviceaccounts/flannel/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600,"boundObjectRef":`+
		`{"apiVersion":"v1","kind":"Pod","name":"flannel-attack","uid":"`+pod.Metadata.UID+`"}}}`, &token)
	return token.Status.Token
}

// joinedLeaf returns the client certificate of a worker as the join endpoint issues it.
func joinedLeaf(name, group string) pki.Leaf {
	leaf, _ := join.NodeLeaves(name, netip.MustParseAddr("10.0.0.9"), time.Hour)
	leaf.Orgs = append(leaf.Orgs, join.GroupOrganization(group))
	return leaf
}

// checkGhostAttacks registers nodes with certificates of machines that are gone. Seen to succeed before the policy.
func checkGhostAttacks(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	machines := []Machine{
		{ID: "i-live", Name: "live", State: "running", Role: node.RoleTagWorker},
		{ID: "i-new", Name: "reused", State: "running", Role: node.RoleTagWorker},
		{ID: "i-old", Name: "reused", State: "terminated", Role: node.RoleTagWorker},
		{ID: "i-gone", Name: "gone", State: "shutting-down", Role: node.RoleTagWorker},
	}
	eventually(t, "record live machines", func() error {
		return recordLiveMachines(t.Context(), api, false, diffLiveMachines(nil, liveWorkers(machines)))
	})
	register := func(name, instance string) (int, string) {
		leaf := joinedLeaf(name, "workers")
		leaf.Orgs = append(leaf.Orgs, join.InstanceOrganization(instance))
		p := patcher{clientOf(t, a, leaf), api.Server, nil}
		return p.send(t, http.MethodPost, "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+name+`","labels":{"slipway.dev/group":"workers"}}}`)
	}
	for _, c := range []struct {
		name, node, instance string
		status               int
	}{
		{"a ghost registers a node", "gone", "i-gone", http.StatusUnprocessableEntity},
		{"a ghost takes the name of a later machine", "reused", "i-old", http.StatusUnprocessableEntity},
		{"an unknown machine registers a node", "other", "i-live", http.StatusUnprocessableEntity},
		{"a live machine registers its node", "reused", "i-new", http.StatusCreated},
		{"another live machine registers its node", "live", "i-live", http.StatusCreated},
	} {
		eventually(t, c.name, func() error {
			if status, text := register(c.node, c.instance); status != c.status {
				if status == http.StatusCreated { // the policy is not yet in force
					_ = api.Delete(t.Context(), "/api/v1/nodes/"+c.node)
				}
				return fmt.Errorf("answer %d, want %d: %s", status, c.status, text)
			}
			return nil
		})
	}
	old := joinedLeaf("reused", "workers")
	old.Orgs = append(old.Orgs, join.InstanceOrganization("i-old"))
	status, text := patcher{clientOf(t, a, old), api.Server, nil}.patch(t, "/api/v1/nodes/reused/status", `{"metadata":{"annotations":{"x":"y"}}}`)
	if status != http.StatusUnprocessableEntity {
		t.Errorf("a ghost changes the node of a later machine: answer %d: %s", status, text)
	}
	if err := announceMachine(t.Context(), api, join.Machine{ID: "i-just", Name: "just"}); err != nil {
		t.Error(err)
	}
	eventually(t, "a machine that was just announced", func() error {
		if status, text := register("just", "i-just"); status != http.StatusCreated && status != http.StatusConflict {
			return fmt.Errorf("answer %d: %s", status, text)
		}
		return nil
	})
}
