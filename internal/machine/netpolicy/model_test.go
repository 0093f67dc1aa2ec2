// SPDX-License-Identifier: Apache-2.0

package netpolicy_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/netpolicy"
)

// packet opens a connection.
type packet struct {
	source, destination string
	protocol            string
	port                int
}

// judge decides by the text of the documentation of NetworkPolicies, without sets, nodes or rules.
type judge struct{ netpolicy.Cluster }

// allows reports whether a connection is allowed: by the policies for egress of its source, and for ingress of its
// destination.
func (j judge) allows(p packet) bool {
	source, isPod := j.podAt(p.source)
	if isPod && p.source != p.destination && !j.allowsDirection(p, source, p.destination, "Egress") {
		return false
	}

	destination, isPod := j.podAt(p.destination)

	return !isPod || p.source == p.destination || j.allowsDirection(p, destination, p.source, "Ingress")
}

func (j judge) podAt(address string) (netpolicy.Pod, bool) {
	for _, p := range j.Pods {
		if p.Status.PodIP == address && !p.Spec.HostNetwork && p.Status.Phase == "Running" {
			return p, true
		}
	}

	return netpolicy.Pod{}, false
}

// allowsDirection judges one direction for a pod: open unless a policy selects it, then what one of these allows.
func (j judge) allowsDirection(p packet, pod netpolicy.Pod, other, direction string) bool {
	isolated := false
	for _, policy := range j.Policies {
		if policy.Metadata.Namespace != pod.Metadata.Namespace || !matches(policy.Spec.PodSelector, pod.Metadata.Labels) {
			continue
		}

		types := policy.Spec.PolicyTypes
		if len(types) == 0 {
			types = []string{"Ingress"}
			if len(policy.Spec.Egress) > 0 {
				types = append(types, "Egress")
			}
		}

		if !slices.Contains(types, direction) {
			continue
		}

		isolated = true
		if j.allowsPolicy(p, policy, other, direction) {
			return true
		}
	}

	return !isolated
}

func (j judge) allowsPolicy(p packet, policy netpolicy.Policy, other, direction string) bool {
	rules := policy.Spec.Ingress
	if direction == "Egress" {
		rules = policy.Spec.Egress
	}

	for _, r := range rules {
		peers := r.From
		if direction == "Egress" {
			peers = r.To
		}

		isPeer := len(peers) == 0 || slices.ContainsFunc(peers, func(peer netpolicy.PolicyPeer) bool {
			return j.isPeer(policy.Metadata.Namespace, peer, other)
		})
		isPort := len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(port netpolicy.PolicyPort) bool {
			return j.isPort(p, port)
		})
		if isPeer && isPort {
			return true
		}
	}

	return false
}

func (j judge) isPeer(namespace string, peer netpolicy.PolicyPeer, address string) bool {
	if peer.IPBlock != nil {
		return inBlock(peer.IPBlock.CIDR, address) && !slices.ContainsFunc(peer.IPBlock.Except, func(except string) bool {
			return inBlock(except, address)
		})
	}

	pod, isPod := j.podAt(address)
	if !isPod || peer.PodSelector != nil && !matches(*peer.PodSelector, pod.Metadata.Labels) {
		return false
	}

	if peer.NamespaceSelector == nil {
		return pod.Metadata.Namespace == namespace
	}

	at := slices.IndexFunc(j.Namespaces, func(n netpolicy.Namespace) bool { return n.Metadata.Name == pod.Metadata.Namespace })

	return at >= 0 && matches(*peer.NamespaceSelector, j.Namespaces[at].Metadata.Labels)
}

