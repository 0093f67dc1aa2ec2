// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/sleep"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/netpolicy"
)

// fakePolicyRules stand for those of the kernel.
type fakePolicyRules struct {
	mu      sync.Mutex
	ruleset string
	loads   int
}

// Load implements [PolicyRules].
func (f *fakePolicyRules) Load(_ context.Context, ruleset string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ruleset = ruleset
	f.loads++

	return nil
}

// Exist implements [PolicyRules].
func (f *fakePolicyRules) Exist(context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.ruleset != "" && f.ruleset != netpolicy.Remove, nil
}

func (f *fakePolicyRules) read() (ruleset string, loads int) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.ruleset, f.loads
}

// awaitRules waits until the rules satisfy a condition.
func (f *fakePolicyRules) awaitRules(t *testing.T, what string, condition func(ruleset string) bool) {
	t.Helper()
	for range 200 {
		if ruleset, _ := f.read(); condition(ruleset) {
			return
		}

		time.Sleep(50 * time.Millisecond)
	}

	ruleset, _ := f.read()
	t.Fatalf("%s: the rules are\n%s", what, ruleset)
}

// TestNetworkPolicies compiles the policies of a real API server and loads the rules of a node.
func TestNetworkPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	api := newChannelBench(t).api
	rules := &fakePolicyRules{}
	newMachine := func(id, name string) *Agent {
		a := &Agent{
			Now:         time.Now,
			Wait:        func(ctx context.Context, d time.Duration) error { return sleep.For(ctx, d/10) },
			Log:         slog.New(slog.DiscardHandler),
			PolicyRules: rules,
			instance:    Instance{ID: id, Name: name},
		}
		a.apiOpen.Store(true)

		return a
	}

	ctx, stop := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	t.Cleanup(tasks.Wait)
	t.Cleanup(stop)
	first := newPolicyCompiler(newMachine("i-first", "node-a"), api)
	tasks.Go(func() { _ = first.run(ctx) })
	loader := &policyLoader{agent: newMachine("i-first", "node-a"), api: api, rules: rules}
	tasks.Go(func() { _ = loader.run(ctx) })

	create := func(path, text string) {
		t.Helper()
		if _, err := api.Do(t.Context(), http.MethodPost, path, "application/yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	create("/api/v1/namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+policyNamespace+"}\n")
	create("/api/v1/namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	createPolicyPod(t, api, "web", "node-a", "10.0.1.2")
	createPolicyPod(t, api, "other", "node-b", "10.0.2.2")
	create("/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web}\n"+
			"spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}\n")
	rules.awaitRules(t, "a policy", func(text string) bool {
		return strings.Contains(text, "elements = { 10.0.1.2, 10.0.2.2 }") && strings.Contains(text, "10.0.1.2 : jump ingress_")
	})

	createPolicyPod(t, api, "third", "node-b", "10.0.2.3")
	rules.awaitRules(t, "a new pod", func(text string) bool { return strings.Contains(text, "10.0.2.2, 10.0.2.3") })
	if err := api.Delete(t.Context(), "/api/v1/namespaces/shop/pods/third?gracePeriodSeconds=0"); err != nil {
		t.Fatal(err)
	}

	rules.awaitRules(t, "a deleted pod", func(text string) bool { return !strings.Contains(text, "10.0.2.3") })
	checkPolicyElection(t, newMachine("i-second", "node-b"), api)

	if err := api.Delete(t.Context(), "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/web"); err != nil {
		t.Fatal(err)
	}

	rules.awaitRules(t, "no policy", func(text string) bool { return text == netpolicy.Remove })
	if err := api.Get(t.Context(), policyMapsPath+"/node-a", &policyMap{}); err == nil {
		t.Error("the ConfigMap of a node without rules was not deleted")
	}
}

// createPolicyPod creates a pod with an address.
func createPolicyPod(t *testing.T, api kube.Client, name, node, address string) {
	t.Helper()
	pods := "/api/v1/namespaces/shop/pods"
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\n"+
		"spec: {nodeName: %s, containers: [{name: a, image: a}]}\n", name, name, node)
	if _, err := api.Do(t.Context(), http.MethodPost, pods, "application/yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}

	status := map[string]any{"status": map[string]any{
		"phase":  "Running",
		"podIP":  address,
		"podIPs": []map[string]string{{"ip": address}},
	}}
	if err := api.MergePatch(t.Context(), pods+"/"+name+"/status", status); err != nil {
		t.Fatal(err)
	}
}

// checkPolicyElection: a second machine writes nothing while the first one has the lease.
func checkPolicyElection(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	second := newPolicyCompiler(a, api)
	if err := second.serve(t.Context()); err != nil || second.written != nil {
		t.Errorf("two machines compile policies: %v", err)
	}
}

// TestPolicyLoader: rules that are wrong change nothing, and rules that were deleted by somebody are loaded again.
func TestPolicyLoader(t *testing.T) {
	rules := &fakePolicyRules{}
	l := &policyLoader{agent: &Agent{}, rules: rules}
	load := func(node *netpolicy.NodeRules) {
		t.Helper()
		var maps []policyMap
		if node != nil {
			text, err := json.Marshal(node)
			if err != nil {
				t.Fatal(err)
			}

			maps = []policyMap{{Data: map[string]string{policyRulesKey: string(text)}}}
		}

		if err := l.load(t.Context(), maps); err != nil {
			t.Fatal(err)
		}
	}

	load(nil)
	if _, loads := rules.read(); loads != 0 {
		t.Errorf("without rules and a table, nft ran %d times", loads)
	}

	isolated := &netpolicy.NodeRules{Pods: []netpolicy.PodRules{{Address: "10.0.1.2", Ingress: []netpolicy.Rule{}}}}
	load(isolated)
	load(isolated)
	before, loads := rules.read()
	if loads != 1 || !strings.Contains(before, "10.0.1.2") {
		t.Errorf("%d loads of\n%s", loads, before)
	}

	wrong := []policyMap{{Data: map[string]string{policyRulesKey: `{"pods": [{"address": "x"}]}`}}}
	if err := l.load(t.Context(), wrong); err == nil {
		t.Error("a wrong address is no error")
	}

	if after, _ := rules.read(); after != before {
		t.Error("wrong rules were loaded")
	}

	rules.ruleset = "" // somebody has deleted the table
	load(isolated)
	if _, loads := rules.read(); loads != 2 {
		t.Error("deleted rules were not loaded again")
	}

	load(nil)
	if after, _ := rules.read(); after != netpolicy.Remove {
		t.Errorf("without policies: %s", after)
	}
}
