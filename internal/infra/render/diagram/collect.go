// SPDX-License-Identifier: Apache-2.0

// Package diagram draws a graph as an SVG image: zones, subnets, groups, load balancers and the permitted
// connections. It knows the kinds of resources, but not the AWS SDK, the network or manifests.
package diagram

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// RenderSVG returns the SVG image of g. The same graph gives the same bytes.
func RenderSVG(g *graph.Graph) []byte { return drawSVG(collectDiagram(g)) }

const anyIPv4 = "0.0.0.0/0"

// diagramData is the content of the image, without positions.
type diagramData struct {
	cluster, network string
	subnets          []subnet
	balancers        []balancer
	flows            []flow
	notes            []string // resources that are not drawn, such as "3 × vpc-endpoint"
}

// subnet is a box in the column of its zone.
type subnet struct {
	name, zone, cidr, kind string
	items                  []item
}

// item is a box in a subnet.
type item struct {
	title, detail, role string
	key                 string // the same for all boxes of one group
}

// balancer is a load balancer and the groups that it forwards to.
type balancer struct {
	name, scheme string
	ports        []string
	groups       []string // keys of items
}

// flow is a permitted connection between security groups or CIDR ranges.
type flow struct{ from, to, ports string }

// collector finds the subnets while a diagram is collected.
type collector struct {
	graph   *graph.Graph
	subnets map[string]*subnet
	order   []string
}

func collectDiagram(g *graph.Graph) diagramData {
	l := &collector{graph: g, subnets: map[string]*subnet{}}
	p := diagramData{}
	for _, n := range g.Nodes() {
		switch r := n.Resource.(type) {
		case awskind.VPC:
			p.network = "VPC " + r.CIDR
		case awskind.Subnet:
			l.addSubnet(string(n.Addr), subnet{
				name: n.Name,
				zone: r.Zone,
				cidr: r.CIDR,
				kind: "no egress",
			})
		}
	}

	l.setSubnetKinds()

	for _, n := range g.Nodes() {
		switch r := n.Resource.(type) {
		case awskind.NATGateway:
			l.subnetOf(r.Subnet).addItem(item{
				title:  "NAT gateway",
				detail: n.Name,
				role:   "nat",
				key:    string(n.Addr),
			})

		case awskind.AutoScalingGroup:
			l.addGroup(n, r)
		case awskind.LoadBalancer:
			p.balancers = append(p.balancers, l.newBalancer(n, r))
		}

		if id := existingVPC(n.Resource); id != "" {
			p.network = "VPC " + id + " (existing)"
		}

		if t := tagsOf(n.Resource); t[awskind.TagCluster] != "" {
			p.cluster = t[awskind.TagCluster]
		}
	}

	for _, key := range l.order {
		p.subnets = append(p.subnets, *l.subnets[key])
	}

	slices.SortStableFunc(
		p.balancers,
		func(a, b balancer) int { return strings.Compare(b.scheme, a.scheme) },
	) // internet-facing first

	p.flows = collectFlows(g)
	p.notes = countNotDrawn(g)

	return p
}

// existingVPC returns the id of the unmanaged VPC that r refers to; empty if there is none.
func existingVPC(r graph.Resource) string {
	for _, ref := range graph.References(r) {
		if ref.KindName() == (awskind.VPC{}).Kind().Name && ref.Addr() == "" && ref.Literal() != "" {
			return ref.Literal()
		}
	}

	return ""
}

func (l *collector) addSubnet(key string, s subnet) *subnet {
	if l.subnets[key] == nil {
		l.subnets[key] = &s
		l.order = append(l.order, key)
	}

	return l.subnets[key]
}

// subnetOf returns the subnet that ref refers to. Of an unmanaged subnet only the id is known.
func (l *collector) subnetOf(ref graph.Ref[awskind.Subnet]) *subnet {
	if ref.Addr() == "" {
		return l.addSubnet(
			ref.Literal(),
			subnet{name: ref.Literal(), zone: "existing subnets", kind: "existing"},
		)
	}

	return l.subnets[string(ref.Addr())]
}

