// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const providedAddress = "alpha.kubernetes.io/provided-node-ip"

// asUninitialized changes a node to what a kubelet registers with an external cloud provider.
func asUninitialized(n *corev1.Node, m clusterMachine) {
	n.Annotations = map[string]string{providedAddress: m.address}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: kube.TaintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: m.address}, {Type: corev1.NodeHostName, Address: m.name},
	}
}

// TestRealNodeController: the unmodified controller, with the channel of examples/addons, its role and what the admission policy
// leaves it, initializes nodes, adds their addresses, makes the load balancers of Services, and deletes the node of a machine
// that has ended. It leaves those of others. No attack: the real program, with its limits.
func TestRealNodeController(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	r := startController(t, cloudProviderChannel, asUninitialized)
	machines := r.machines()
	start := time.Now()
	for _, m := range machines {
		r.await("node "+m.name+" is initialized", func() string { return r.checkInitialized(m) })
	}
	t.Logf("COUNT %d nodes are initialized after %s", len(machines), time.Since(start).Round(time.Second))

	s := r.createService("web", func(*corev1.Service) {})
	r.await("the workers are targets", func() string { return r.checkTargets(s) })

	ended := machines[slices.IndexFunc(machines, func(m clusterMachine) bool { return m.role == "worker" })]
	_, err := r.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{ended.id}})
	r.check(err)
	for _, m := range machines {
		r.setReady(m.name, corev1.ConditionUnknown)
	}
	r.await("the node of the machine that has ended is deleted", func() string {
		_, err := r.api.CoreV1().Nodes().Get(t.Context(), ended.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}

		return fmt.Sprintf("%v", err)
	})
	left, err := r.api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	r.check(err)
	if len(left.Items) != len(machines)-1 {
		t.Errorf("%d nodes are left of %d", len(left.Items), len(machines))
	}
}

// checkInitialized returns what the controller has not done for a node.
func (r *realController) checkInitialized(m clusterMachine) string {
	r.Helper()
	n, err := r.api.CoreV1().Nodes().Get(r.Context(), m.name, metav1.GetOptions{})
	r.check(err)
	addresses := map[corev1.NodeAddressType]string{}
	for _, a := range n.Status.Addresses {
		addresses[a.Type] = a.Address
	}
	want := map[corev1.NodeAddressType]string{
		corev1.NodeInternalIP: m.address, corev1.NodeHostName: m.name, corev1.NodeInternalDNS: m.name,
	}
	labels := map[string]string{
		"topology.kubernetes.io/zone": m.zone, "topology.kubernetes.io/region": "us-east-1", "node.kubernetes.io/instance-type": m.kind,
	}
	for k, v := range labels {
		if n.Labels[k] != v {
			return fmt.Sprintf("label %s is %q, want %q", k, n.Labels[k], v)
		}
	}
	switch {
	case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == kube.TaintUninitialized }):
		return fmt.Sprintf("taints %v", n.Spec.Taints)
	case !maps.Equal(addresses, want):
		return fmt.Sprintf("addresses %v, want %v", addresses, want)
	}

	return ""
}

