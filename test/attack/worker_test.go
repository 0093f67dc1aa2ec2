// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/addon"
)

// accountRules is a role of an add-on, or its binding.
type accountRules struct {
	Kind     string
	Metadata struct{ Namespace, Name string }
	Rules    []accountRule
	RoleRef  struct{ Kind, Name string }
	Subjects []struct{ Kind, Namespace, Name string }
}

// accountRule is one rule of a role.
type accountRule struct{ APIGroups, Resources, ResourceNames, NonResourceURLs, Verbs []string }

// String returns all of a rule, so that none of its fields escapes a review.
func (r accountRule) String() string {
	join := func(list []string) string { return strings.Join(list, ",") }
	out := join(r.Verbs) + " " + join(r.Resources) + " of " + strconv.Quote(join(r.APIGroups))
	if len(r.ResourceNames) > 0 {
		out += " named " + join(r.ResourceNames)
	}

	if len(r.NonResourceURLs) > 0 {
		out += " at " + join(r.NonResourceURLs)
	}

	return out
}

// lines returns each rule of a role, and each subject of a binding.
func (a accountRules) lines() []string {
	name := a.Kind + " " + a.Metadata.Namespace + "/" + a.Metadata.Name + ": "
	var out []string
	for _, rule := range a.Rules {
		out = append(out, name+rule.String())
	}

	for _, s := range a.Subjects {
		out = append(out, fmt.Sprintf("%s%s %s/%s is %s %s", name, s.Kind, s.Namespace, s.Name, a.RoleRef.Kind, a.RoleRef.Name))
	}

	if a.Kind == "ClusterRole" && len(a.Rules) == 0 {
		out = append(out, name+"no rules: is it aggregated?")
	}

	return out
}

// reviewedRights are the rights that everything in a cluster gives to its add-ons, machines and administrators.
func reviewedRights() []string {
	return []string{
		"ClusterRoleBinding /slipway:cluster-admins: Group /slipway:administrators is ClusterRole cluster-admin",
		"ClusterRoleBinding /slipway:apiserver-kubelet: User /kube-apiserver-kubelet-client is ClusterRole system:kubelet-api-admin",
		// The turn of machines, no secret.
		`Role kube-system/slipway:workers-update: get,patch configmaps of "" named slipway-workers-update`,
		"RoleBinding kube-system/slipway:workers-update: Group /system:nodes is Role slipway:workers-update",
		// Of a namespace that has only addresses and ports.
		`Role slipway-network-policy/slipway:network-policy: get,list,watch configmaps of ""`,
		"RoleBinding slipway-network-policy/slipway:network-policy: Group /system:nodes is Role slipway:network-policy",
		"ClusterRoleBinding /slipway:kube-proxy: ServiceAccount kube-system/kube-proxy is ClusterRole system:node-proxier",
		`ClusterRole /slipway:coredns: list,watch endpoints,services,namespaces of ""`,
		`ClusterRole /slipway:coredns: list,watch endpointslices of "discovery.k8s.io"`,
		"ClusterRoleBinding /slipway:coredns: ServiceAccount kube-system/coredns is ClusterRole slipway:coredns",
	}
}

// flannelRights are those of flannel.
func flannelRights() []string {
	return []string{
		`ClusterRole /slipway:flannel: get pods of ""`, // its own; it holds no secret
		`ClusterRole /slipway:flannel: get,list,watch nodes of ""`,
		`ClusterRole /slipway:flannel: patch nodes/status of ""`, // its own node's annotations: the policy
		"ClusterRoleBinding /slipway:flannel: ServiceAccount kube-system/flannel is ClusterRole slipway:flannel",
	}
}

// cniRights are those of the Amazon VPC CNI.
func cniRights() []string {
	return []string{
		`ClusterRole /slipway:aws-node: get,list,watch nodes,pods of ""`,
		`ClusterRole /slipway:aws-node: create,patch events of ",events.k8s.io"`,
		"ClusterRoleBinding /slipway:aws-node: ServiceAccount kube-system/aws-node is ClusterRole slipway:aws-node",
	}
}

// TestAddonAccountsMayLittle: a token of an add-on is on every machine, so each rule and each binding of the add-ons is reviewed here: what
// it may read is no secret, and what it may change is limited to its own node by an admission policy. Flannel's right to
// patch the status of every node, without such a policy, was seen to take over the control plane.
func TestAddonAccountsMayLittle(t *testing.T) {
	v := addon.Values{
		PodCIDR:     "10.244.0.0/16",
		ServiceCIDR: "10.96.0.0/16",
		DNSIP:       "10.96.0.10",
		DNSDomain:   "cluster.local",
		Images: map[string]string{
			"kube-proxy": "p", "coredns": "c", "flannel": "f", "flannel-cni-plugin": "x", "amazon-k8s-cni": "a", "amazon-k8s-cni-init": "i",
		},
		AdminGroup: "slipway:administrators",
	}
	policies := checkRights(t, v, append(reviewedRights(), flannelRights()...))
	if !strings.Contains(policies, "system:serviceaccount:kube-system:flannel") {
		t.Error("no admission policy limits flannel")
	}

	v.VPCPods = true
	v.Cluster = "demo"
	v.Region = "us-east-1"
	v.VPCCNIRole = vpcCNIRole
	v.PodCIDR = "10.80.0.0/16"
	checkRights(t, v, append(reviewedRights(), cniRights()...))
}

// checkRights compares the rights that the add-ons give with those that were reviewed, and returns the admission policies.
func checkRights(t *testing.T, v addon.Values, want []string) string {
	t.Helper()
	objects, err := addon.Render(v)
	check(t, err)
	var have []string
	var policies strings.Builder

	for _, o := range objects {
		var r accountRules
		check(t, json.Unmarshal(o.Body, &r))
		if r.Kind == "ValidatingAdmissionPolicy" {
			policies.Write(o.Body)
		}

		have = append(have, r.lines()...)
	}

	slices.Sort(have)
	slices.Sort(want)
	compareRights(t, have, want)
	if len(have) != len(want) {
		t.Errorf("%d rights, want %d:\n%s", len(have), len(want), strings.Join(have, "\n"))
	}

	return policies.String()
}

// compareRights compares rights with those that somebody has reviewed as an attacker.
func compareRights(t *testing.T, have, want []string) {
	t.Helper()
	for _, right := range have {
		if !slices.Contains(want, right) {
			t.Errorf("a right that nobody has reviewed: %s", right)
		}
	}

	for _, right := range want {
		if !slices.Contains(have, right) {
			t.Errorf("a right that nothing has: %s", right)
		}
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