func (s *subnet) addItem(i item) { s.items = append(s.items, i) }

// setSubnetKinds sets the kind of each subnet by its default route.
func (l *collector) setSubnetKinds() {
	kinds := map[graph.Addr]string{}
	for _, n := range l.graph.Nodes() {
		r, ok := n.Resource.(awskind.Route)
		if !ok || r.Destination != anyIPv4 {
			continue
		}

		switch {
		case r.NAT != (graph.Ref[awskind.NATGateway]{}):
			kinds[r.Table.Addr()] = "private, egress by NAT"
		case r.Gateway != (graph.Ref[awskind.InternetGateway]{}):
			kinds[r.Table.Addr()] = "public"
		}
	}

	for _, n := range l.graph.Nodes() {
		if r, ok := n.Resource.(awskind.RouteTableAssociation); ok && kinds[r.Table.Addr()] != "" {
			l.subnetOf(r.Subnet).kind = kinds[r.Table.Addr()]
		}
	}
}

// addGroup adds a box to each subnet in which the group can have machines.
func (l *collector) addGroup(n *graph.Node, r awskind.AutoScalingGroup) {
	i := item{title: n.Name, role: r.Tags[awskind.TagRole], key: string(n.Addr)}
	size := fmt.Sprintf("%d–%d", r.MinSize, r.MaxSize)
	if r.MinSize == r.MaxSize {
		size = strconv.Itoa(r.MinSize)
	}

	i.detail = size + " machine"
	if r.MaxSize != 1 {
		i.detail += "s"
	}

	if len(r.Subnets) > 1 {
		i.detail += fmt.Sprintf(" over %d subnets", len(r.Subnets))
	}

	template := r.Template.ID
	if template.Addr() == "" {
		template = r.MixedInstances.Launch.Template.ID
	}

	if t, ok := l.resourceAt(template.Addr()).(awskind.LaunchTemplate); ok {
		i.title += " · " + t.Data.InstanceType
	}

	if slot := r.Tags[awskind.TagSlot]; slot != "" {
		i.detail += l.describeVolume(slot)
	}

	for _, ref := range r.Subnets {
		l.subnetOf(ref).addItem(i)
	}
}

// describeVolume describes the etcd volume of a slot.
func (l *collector) describeVolume(slot string) string {
	for _, n := range l.graph.Nodes() {
		if v, ok := n.Resource.(awskind.Volume); ok && v.Tags[awskind.TagSlot] == slot {
			return fmt.Sprintf(" + %s %d GiB %s", n.Name, v.Size, v.VolumeType)
		}
	}

	return ""
}

func (l *collector) resourceAt(addr graph.Addr) graph.Resource {
	if n := l.graph.Node(addr); n != nil {
		return n.Resource
	}

	return nil
}

func (l *collector) newBalancer(n *graph.Node, r awskind.LoadBalancer) balancer {
	b := balancer{name: n.Name, scheme: r.Scheme}
	for _, m := range l.graph.Nodes() {
		ln, ok := m.Resource.(awskind.Listener)
		if !ok || ln.LoadBalancer.Addr() != n.Addr {
			continue
		}

		for _, a := range ln.DefaultActions {
			port := strconv.Itoa(ln.Port)
			if t, ok := l.resourceAt(a.TargetGroup.Addr()).(awskind.TargetGroup); ok && t.Port != ln.Port {
				port += fmt.Sprintf(" → %d", t.Port)
			}

			b.ports = append(b.ports, port)
			b.groups = append(b.groups, l.groupsBehind(a.TargetGroup.Addr())...)
		}
	}

	slices.Sort(b.groups)
	b.groups = slices.Compact(b.groups)

	return b
}

// groupsBehind returns the groups whose machines are targets of a target group.
func (l *collector) groupsBehind(target graph.Addr) []string {
	var out []string
	for _, n := range l.graph.Nodes() {
		r, ok := n.Resource.(awskind.AutoScalingGroup)
		if !ok {
			continue
		}

		for _, t := range r.TargetGroups {
			if t.Addr() == target {
				out = append(out, string(n.Addr))
			}
		}
	}

	return out
}

