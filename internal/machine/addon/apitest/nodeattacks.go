// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// Cluster is an API server with the add-ons of every cluster, for attacks on it.
type Cluster struct {
	// API is a client of an administrator.
	API kube.Client
	// Stranger is a client without a certificate, for callers with a token.
	Stranger *http.Client
	// As returns a client with a certificate of the cluster's authority.
	As func(leaf pki.Leaf) *http.Client
}

// JoinedLeaf returns the client certificate of a worker as the join endpoint issues it. The instance may be empty.
func JoinedLeaf(name, group, instance string) pki.Leaf {
	leaf, _ := join.NodeLeaves(name, netip.MustParseAddr("10.0.0.9"), time.Hour)
	leaf.Orgs = append(leaf.Orgs, join.GroupOrganization(group))
	if instance != "" {
		leaf.Orgs = append(leaf.Orgs, join.InstanceOrganization(instance))
	}

	return leaf
}

// Kubelet returns the kubelet of a worker.
func (c Cluster) Kubelet(name, group, instance string) Caller {
	return Caller{Client: c.As(JoinedLeaf(name, group, instance)), Server: c.API.Server}
}

// FlannelOn returns flannel on a node: its token is bound to a pod there, as that which the kubelet gets.
func (c Cluster) FlannelOn(t *testing.T, node string) Caller {
	t.Helper()

	var pod struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}

	c.create(t, "/api/v1/namespaces/kube-system/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"flannel-attack"},`+
		`"spec":{"serviceAccountName":"flannel","nodeName":"`+node+`","containers":[{"name":"x","image":"x"}]}}`, &pod)

	var token struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}

	c.create(t, "/api/v1/namespaces/kube-system/serviceaccounts/flannel/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600,"boundObjectRef":`+
			`{"apiVersion":"v1","kind":"Pod","name":"flannel-attack","uid":"`+pod.Metadata.UID+`"}}}`, &token)

	return Caller{
		Client:  c.Stranger,
		Server:  c.API.Server,
		Headers: map[string]string{"Authorization": "Bearer " + token.Status.Token},
	}
}

// create creates an object as an administrator, and decodes the answer.
func (c Cluster) create(t *testing.T, path, body string, into any) {
	t.Helper()

	answer, err := c.API.Do(t.Context(), http.MethodPost, path, "application/json", []byte(body))
	if err == nil {
		err = json.Unmarshal(answer, into)
	}

	if err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
}

// attack is a change that somebody on a worker tries.
type attack struct {
	name       string
	who        Caller
	path, body string
	allowed    bool
}

func refused(name string, who Caller, path, body string) attack {
	return attack{
		name: name,
		who:  who,
		path: path,
		body: body,
	}
}

// allowed is no attack: what the caller needs for its work.
func allowed(name string, who Caller, path, body string) attack {
	out := refused(name, who, path, body)
	out.allowed = true

	return out
}

// try returns an error if the API server allows what it should refuse, or refuses what it should allow.
func (a attack) try(t *testing.T) error {
	t.Helper()

	status, text := a.who.Patch(t, a.path, a.body)
	isRefused := status == http.StatusForbidden || status == http.StatusUnprocessableEntity
	if a.allowed && status == http.StatusOK || !a.allowed && isRefused {
		return nil
	}

	return fmt.Errorf("answer %d, want allowed %t: %s", status, a.allowed, text)
}

// CheckNodeAttacks tries to change Nodes with a token of flannel, which is on every worker, and with the certificate of a
// kubelet. Seen to succeed before the admission policies: flannel's token relabelled a control-plane node and changed
// its addresses, and a kubelet set the group label of its node.
func (c Cluster) CheckNodeAttacks(t *testing.T) {
	t.Helper()

	const (
		own   = "worker-a"
		other = "control-plane-a"
	)

	for _, name := range []string{own, other} {
		c.create(t, "/api/v1/nodes",
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+name+`","labels":{"slipway.dev/group":"workers"}}}`, new(any))
	}

	attacks := append(flannelAttacks(c.FlannelOn(t, own), own, other), kubeletAttacks(c.Kubelet(own, "workers", ""), own)...)
	for _, a := range attacks {
		await(t, a.name, func() error {
			err := a.try(t)
			if err != nil { // the policies were not in effect yet: undone, since the same change again changes nothing
				c.resetGroups(t, own, other)
			}

			return err
		})
	}
}

