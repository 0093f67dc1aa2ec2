// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Cluster is what rules are compiled from.
type Cluster struct {
	Pods       []Pod
	Namespaces []Namespace
	Policies   []Policy
}

// Compile returns the rules of each node with a pod that a policy selects, by the name of the node. The same cluster gives
// the same rules in any order of its objects. A policy that cannot be read isolates the pods that it selects and allows
// nothing; the error names it, and the other rules are returned.
func Compile(c Cluster) (map[string]NodeRules, error) {
	compiler := newCompiler(c)
	for _, p := range sortPolicies(c.Policies) {
		if err := compiler.add(p); err != nil {
			compiler.errs = append(compiler.errs, fmt.Errorf("NetworkPolicy %s/%s: %w", p.Metadata.Namespace, p.Metadata.Name, err))
		}
	}

	return compiler.nodes(), errors.Join(compiler.errs...)
}

func sortPolicies(policies []Policy) []Policy {
	out := slices.Clone(policies)
	slices.SortFunc(out, func(a, b Policy) int {
		return cmp.Or(
			strings.Compare(a.Metadata.Namespace, b.Metadata.Namespace),
			strings.Compare(a.Metadata.Name, b.Metadata.Name),
		)
	})

	return out
}

// compiler collects the rules of pods.
type compiler struct {
	// pods with an address of their own, sorted by it, by namespace.
	pods map[string][]Pod
	// namespaces are the labels of namespaces.
	namespaces map[string]map[string]string
	// names of the namespaces, sorted.
	names []string
	rules map[string]*PodRules // by address
	sets  map[string][]string
	errs  []error
}

func newCompiler(c Cluster) *compiler {
	out := &compiler{
		pods:       map[string][]Pod{},
		namespaces: map[string]map[string]string{},
		rules:      map[string]*PodRules{},
		sets:       map[string][]string{},
	}
	for _, n := range c.Namespaces {
		out.namespaces[n.Metadata.Name] = n.Metadata.Labels
		out.names = append(out.names, n.Metadata.Name)
	}

	slices.Sort(out.names)

	for _, p := range c.Pods {
		if hasOwnAddress(p) {
			out.pods[p.Metadata.Namespace] = append(out.pods[p.Metadata.Namespace], p)
		}
	}

	for _, pods := range out.pods {
		slices.SortFunc(pods, func(a, b Pod) int {
			return cmp.Or(strings.Compare(a.Status.PodIP, b.Status.PodIP), strings.Compare(a.Metadata.Name, b.Metadata.Name))
		})
	}

	return out
}

// hasOwnAddress reports whether a pod has an address that no other pod has. That of a pod that has ended may belong to
// another one already.
func hasOwnAddress(p Pod) bool {
	address, err := netip.ParseAddr(p.Status.PodIP)
	ended := p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"

	return err == nil && address.Is4() && !p.Spec.HostNetwork && !ended
}

// add adds the rules of a policy to the pods that it selects.
func (c *compiler) add(p Policy) error {
	selected, err := c.selectPods(p.Metadata.Namespace, p.Spec.PodSelector)
	if err != nil {
		return err
	}

	isIngress := slices.Contains(p.Spec.PolicyTypes, ingressType) || len(p.Spec.PolicyTypes) == 0
	isEgress := slices.Contains(p.Spec.PolicyTypes, egressType) || len(p.Spec.PolicyTypes) == 0 && len(p.Spec.Egress) > 0
	var errs []error

	for _, pod := range selected {
		rules := c.rulesOf(pod)
		if isIngress {
			allowed, err := c.compileIngress(p, pod)
			rules.Ingress = appendRules(rules.Ingress, allowed)
			errs = append(errs, err)
		}

		if isEgress {
			allowed, err := c.compileEgress(p)
			rules.Egress = appendRules(rules.Egress, allowed)
			errs = append(errs, err)
		}
	}

	return firstOf(errs)
}

// firstOf returns the first error: the pods of a policy have the same ones.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	return nil
}

// appendRules adds rules that are not there yet. The result is not nil: the pod is isolated.
func appendRules(rules, added []Rule) []Rule {
	if rules == nil {
		rules = []Rule{}
	}

	for _, r := range added {
		if !slices.ContainsFunc(rules, func(have Rule) bool { return have.key() == r.key() }) {
			rules = append(rules, r)
		}
	}

	return rules
}

// key returns the same text for rules that are the same.
func (r Rule) key() string { return fmt.Sprint(r) }

// rulesOf returns the rules of a pod, to be changed.
func (c *compiler) rulesOf(p Pod) *PodRules {
	address := p.Status.PodIP
	if c.rules[address] == nil {
		c.rules[address] = &PodRules{Address: address}
	}

	return c.rules[address]
}