// setReady sets the condition Ready of a node, as a kubelet or kube-controller-manager does.
func (r *realController) setReady(name string, status corev1.ConditionStatus) {
	r.Helper()
	patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "status": %q}]}}`, status)
	_, err := r.api.CoreV1().Nodes().Patch(r.Context(), name, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
	r.check(err)
}

// nodeAttempt is what the holder of the controller's token tries with a node.
type nodeAttempt struct {
	name, method, path, body string
	allowed                  bool
}

// nodeAttempts returns what the controller needs, and what somebody with its token could gain from. All patches are merge
// patches, which replace lists.
func nodeAttempts() []nodeAttempt {
	const (
		worker   = "/api/v1/nodes/worker-a"
		fresh    = "/api/v1/nodes/fresh"
		internal = `{"type": "InternalIP", "address": "10.0.0.5"}`
		notReady = `{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}` // the API server's, of new nodes
		own      = `{"key": "team", "value": "a", "effect": "NoExecute"}, ` + notReady
		patch    = http.MethodPatch
	)
	spec := func(text string) string { return `{"spec": {` + text + `}}` }
	meta := func(text string) string { return `{"metadata": {` + text + `}}` }
	state := func(text string) string { return `{"status": {` + text + `}}` }

	return []nodeAttempt{
		{"label a worker as a control-plane machine", patch, worker, meta(`"labels": {"node-role.kubernetes.io/control-plane": ""}`), false},
		{"change the group of a node", patch, worker, meta(`"labels": {"slipway.dev/group": "gpu"}`), false},
		{"remove a label", patch, worker, meta(`"labels": {"slipway.dev/group": null}`), false},
		{"annotate a node", patch, worker, meta(`"annotations": {"flannel.alpha.coreos.com/public-ip": "10.0.0.9"}`), false},
		{"keep a node from being deleted", patch, worker, meta(`"finalizers": ["example.com/x"]`), false},
		{
			"let the garbage collector delete a node", patch, worker,
			meta(`"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "1"}]`), false,
		},
		{"remove the taint of others", patch, worker, spec(`"taints": []`), false},
		{"evict all pods of a node", patch, worker, spec(`"taints": [` + own + `, {"key": "evil", "effect": "NoExecute"}]`), false},
		{
			"evict all pods with its own taint", patch, worker,
			spec(`"taints": [` + own + `, {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoExecute"}]`), false,
		},
		{
			"take a node out of use", patch, worker,
			spec(`"taints": [` + own + `, {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]`), false,
		},
		{"cordon a node", patch, worker, spec(`"unschedulable": true`), false},
		{"let another machine have the pods of a Service", patch, fresh, spec(`"providerID": "aws:///us-east-1a/i-other"`), false},
		{"give a node the addresses of other pods", patch, fresh, spec(`"podCIDR": "10.244.9.0/24", "podCIDRs": ["10.244.9.0/24"]`), false},
		{
			"send kubectl exec to another machine", patch, worker + "/status",
			state(`"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]`), false,
		},
		{
			"send it there with one more address", patch, worker + "/status",
			state(`"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}, ` + internal + `]`), false,
		},
		{"remove the address", patch, worker + "/status", state(`"addresses": []`), false},
		{"send kubectl exec to another port", patch, worker + "/status", state(`"daemonEndpoints": {"kubeletEndpoint": {"Port": 9999}}`), false},
		{"report a node that is not Ready", patch, worker + "/status", state(`"conditions": [{"type": "Ready", "status": "False"}]`), false},
		{"draw pods to a node", patch, worker + "/status", state(`"capacity": {"cpu": "1000"}, "allocatable": {"cpu": "1000"}`), false},
		{"delete a node that works", http.MethodDelete, worker, "", false},
		{"create a node", http.MethodPost, "/api/v1/nodes", `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new"}}`, false},
		{"read a Secret", http.MethodGet, "/api/v1/namespaces/kube-system/secrets", "", false},
		{"drop the policy", http.MethodDelete, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/aws-cloud-nodes", "", false},

		{"set the zone", patch, fresh, meta(`"labels": {"topology.kubernetes.io/zone": "us-east-1a", "topology.k8s.aws/zone-id": "use1-az1"}`), true},
		{"initialize a node", patch, fresh, spec(`"taints": [` + notReady + `]`), true},
		{"add names", patch, worker + "/status", state(`"addresses": [` + internal + `, {"type": "InternalDNS", "address": "i-1.ec2.internal"}]`), true},
		{
			"taint a stopped machine", patch, worker,
			spec(`"taints": [` + own + `, {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]`), true,
		},
		{"delete a node that is not Ready", http.MethodDelete, fresh, "", true},
	}
}