// resetGroups gives Nodes their group back, as an administrator.
func (c Cluster) resetGroups(t *testing.T, nodes ...string) {
	t.Helper()

	for _, name := range nodes {
		body := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `","labels":{"slipway.dev/group":"workers"}}}`
		if err := c.API.Apply(t.Context(), "/api/v1/nodes/"+name, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
}

func flannelAttacks(flannel Caller, ownNode, otherNode string) []attack {
	own := "/api/v1/nodes/" + ownNode + "/status"
	other := "/api/v1/nodes/" + otherNode + "/status"

	const (
		public   = `{"metadata":{"annotations":{"flannel.alpha.coreos.com/public-ip":"10.0.0.9"}}}`
		redirect = `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`
		network  = `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"FlannelIsUp","message":"up"}]}}`
		ready    = `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"x","message":"x"}]}}`
	)

	return []attack{
		allowed("flannel annotates its node", flannel, own, public),
		allowed("flannel reports its network", flannel, own, network),
		refused("flannel annotates another node", flannel, other, public),
		refused("flannel labels another node", flannel, other, `{"metadata":{"labels":{"stolen":"yes"}}}`),
		refused("flannel redirects another node", flannel, other, redirect),
		refused("flannel labels its node", flannel, own, `{"metadata":{"labels":{"slipway.dev/group":"gpu"}}}`),
		refused("flannel sets another annotation", flannel, own, `{"metadata":{"annotations":{"stolen":"yes"}}}`),
		refused("flannel redirects its node", flannel, own, redirect),
		refused("flannel reports another condition", flannel, own, ready),
	}
}

func kubeletAttacks(kubelet Caller, node string) []attack {
	const policies = "/api/v1/namespaces/slipway-network-policy/configmaps/"

	own := "/api/v1/nodes/" + node

	return []attack{
		refused("a kubelet sets its group", kubelet, own, `{"metadata":{"labels":{"slipway.dev/group":"gpu"}}}`),
		refused("a kubelet removes its group", kubelet, own, `{"metadata":{"labels":{"slipway.dev/group":null}}}`),
		allowed("a kubelet sets a free label", kubelet, own, `{"metadata":{"labels":{"example.com/x":"y"}}}`),
		refused("a kubelet claims a role", kubelet, own, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		// What root on a worker can do: the API server then looks for the kubelet of this Node there.
		allowed("a kubelet changes its addresses", kubelet, own+"/status",
			`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`),
		refused("a kubelet changes the addresses of another", kubelet, "/api/v1/nodes/control-plane-a/status",
			`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`),
		refused("a kubelet changes the rules of network policies", kubelet, policies+node, `{"data":{"rules.json":"{}"}}`),
	}
}

// LiveMachines are the machines that [Cluster.CheckGhostAttacks] expects on the list of live machines, by the names of their
// nodes. The names gone and reused are also those of terminated machines.
func LiveMachines() map[string]string { return map[string]string{"live": "i-live", "reused": "i-new"} }

// CheckGhostAttacks registers nodes with certificates of machines that are gone, and changes one. Seen to succeed before the
// policy.
func (c Cluster) CheckGhostAttacks(t *testing.T) {
	t.Helper()

	const (
		isGhost = http.StatusUnprocessableEntity
		isLive  = http.StatusCreated
	)

	c.awaitRegistration(t, "gone", "i-gone", isGhost)
	c.awaitRegistration(t, "reused", "i-old", isGhost) // the name of a later machine
	c.awaitRegistration(t, "other", "i-live", isGhost) // the name of no machine
	c.awaitRegistration(t, "reused", "i-new", isLive)
	c.awaitRegistration(t, "live", "i-live", isLive)

	status, text := c.Kubelet("reused", "workers", "i-old").Patch(t,
		"/api/v1/nodes/reused/status", `{"metadata":{"annotations":{"x":"y"}}}`)
	if status != http.StatusUnprocessableEntity {
		t.Errorf("a ghost changes the node of a later machine: answer %d: %s", status, text)
	}
}

// CheckMachineAttacks registers a node as that of another machine, with the certificate of a worker, and tries to make it one
// later. The repair, rolling updates and the controllers of load balancers find the machine of a node by its provider id. Seen
// to succeed before the policy.
func (c Cluster) CheckMachineAttacks(t *testing.T) {
	t.Helper()

	const (
		name    = "liar"
		own     = "aws:///us-east-1a/i-own"
		path    = "/api/v1/nodes/" + name
		isLie   = http.StatusUnprocessableEntity
		isKnown = http.StatusCreated
	)

	for _, provider := range []string{
		"aws:///us-east-1a/i-other",
		"aws:///us-east-1a/i-other/i-own",
		"aws:///us-east-1a/i-own/i-other",
		"aws:///us-east-1a/xi-own",
		"aws:///us-east-1a/",
		"other:///us-east-1a/i-own",
		"i-own",
	} {
		c.awaitRegistrationAs(t, name, "i-own", provider, isLie)
	}

	kubelet := c.Kubelet(name, "workers", "i-own")
	setProvider := func(provider string) string { return `{"spec":{"providerID":"` + provider + `"}}` }

	c.awaitRegistrationAs(t, name, "i-own", "", isKnown)

	tryOnce(t, []attack{
		refused("a kubelet claims another machine later", kubelet, path, setProvider("aws:///us-east-1a/i-other")),
		allowed("a kubelet names its machine later", kubelet, path, setProvider(own)),
		refused("a kubelet exchanges its machine", kubelet, path, setProvider("aws:///us-east-1a/i-other")),
		refused("a kubelet forgets its machine", kubelet, path, setProvider("")),
		allowed("a kubelet annotates its node", kubelet, path, `{"metadata":{"annotations":{"x":"y"}}}`),
	})

	if err := c.API.Delete(t.Context(), path); err != nil {
		t.Fatal(err)
	}

	c.awaitRegistrationAs(t, name, "i-own", own, isKnown)
	c.checkPodRanges(t)
}

// checkPodRanges registers a node that chooses its range of pods, which flannel on all machines then sends to it, with the
// certificate of a worker, and tries to choose one later. Seen to succeed before the policy, with the whole network of pods.
func (c Cluster) checkPodRanges(t *testing.T) {
	t.Helper()

	const (
		name     = "greedy"
		instance = "i-greedy"
		path     = "/api/v1/nodes/" + name
		ranges   = `"podCIDR":"10.244.0.0/16","podCIDRs":["10.244.0.0/16"]`
		refusal  = http.StatusUnprocessableEntity
	)

	for _, spec := range []string{`"podCIDR":"10.244.0.0/16"`, `"podCIDRs":["10.244.0.0/16"]`, ranges} {
		c.awaitRegistrationWith(t, name, instance, spec, refusal)
	}

	c.awaitRegistrationWith(t, name, instance, "", http.StatusCreated)

	kubelet := c.Kubelet(name, "workers", instance)
	administrator := Caller{Client: c.API.HTTP, Server: c.API.Server}
	tryOnce(t, []attack{
		refused("a kubelet chooses a range of pods later", kubelet, path, `{"spec":{`+ranges+`}}`),
		allowed("the controller manager gives it one", administrator, path, `{"spec":{"podCIDR":"10.244.7.0/24","podCIDRs":["10.244.7.0/24"]}}`),
		refused("a kubelet exchanges its range of pods", kubelet, path, `{"spec":{`+ranges+`}}`),
		allowed("a kubelet with a range of pods annotates its node", kubelet, path, `{"metadata":{"annotations":{"x":"y"}}}`),
	})
}

// tryOnce tries attacks whose policies have taken effect.
func tryOnce(t *testing.T, attacks []attack) {
	t.Helper()
	for _, a := range attacks {
		if err := a.try(t); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
}

// awaitRegistration registers a node until the answer is as wanted.
func (c Cluster) awaitRegistration(t *testing.T, node, instance string, want int) {
	t.Helper()
	c.awaitRegistrationAs(t, node, instance, "", want)
}

// awaitRegistrationAs registers a node with a provider id until the answer is as wanted.
func (c Cluster) awaitRegistrationAs(t *testing.T, node, instance, provider string, want int) {
	t.Helper()
	c.awaitRegistrationWith(t, node, instance, `"providerID":"`+provider+`"`, want)
}

// awaitRegistrationWith registers a node with members of its spec until the answer is as wanted.
func (c Cluster) awaitRegistrationWith(t *testing.T, node, instance, spec string, want int) {
	t.Helper()

	await(t, "instance "+instance+" registers node "+node+" with "+spec, func() error {
		status, text := c.registerWith(t, node, instance, spec)
		if status == want {
			return nil
		}

		if status == http.StatusCreated { // the policy is not yet in force
			if err := c.API.Delete(t.Context(), "/api/v1/nodes/"+node); err != nil {
				return err
			}
		}

		return fmt.Errorf("answer %d, want %d: %s", status, want, text)
	})
}

// Register registers a node as the kubelet of a worker, and returns the answer.
func (c Cluster) Register(t *testing.T, name, instance string) (int, string) {
	t.Helper()

	return c.registerWith(t, name, instance, "")
}

// registerWith registers a node with members of its spec as the kubelet of a worker, and returns the answer.
func (c Cluster) registerWith(t *testing.T, name, instance, spec string) (int, string) {
	t.Helper()

	return c.Kubelet(name, "workers", instance).Send(t, http.MethodPost, "/api/v1/nodes",
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+name+`","labels":{"slipway.dev/group":"workers"}},`+
			`"spec":{`+spec+`}}`)
}

// await tries until it succeeds: a new admission policy takes effect after a moment.
func await(t *testing.T, what string, try func() error) {
	t.Helper()

	const (
		attempts = 200
		pause    = 300 * time.Millisecond
	)

	var err error
	for range attempts {
		if err = try(); err == nil {
			return
		}

		time.Sleep(pause) //nolint:forbidigo // a test waits for a program
	}

	t.Errorf("%s: %v", what, err)
}