// isPort compares with the port of the packet; a name is that of a port of the destination.
func (j judge) isPort(p packet, port netpolicy.PolicyPort) bool {
	if cmp.Or(port.Protocol, "TCP") != p.protocol {
		return false
	}

	switch {
	case port.Port == nil:
		return true
	case port.EndPort != nil:
		return p.port >= port.Port.IntValue() && p.port <= int(*port.EndPort)
	case port.Port.Type == intstr.Int:
		return p.port == port.Port.IntValue()
	}

	destination, isPod := j.podAt(p.destination)
	if !isPod {
		return false
	}

	for _, c := range destination.Spec.Containers {
		for _, named := range c.Ports {
			if named.Name == port.Port.StrVal && cmp.Or(named.Protocol, "TCP") == p.protocol && named.ContainerPort == p.port {
				return true
			}
		}
	}

	return false
}

func matches(selector metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(&selector)

	return err == nil && s.Matches(labels.Set(set))
}

func inBlock(block, address string) bool {
	return netip.MustParsePrefix(block).Contains(netip.MustParseAddr(address))
}

// nodes decide by their rules, as nft does.
type nodes map[string]netpolicy.NodeRules

func (n nodes) allows(p packet) bool {
	if p.source == p.destination {
		return true
	}

	for _, node := range n {
		for _, pod := range node.Pods {
			isSource := pod.Address == p.source && pod.Egress != nil
			if isSource && !passes(node, pod.Egress, p.destination, p) {
				return false
			}

			isDestination := pod.Address == p.destination && pod.Ingress != nil
			if isDestination && !passes(node, pod.Ingress, p.source, p) {
				return false
			}
		}
	}

	return true
}

// passes reports whether one of the rules allows a packet from or to the other address.
func passes(node netpolicy.NodeRules, rules []netpolicy.Rule, other string, p packet) bool {
	return slices.ContainsFunc(rules, func(r netpolicy.Rule) bool {
		switch {
		case r.Set != "" && !slices.Contains(node.Sets[r.Set], other):
			return false
		case r.Block != "" && !inBlock(r.Block, other):
			return false
		case slices.ContainsFunc(r.Except, func(except string) bool { return inBlock(except, other) }):
			return false
		}

		return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(ports netpolicy.Ports) bool {
			isAll := ports.First == 0
			return ports.Protocol == strings.ToLower(p.protocol) && (isAll || p.port >= ports.First && p.port <= ports.Last)
		})
	})
}

// TestModel: for random clusters and connections, the rules of the nodes decide as the documentation says.
func TestModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cluster := drawCluster(r)
		rules, err := netpolicy.Compile(cluster)
		if err != nil {
			r.Fatal(err)
		}

		addresses := []string{"203.0.113.1", "203.0.113.200"}
		for _, p := range cluster.Pods {
			addresses = append(addresses, p.Status.PodIP)
		}

		for range 20 {
			p := packet{
				source:      rapid.SampledFrom(addresses).Draw(r, "source"),
				destination: rapid.SampledFrom(addresses).Draw(r, "destination"),
				protocol:    rapid.SampledFrom([]string{"TCP", "UDP"}).Draw(r, "protocol"),
				port:        rapid.SampledFrom([]int{80, 81, 82, 8080}).Draw(r, "port"),
			}
			if want, got := (judge{cluster}).allows(p), nodes(rules).allows(p); want != got {
				r.Fatalf("%+v: allowed %v, want %v", p, got, want)
			}
		}
	})
}

