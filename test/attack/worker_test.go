// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/addon"
)

// accountRules is a role of an add-on, or its binding.
type accountRules struct {
	Kind     string
	Metadata struct{ Name string }
	Rules    []struct{ Resources, ResourceNames, NonResourceURLs, Verbs []string }
	RoleRef  struct{ Name string }
	Subjects []struct{ Kind, Name string }
}

// TestAddonAccountsMayLittle: a token of an add-on is on every machine, so each rule of an add-on is reviewed here: what
// it may read is no secret, and what it may change is limited to its own node by an admission policy. Flannel's right to
// patch the status of every node, without such a policy, was seen to take over the control plane.
func TestAddonAccountsMayLittle(t *testing.T) {
	objects, err := addon.Render(addon.Values{
		PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/16", DNSIP: "10.96.0.10", DNSDomain: "cluster.local",
		Images:     map[string]string{"kube-proxy": "p", "coredns": "c", "flannel": "f", "flannel-cni-plugin": "x"},
		AdminGroup: "slipway:administrators",
	})
	if err != nil {
		t.Fatal(err)
	}

	var have []string
	var policies strings.Builder

	for _, o := range objects {
		var r accountRules
		if err := json.Unmarshal(o.Body, &r); err != nil {
			t.Fatalf("%s: %v", o.Path, err)
		}

		if r.Kind == "ValidatingAdmissionPolicy" {
			policies.Write(o.Body)
		}

		for _, s := range r.Subjects {
			if s.Kind == "ServiceAccount" {
				have = append(have, s.Name+" is "+r.RoleRef.Name)
			}
		}

		for _, rule := range r.Rules {
			have = append(have, fmt.Sprintf("%s: %s %s %s", r.Metadata.Name,
				strings.Join(rule.Verbs, ","), strings.Join(rule.Resources, ","), strings.Join(rule.ResourceNames, ",")))
		}
	}

	want := []string{
		"slipway:workers-update: get,patch configmaps slipway-workers-update", // the turn of machines, no secret
		"slipway:network-policy: get,list,watch configmaps ",                  // of a namespace that has only addresses and ports
		"slipway:flannel: get pods ",                                          // its own; it holds no secret
		"slipway:flannel: get,list,watch nodes ",
		"slipway:flannel: patch nodes/status ", // its own node's annotations: the policy
		"slipway:coredns: list,watch endpoints,services,namespaces ",
		"slipway:coredns: list,watch endpointslices ",
		"flannel is slipway:flannel", "coredns is slipway:coredns", "kube-proxy is system:node-proxier",
	}
	for _, rule := range have {
		if !slices.Contains(want, rule) {
			t.Errorf("a right that nobody has reviewed: %s", rule)
		}
	}

	if len(have) < len(want) {
		t.Errorf("rules %q", have)
	}

	if !strings.Contains(policies.String(), "system:serviceaccount:kube-system:flannel") {
		t.Error("no admission policy limits flannel")
	}
}

// TestTokensStayOnTheirMachine: with a hop limit above 1, pods of the control plane reach the role of their machine. The
// manifest is refused. Seen to succeed while it was not.
func TestTokensStayOnTheirMachine(t *testing.T) {
	l := newLab(t)
	text := strings.NewReplacer("NAME", "far", "TYPE", "Public", "RANGE", "198.51.100.0/24").Replace(publicAPI)
	far := strings.Replace(text, "minSize: 1}", "minSize: 1, instanceMetadata: {httpPutResponseHopLimit: 2}}", 1)

	_, errs, code := l.slipway(caller{}, "create", "-f", l.temporaryFile("far.yaml", far), "--yes")
	if code == 0 || !strings.Contains(errs, "would let pods use the role of the control plane") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