// selectPods returns the pods of a namespace with the labels.
func (c *compiler) selectPods(namespace string, selector metav1.LabelSelector) ([]Pod, error) {
	matches, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return nil, err
	}

	var out []Pod
	for _, p := range c.pods[namespace] {
		if matches.Matches(labels.Set(p.Metadata.Labels)) {
			out = append(out, p)
		}
	}

	return out, nil
}

// compileIngress returns what a policy allows to a pod. Ports are those of the pod.
func (c *compiler) compileIngress(p Policy, pod Pod) ([]Rule, error) {
	var out []Rule
	var errs []error

	for _, rule := range p.Spec.Ingress {
		ports, allowed := resolvePorts(rule.Ports, pod)
		if !allowed {
			continue // the pod has no port with the name
		}

		peers, err := c.compilePeers(p.Metadata.Namespace, rule.From)
		errs = append(errs, err)
		for _, peer := range peers {
			peer.Ports = ports
			out = append(out, peer)
		}
	}

	return out, errors.Join(errs...)
}

// compileEgress returns what a policy allows its pods to connect to. A port with a name is that of each peer.
func (c *compiler) compileEgress(p Policy) ([]Rule, error) {
	var out []Rule
	var errs []error

	for _, rule := range p.Spec.Egress {
		byNumber, byName := splitPorts(rule.Ports)
		if len(byNumber) > 0 || len(byName) == 0 {
			ports, _ := resolvePorts(byNumber, Pod{})
			peers, err := c.compilePeers(p.Metadata.Namespace, rule.To)
			errs = append(errs, err)
			for _, peer := range peers {
				peer.Ports = ports
				out = append(out, peer)
			}
		}

		if len(byName) > 0 {
			named, err := c.compileNamedEgress(p.Metadata.Namespace, rule.To, byName)
			errs = append(errs, err)
			out = append(out, named...)
		}
	}

	return out, errors.Join(errs...)
}

// compileNamedEgress returns a rule for each number that the ports have in the pods of the peers. Addresses that are no
// pods have no names of ports.
func (c *compiler) compileNamedEgress(namespace string, peers []PolicyPeer, named []PolicyPort) ([]Rule, error) {
	pods, err := c.peerPods(namespace, peers)
	addresses := map[Ports][]string{}
	for _, pod := range pods {
		ports, _ := resolvePorts(named, pod)
		for _, p := range ports {
			addresses[p] = append(addresses[p], pod.Status.PodIP)
		}
	}

	var out []Rule
	for p, list := range addresses {
		out = append(out, Rule{Set: c.addSet(list), Ports: []Ports{p}})
	}

	slices.SortFunc(out, func(a, b Rule) int { return strings.Compare(a.key(), b.key()) })

	return out, err
}

// compilePeers returns a rule without ports for all pods of the peers, and one for each range of addresses. Without peers
// everything is allowed.
func (c *compiler) compilePeers(namespace string, peers []PolicyPeer) ([]Rule, error) {
	if len(peers) == 0 {
		return []Rule{{}}, nil
	}

	var out []Rule
	pods, err := c.peerPods(namespace, peers)
	errs := []error{err}
	if len(pods) > 0 {
		var addresses []string
		for _, p := range pods {
			addresses = append(addresses, p.Status.PodIP)
		}

		out = append(out, Rule{Set: c.addSet(addresses)})
	}

	for _, peer := range peers {
		if peer.IPBlock == nil {
			continue
		}

		rule, isIPv4, err := compileBlock(*peer.IPBlock)
		errs = append(errs, err)
		if err == nil && isIPv4 {
			out = append(out, rule)
		}
	}

	return out, errors.Join(errs...)
}

// compileBlock returns the rule of a range of addresses. Pods have IPv4 addresses only.
func compileBlock(b IPBlock) (_ Rule, isIPv4 bool, err error) {
	block, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return Rule{}, false, fmt.Errorf("ipBlock.cidr %q is not a CIDR", b.CIDR)
	}

	out := Rule{Block: block.Masked().String()}
	for _, text := range b.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil {
			return Rule{}, false, fmt.Errorf("ipBlock.except %q is not a CIDR", text)
		}

		out.Except = append(out.Except, except.Masked().String())
	}

	slices.Sort(out.Except)
	out.Except = slices.Compact(out.Except)

	return out, block.Addr().Is4(), nil
}

// peerPods returns the pods that peers select, sorted by address.
func (c *compiler) peerPods(namespace string, peers []PolicyPeer) ([]Pod, error) {
	if len(peers) == 0 {
		peers = []PolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}} // all pods
	}

	found := map[string]Pod{}
	var errs []error

	for _, peer := range peers {
		if peer.IPBlock != nil {
			continue
		}

		pods, err := c.podsOfPeer(namespace, peer)
		errs = append(errs, err)
		for _, p := range pods {
			found[p.Status.PodIP] = p
		}
	}

	var out []Pod
	for _, p := range found {
		out = append(out, p)
	}

	slices.SortFunc(out, func(a, b Pod) int { return strings.Compare(a.Status.PodIP, b.Status.PodIP) })

	return out, errors.Join(errs...)
}