// TestTokenOfTheNodeController: whoever has the token of the cloud controller manager changes what it sets itself, and nothing
// with which pods, secrets or commands would get to another machine. Never open: the account's admission policy and this test were
// made together.
func TestTokenOfTheNodeController(t *testing.T) {
	cluster := newAttackedCluster(t)
	applyNodeRights(t, cluster.API)
	const (
		worker = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-a", "labels": {"slipway.dev/group": "workers"}},
			"spec": {"providerID": "aws:///us-east-1a/i-1", "taints": [{"key": "team", "value": "a", "effect": "NoExecute"}]}}`
		fresh = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fresh"},
			"spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]}}`
		works = `{"status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.5"}],
			"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}, "capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}}}`
	)
	for _, n := range []string{worker, fresh} {
		_, err := cluster.API.Do(t.Context(), http.MethodPost, "/api/v1/nodes", "application/json", []byte(n))
		check(t, err)
	}
	_, err := cluster.API.Do(t.Context(), http.MethodPatch, "/api/v1/nodes/worker-a/status", "application/merge-patch+json", []byte(works))
	check(t, err)
	holder := controllerToken(t, cluster)
	awaitNodePolicy(t, holder)
	for _, a := range nodeAttempts() {
		status, text := holder.Send(t, a.method, a.path, a.body)
		isRefused := status == http.StatusForbidden || status == http.StatusUnprocessableEntity
		if a.allowed && status != http.StatusOK || !a.allowed && !isRefused {
			t.Errorf("%s: answer %d, want allowed %t: %s", a.name, status, a.allowed, text)
		}
	}
}

// applyNodeRights applies the rights of the controller on Nodes, with what limits them.
func applyNodeRights(t *testing.T, api kube.Client) {
	t.Helper()
	const (
		rights    = "/apis/rbac.authorization.k8s.io/v1/"
		admission = "/apis/admissionregistration.k8s.io/v1/"
	)
	paths := map[string]string{
		"ClusterRole":                      rights + "clusterroles/",
		"ClusterRoleBinding":               rights + "clusterrolebindings/",
		"ValidatingAdmissionPolicy":        admission + "validatingadmissionpolicies/",
		"ValidatingAdmissionPolicyBinding": admission + "validatingadmissionpolicybindings/",
	}
	text, err := os.ReadFile("../../examples/addons/aws-cloud-nodes.yaml")
	check(t, err)
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var head metav1.PartialObjectMetadata
		check(t, yaml.Unmarshal([]byte(part), &head))
		body, err := yaml.YAMLToJSONStrict([]byte(part))
		check(t, err)
		check(t, api.Apply(t.Context(), paths[head.Kind]+head.Name, body))
	}
}

// controllerToken returns somebody with the token of the controller's service account.
func controllerToken(t *testing.T, cluster apitest.Cluster) apitest.Caller {
	t.Helper()
	const accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
	account := `{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "` + controllerName + `"}}`
	_, err := cluster.API.Do(t.Context(), http.MethodPost, accounts, "application/json", []byte(account))
	check(t, err)
	answer, err := cluster.API.Do(t.Context(), http.MethodPost, accounts+"/"+controllerName+"/token", "application/json",
		[]byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}`))
	check(t, err)
	var token authenticationv1.TokenRequest
	check(t, json.Unmarshal(answer, &token))

	return apitest.Caller{
		Client: cluster.Stranger, Server: cluster.API.Server, Headers: map[string]string{"Authorization": "Bearer " + token.Status.Token},
	}
}

// awaitNodePolicy waits until the policy is in force, and the rights are.
func awaitNodePolicy(t *testing.T, holder apitest.Caller) {
	t.Helper()
	for i := range 200 {
		status, text := holder.Patch(t, "/api/v1/nodes/worker-a", `{"metadata": {"annotations": {"x": "`+strconv.Itoa(i)+`"}}}`)
		if status == http.StatusUnprocessableEntity {
			return
		}
		if i == 199 {
			t.Fatalf("answer %d: %s", status, text)
		}
		time.Sleep(300 * time.Millisecond)
	}
}