func drawCluster(r *rapid.T) netpolicy.Cluster {
	var out netpolicy.Cluster
	for _, name := range []string{"a", "b"} {
		out.Namespaces = append(out.Namespaces, netpolicy.Namespace{
			Metadata: netpolicy.Metadata{Name: name, Labels: drawLabels(r)},
		})
	}

	for n := range rapid.IntRange(1, 6).Draw(r, "pods") {
		out.Pods = append(out.Pods, drawPod(r, n))
	}

	for n := range rapid.IntRange(0, 4).Draw(r, "policies") {
		policy := netpolicy.Policy{Metadata: netpolicy.Metadata{Name: strconv.Itoa(n), Namespace: drawNamespace(r)}}
		policy.Spec.PodSelector = drawSelector(r)
		policy.Spec.PolicyTypes = rapid.SampledFrom([][]string{nil, {"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}).Draw(r, "types")
		for range rapid.IntRange(0, 2).Draw(r, "ingress") {
			policy.Spec.Ingress = append(policy.Spec.Ingress, netpolicy.PolicyRule{From: drawPeers(r), Ports: drawPorts(r)})
		}

		for range rapid.IntRange(0, 2).Draw(r, "egress") {
			policy.Spec.Egress = append(policy.Spec.Egress, netpolicy.PolicyRule{To: drawPeers(r), Ports: drawPorts(r)})
		}

		out.Policies = append(out.Policies, policy)
	}

	return out
}

func drawPod(r *rapid.T, n int) netpolicy.Pod {
	return netpolicy.Pod{
		Metadata: netpolicy.Metadata{Name: strconv.Itoa(n), Namespace: drawNamespace(r), Labels: drawLabels(r)},
		Spec: netpolicy.PodSpec{
			NodeName:    rapid.SampledFrom([]string{"one", "two"}).Draw(r, "node"),
			HostNetwork: rapid.IntRange(0, 5).Draw(r, "host network") == 0,
			Containers: []netpolicy.Container{{Ports: []netpolicy.ContainerPort{{
				Name:          "web",
				ContainerPort: rapid.SampledFrom([]int{80, 8080}).Draw(r, "container port"),
			}}}},
		},
		Status: netpolicy.PodStatus{
			Phase: rapid.SampledFrom([]string{"Running", "Running", "Failed"}).Draw(r, "phase"),
			PodIP: fmt.Sprintf("10.0.0.%d", n+1),
		},
	}
}

func drawNamespace(r *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b"}).Draw(r, "namespace")
}

func drawLabels(r *rapid.T) map[string]string {
	return rapid.SampledFrom([]map[string]string{nil, {"x": "1"}, {"x": "2"}, {"x": "1", "y": "1"}}).Draw(r, "labels")
}

func drawSelector(r *rapid.T) metav1.LabelSelector {
	return rapid.SampledFrom([]metav1.LabelSelector{
		{},
		{MatchLabels: map[string]string{"x": "1"}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"1"}}}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "y", Operator: metav1.LabelSelectorOpExists}}},
	}).Draw(r, "selector")
}

func drawPeers(r *rapid.T) []netpolicy.PolicyPeer {
	var out []netpolicy.PolicyPeer
	for range rapid.IntRange(0, 2).Draw(r, "peers") {
		var peer netpolicy.PolicyPeer

		switch rapid.IntRange(0, 3).Draw(r, "kind of peer") {
		case 0:
			peer.IPBlock = &netpolicy.IPBlock{CIDR: "203.0.113.0/24", Except: []string{"203.0.113.128/25"}}
		case 1:
			selector := drawSelector(r)
			peer.PodSelector = &selector
		case 2:
			selector := drawSelector(r)
			peer.NamespaceSelector = &selector
		default:
			pods := drawSelector(r)
			namespaces := drawSelector(r)
			peer.PodSelector = &pods
			peer.NamespaceSelector = &namespaces
		}

		out = append(out, peer)
	}

	return out
}

func drawPorts(r *rapid.T) []netpolicy.PolicyPort {
	var out []netpolicy.PolicyPort
	for range rapid.IntRange(0, 2).Draw(r, "ports") {
		port := netpolicy.PolicyPort{Protocol: rapid.SampledFrom([]string{"", "TCP", "UDP"}).Draw(r, "port protocol")}

		switch rapid.IntRange(0, 3).Draw(r, "kind of port") {
		case 0:
		case 1:
			number := intstr.FromInt32(80)
			port.Port = &number
		case 2:
			number := intstr.FromInt32(80)
			last := int32(82)
			port.Port = &number
			port.EndPort = &last
		default:
			name := intstr.FromString("web")
			port.Port = &name
		}

		out = append(out, port)
	}

	return out
}