// podsOfPeer returns the pods of one peer: of the policy's namespace, unless it selects namespaces.
func (c *compiler) podsOfPeer(namespace string, peer PolicyPeer) ([]Pod, error) {
	selector := metav1.LabelSelector{}
	if peer.PodSelector != nil {
		selector = *peer.PodSelector
	}

	if peer.NamespaceSelector == nil {
		return c.selectPods(namespace, selector)
	}

	matches, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
	if err != nil {
		return nil, err
	}

	var out []Pod
	for _, name := range c.names {
		if !matches.Matches(labels.Set(c.namespaces[name])) {
			continue
		}

		pods, err := c.selectPods(name, selector)
		if err != nil {
			return nil, err
		}

		out = append(out, pods...)
	}

	return out, nil
}

// addSet returns the name of a set with these addresses.
func (c *compiler) addSet(addresses []string) string {
	sorted := slices.Clone(addresses)
	slices.SortFunc(sorted, compareAddresses)
	sorted = slices.Compact(sorted)
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	name := hex.EncodeToString(sum[:setNameBytes])
	c.sets[name] = sorted

	return name
}

// setNameBytes is the length of the hash in the name of a set: 64 bits do not collide by chance.
const setNameBytes = 8

// compareAddresses orders IPv4 addresses by number.
func compareAddresses(a, b string) int {
	left, leftErr := netip.ParseAddr(a)
	right, rightErr := netip.ParseAddr(b)
	if leftErr != nil || rightErr != nil {
		return strings.Compare(a, b)
	}

	return left.Compare(right)
}

// nodes returns the rules of all pods by the nodes that they are on, with the sets that they name.
func (c *compiler) nodes() map[string]NodeRules {
	out := map[string]NodeRules{}
	for _, pods := range c.pods {
		for _, p := range pods {
			rules := c.rules[p.Status.PodIP]
			if rules == nil || p.Spec.NodeName == "" {
				continue
			}

			node := out[p.Spec.NodeName]
			node.Pods = append(node.Pods, *rules)
			out[p.Spec.NodeName] = node
		}
	}

	for name, node := range out {
		slices.SortFunc(node.Pods, func(a, b PodRules) int { return compareAddresses(a.Address, b.Address) })
		node.Pods = slices.CompactFunc(node.Pods, func(a, b PodRules) bool { return a.Address == b.Address })
		node.Sets = c.usedSets(node.Pods)
		out[name] = node
	}

	return out
}

// usedSets returns the sets that rules name.
func (c *compiler) usedSets(pods []PodRules) map[string][]string {
	out := map[string][]string{}
	for _, p := range pods {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			if r.Set != "" {
				out[r.Set] = c.sets[r.Set]
			}
		}
	}

	return out
}

// splitPorts separates ports with a name from others.
func splitPorts(ports []PolicyPort) (byNumber, byName []PolicyPort) {
	for _, p := range ports {
		if p.Port != nil && p.Port.Type == intstr.String {
			byName = append(byName, p)
		} else {
			byNumber = append(byNumber, p)
		}
	}

	return byNumber, byName
}

// resolvePorts returns the numbers of ports in a pod, sorted. allowed is false if there are ports and none has a number in
// the pod: then nothing is allowed. No ports allow all.
func resolvePorts(ports []PolicyPort, pod Pod) (_ []Ports, allowed bool) {
	var out []Ports
	for _, p := range ports {
		protocol := strings.ToLower(cmp.Or(p.Protocol, "TCP"))

		switch {
		case p.Port == nil:
			out = append(out, Ports{Protocol: protocol})

		case p.Port.Type == intstr.String:
			out = append(out, findNamedPorts(pod, p.Port.StrVal, protocol)...)

		default:
			last := p.Port.IntValue()
			if p.EndPort != nil {
				last = int(*p.EndPort)
			}

			out = append(out, Ports{Protocol: protocol, First: p.Port.IntValue(), Last: last})
		}
	}

	slices.SortFunc(out, func(a, b Ports) int {
		return cmp.Or(strings.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})

	return slices.Compact(out), len(ports) == 0 || len(out) > 0
}

// findNamedPorts returns the ports of a pod with a name.
func findNamedPorts(pod Pod, name, protocol string) []Ports {
	var out []Ports
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, p := range c.Ports {
			if p.Name == name && strings.ToLower(cmp.Or(p.Protocol, "TCP")) == protocol {
				out = append(out, Ports{Protocol: protocol, First: p.ContainerPort, Last: p.ContainerPort})
			}
		}
	}

	return out
}