// collectFlows joins the security group rules: one flow for each source and destination, with all ports.
func collectFlows(g *graph.Graph) []flow {
	ports := map[[2]string][]string{}
	add := func(from, to, port string) {
		key := [2]string{from, to}
		if from != "" && to != "" && !slices.Contains(ports[key], port) {
			ports[key] = append(ports[key], port)
		}
	}

	for _, n := range g.Nodes() {
		switch r := n.Resource.(type) {
		case awskind.SecurityGroupIngress:
			peer := peerName(r.Source, r.CIDR, r.CIDRv6, r.PrefixList)
			add(peer, groupName(r.Group), portText(r.Protocol, r.FromPort, r.ToPort))
		case awskind.SecurityGroupEgress:
			if r.Destination == (graph.Ref[awskind.SecurityGroup]{}) {
				peer := peerName(r.Destination, r.CIDR, r.CIDRv6, r.PrefixList)
				add(groupName(r.Group), peer, portText(r.Protocol, r.FromPort, r.ToPort))
			}
		}
	}

	var out []flow
	for key, list := range ports {
		out = append(out, flow{from: key[0], to: key[1], ports: strings.Join(list, ", ")})
	}

	slices.SortFunc(
		out,
		func(a, b flow) int { return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to)) },
	)

	return out
}

func groupName(r graph.Ref[awskind.SecurityGroup]) string {
	_, name, _ := strings.Cut(string(r.Addr()), "/")
	return cmp.Or(name, r.Literal())
}

func peerName(r graph.Ref[awskind.SecurityGroup], others ...string) string {
	name := cmp.Or(groupName(r), cmp.Or(others...))
	if name == anyIPv4 {
		return "anywhere (" + anyIPv4 + ")"
	}

	return name
}

func portText(protocol string, from, to int) string {
	switch {
	case protocol == "-1":
		return "all"
	case protocol == "icmp":
		return fmt.Sprintf("icmp %d/%d", from, to)
	case from == to:
		return fmt.Sprintf("%s %d", protocol, from)
	}

	return fmt.Sprintf("%s %d–%d", protocol, from, to)
}

// isDrawn reports whether a kind is shown as a box or line, or only connects others and is not worth a note.
func isDrawn(r graph.Resource) bool {
	switch r.(type) {
	case awskind.VPC, awskind.Subnet, awskind.NATGateway, awskind.GatewayAttachment,
		awskind.Route, awskind.RouteTable, awskind.RouteTableAssociation,
		awskind.LoadBalancer, awskind.Listener, awskind.TargetGroup,
		awskind.SecurityGroup, awskind.SecurityGroupIngress, awskind.SecurityGroupEgress,
		awskind.AutoScalingGroup, awskind.LaunchTemplate, awskind.Volume,
		awskind.IAMRolePolicy, awskind.InstanceProfile, awskind.KMSAlias:
		return true
	}

	return false
}

// countNotDrawn returns the number of resources of each kind that is not drawn.
func countNotDrawn(g *graph.Graph) []string {
	count := map[string]int{}
	var order []string
	for _, n := range g.Nodes() {
		if isDrawn(n.Resource) {
			continue
		}

		name := n.Resource.Kind().Name
		if count[name]++; count[name] == 1 {
			order = append(order, name)
		}
	}

	slices.Sort(order)
	for i, name := range order {
		order[i] = fmt.Sprintf("%d × %s", count[name], name)
	}

	return order
}

// tagsOf returns the tags of a resource; nil if its kind has none.
func tagsOf(r graph.Resource) map[string]string {
	for _, f := range graph.Fields(r) {
		if !f.IsTags {
			continue
		}

		out := map[string]string{}
		if m, ok := f.Value.(map[string]any); ok {
			for k, v := range m {
				out[k] = fmt.Sprint(v)
			}
		}

		return out
	}

	return nil
}
