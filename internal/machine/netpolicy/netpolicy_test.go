// SPDX-License-Identifier: Apache-2.0

package netpolicy_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/machine/netpolicy"
)

var update = flag.Bool("update", false, "write the files in testdata")

// parseCluster reads namespaces, pods and policies as kubectl prints them.
func parseCluster(t *testing.T, text string) netpolicy.Cluster {
	t.Helper()
	var out netpolicy.Cluster
	for part := range strings.SplitSeq(text, "\n---\n") {
		var head struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal([]byte(part), &head); err != nil {
			t.Fatal(err)
		}

		var err error

		switch head.Kind {
		case "Namespace":
			var n netpolicy.Namespace
			err = yaml.Unmarshal([]byte(part), &n)
			out.Namespaces = append(out.Namespaces, n)
		case "Pod":
			var p netpolicy.Pod
			err = yaml.Unmarshal([]byte(part), &p)
			out.Pods = append(out.Pods, p)
		case "NetworkPolicy":
			var p netpolicy.Policy
			err = yaml.Unmarshal([]byte(part), &p)
			out.Policies = append(out.Policies, p)
		default:
			t.Fatalf("kind %q", head.Kind)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	return out
}

const shop = `kind: Namespace
metadata: {name: shop}
---
kind: Namespace
metadata: {name: tools, labels: {team: ops}}
---
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: a, containers: [{ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIP: 10.0.1.2}
---
kind: Pod
metadata: {name: old-web, namespace: shop, labels: {app: web}}
spec: {nodeName: b, containers: [{ports: [{name: http, containerPort: 80}]}]}
status: {phase: Running, podIP: 10.0.2.2}
---
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: a}
status: {phase: Running, podIP: 10.0.1.10}
---
kind: Pod
metadata: {name: done, namespace: shop, labels: {app: web}}
spec: {nodeName: a}
status: {phase: Succeeded, podIP: 10.0.1.2}
---
kind: Pod
metadata: {name: proxy, namespace: shop, labels: {app: web}}
spec: {nodeName: a, hostNetwork: true}
status: {phase: Running, podIP: 192.0.2.1}
---
kind: Pod
metadata: {name: starting, namespace: shop, labels: {app: web}}
spec: {}
---
kind: Pod
metadata: {name: probe, namespace: tools, labels: {app: probe}}
spec: {nodeName: b}
status: {phase: Running, podIP: 10.0.2.3}
---
kind: NetworkPolicy
metadata: {name: deny, namespace: shop}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {team: ops}}, podSelector: {matchLabels: {app: probe}}}, {podSelector: {}}]
    ports: [{port: http}, {port: 9000, endPort: 9010, protocol: UDP}]
  - from: [{ipBlock: {cidr: 203.0.113.7/24, except: [203.0.113.64/26, 203.0.113.0/25]}}, {ipBlock: {cidr: "2001:db8::/32"}}]
  egress:
  - to: [{podSelector: {matchLabels: {app: db}}}]
  - to: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: http}]
`

// TestCompile: the rules of each node, from one cluster with every kind of peer and port.
func TestCompile(t *testing.T) {
	cluster := parseCluster(t, shop)
	got, err := netpolicy.Compile(cluster)
	if err != nil {
		t.Fatal(err)
	}

	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}

	compareGolden(t, "rules.yaml", string(text))

	slices.Reverse(cluster.Pods)
	slices.Reverse(cluster.Policies)
	slices.Reverse(cluster.Namespaces)
	again, err := netpolicy.Compile(cluster)
	if diff := cmp.Diff(got, again); diff != "" || err != nil {
		t.Errorf("another order gives other rules: %v\n%s", err, diff)
	}

	encoded, err := json.Marshal(got["a"])
	if err != nil {
		t.Fatal(err)
	}

	parsed, err := netpolicy.ParseNodeRules(encoded)
	if err != nil {
		t.Fatal(err)
	}

	compareGolden(t, "ruleset.nft", parsed.Ruleset())
}

// compareGolden compares a text with a file in testdata, or writes it with -update.
func compareGolden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s: %s", path, diff)
	}
}

// TestParseNodeRules: nothing but names and addresses reaches nft.
func TestParseNodeRules(t *testing.T) {
	for name, text := range map[string]string{
		"a set with another name":      `{"sets": {"x } ; flush ruleset": []}}`,
		"an address with a command":    `{"sets": {"0123456789abcdef": ["10.0.0.1 } ; flush ruleset"]}}`,
		"a pod without address":        `{"pods": [{"address": ""}]}`,
		"an IPv6 address":              `{"pods": [{"address": "::1"}]}`,
		"an unknown set":               `{"pods": [{"address": "10.0.0.1", "ingress": [{"set": "0123456789abcdef"}]}]}`,
		"a range with a command":       `{"pods": [{"address": "10.0.0.1", "egress": [{"block": "10.0.0.0/8 accept"}]}]}`,
		"a range that is not masked":   `{"pods": [{"address": "10.0.0.1", "egress": [{"block": "10.0.0.0/8", "except": ["10.x/9"]}]}]}`,
		"a protocol with a command":    `{"pods": [{"address": "10.0.0.1", "egress": [{"ports": [{"protocol": "tcp accept #"}]}]}]}`,
		"a port that is too large":     `{"pods": [{"address": "10.0.0.1", "egress": [{"ports": [{"protocol": "tcp", "first": 1, "last": 65536}]}]}]}`,
		"ports in the wrong order":     `{"pods": [{"address": "10.0.0.1", "egress": [{"ports": [{"protocol": "udp", "first": 9, "last": 8}]}]}]}`,
		"text that is no JSON":         `table inet x {}`,
		"an address in another format": `{"pods": [{"address": "010.0.0.1"}]}`,
	} {
		if got, err := netpolicy.ParseNodeRules([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzParseNodeRules(f *testing.F) {
	f.Add([]byte(`{"pods": [{"address": "10.0.0.1", "ingress": [{"set": "0123456789abcdef", "ports": [{"protocol": "tcp", "first": 1, "last": 2}]}]}],
		"sets": {"0123456789abcdef": ["10.0.0.2"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := netpolicy.ParseNodeRules(text)
		if err != nil {
			return
		}

		if strings.ContainsAny(rules.Ruleset(), "\"'`\\$#") {
			t.Errorf("a character that rules never have: %s", rules.Ruleset())
		}
	})
}
