// SPDX-License-Identifier: Apache-2.0

// Package diagram draws a graph as an SVG picture: zones, subnets, groups, load balancers and who may speak to whom.
// It knows the kinds of resources, but no SDK, no network and no manifest.
package diagram

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind" //nolint:depguard // the rule means the drivers in internal/infra/aws; a picture shows kinds
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Render returns the picture of g. The same graph gives the same bytes.
func Render(g *graph.Graph) []byte { return draw(look(g)) }

const world = "0.0.0.0/0"

// picture is what there is to draw, without a place for it yet.
type picture struct {
	cluster, network string
	subnets          []subnet
	balancers        []balancer
	flows            []flow
	notes            []string // what has no place of its own, such as "3 × vpc-endpoint"
}

// subnet is a box in the column of its zone.
type subnet struct {
	name, zone, cidr, kind string
	items                  []item
}

// item is a box in a subnet.
type item struct {
	title, detail, role string
	key                 string // equal for the boxes of one group
}

// balancer sends what arrives at its ports to groups.
type balancer struct {
	name, scheme string
	ports        []string
	groups       []string // keys of items
}

// flow is what a security group, or a range, may send to another.
type flow struct{ from, to, ports string }

// looker holds what is asked for again and again.
type looker struct {
	g       *graph.Graph
	subnets map[string]*subnet
	order   []string
}

func look(g *graph.Graph) picture {
	l := &looker{g: g, subnets: map[string]*subnet{}}
	p := picture{}
	for _, n := range g.Nodes() {
		switch r := n.Resource.(type) {
		case awskind.VPC:
			p.network = "VPC " + r.CIDR
		case awskind.Subnet:
			l.subnet(string(n.Addr), subnet{name: n.Name, zone: r.Zone, cidr: r.CIDR, kind: "no way out"})
		}
	}
	l.routes()
	for _, n := range g.Nodes() {
		switch r := n.Resource.(type) {
		case awskind.NATGateway:
			l.at(r.Subnet).add(item{title: "NAT gateway", detail: n.Name, role: "nat", key: string(n.Addr)})
		case awskind.AutoScalingGroup:
			l.group(n, r)
		case awskind.LoadBalancer:
			p.balancers = append(p.balancers, l.balancer(n, r))
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
	slices.SortStableFunc(p.balancers, func(a, b balancer) int { return strings.Compare(b.scheme, a.scheme) }) // the world's first
	p.flows, p.notes = flows(g), notes(g)
	return p
}

// existingVPC is the VPC that r points at, if the graph does not make it.
func existingVPC(r graph.Resource) string {
	for _, ref := range graph.Pointers(r) {
		if ref.TargetKind() == (awskind.VPC{}).Kind().Name && ref.Addr() == "" && ref.Literal() != "" {
			return ref.Literal()
		}
	}
	return ""
}

func (l *looker) subnet(key string, s subnet) *subnet {
	if l.subnets[key] == nil {
		l.subnets[key] = &s
		l.order = append(l.order, key)
	}
	return l.subnets[key]
}

// at returns the subnet that ref points at. Of one that was there before, only the identity is known.
func (l *looker) at(ref graph.Ref[awskind.Subnet]) *subnet {
	if ref.Addr() == "" {
		return l.subnet(ref.Literal(), subnet{name: ref.Literal(), zone: "existing subnets", kind: "existing"})
	}
	return l.subnets[string(ref.Addr())]
}

func (s *subnet) add(i item) { s.items = append(s.items, i) }

// routes tells which subnets lead out, and how.
func (l *looker) routes() {
	kinds := map[graph.Addr]string{}
	for _, n := range l.g.Nodes() {
		r, ok := n.Resource.(awskind.Route)
		if !ok || r.Destination != world {
			continue
		}
		switch {
		case r.NAT != (graph.Ref[awskind.NATGateway]{}):
			kinds[r.Table.Addr()] = "private, out by NAT"
		case r.Gateway != (graph.Ref[awskind.InternetGateway]{}):
			kinds[r.Table.Addr()] = "public"
		}
	}
	for _, n := range l.g.Nodes() {
		if r, ok := n.Resource.(awskind.RouteTableAssociation); ok && kinds[r.Table.Addr()] != "" {
			l.at(r.Subnet).kind = kinds[r.Table.Addr()]
		}
	}
}

// group puts a box into each subnet that the group's machines may be in.
func (l *looker) group(n *graph.Node, r awskind.AutoScalingGroup) {
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
		template = r.Mixed.Launch.Template.ID
	}
	if t, ok := l.resource(template.Addr()).(awskind.LaunchTemplate); ok {
		i.title += " · " + t.Data.InstanceType
	}
	if slot := r.Tags[awskind.TagSlot]; slot != "" {
		i.detail += l.volume(slot)
	}
	for _, ref := range r.Subnets {
		l.at(ref).add(i)
	}
}

// volume describes the volume that the machine of a slot attaches.
func (l *looker) volume(slot string) string {
	for _, n := range l.g.Nodes() {
		if v, ok := n.Resource.(awskind.Volume); ok && v.Tags[awskind.TagSlot] == slot {
			return fmt.Sprintf(" + %s %d GiB %s", n.Name, v.Size, v.VolumeType)
		}
	}
	return ""
}

func (l *looker) resource(addr graph.Addr) graph.Resource {
	if n := l.g.Node(addr); n != nil {
		return n.Resource
	}
	return nil
}

func (l *looker) balancer(n *graph.Node, r awskind.LoadBalancer) balancer {
	b := balancer{name: n.Name, scheme: r.Scheme}
	for _, m := range l.g.Nodes() {
		ln, ok := m.Resource.(awskind.Listener)
		if !ok || ln.LoadBalancer.Addr() != n.Addr {
			continue
		}
		for _, a := range ln.DefaultActions {
			port := strconv.Itoa(ln.Port)
			if t, ok := l.resource(a.TargetGroup.Addr()).(awskind.TargetGroup); ok && t.Port != ln.Port {
				port += fmt.Sprintf(" → %d", t.Port)
			}
			b.ports = append(b.ports, port)
			b.groups = append(b.groups, l.behind(a.TargetGroup.Addr())...)
		}
	}
	slices.Sort(b.groups)
	b.groups = slices.Compact(b.groups)
	return b
}

// behind lists the groups whose machines are targets.
func (l *looker) behind(target graph.Addr) []string {
	var out []string
	for _, n := range l.g.Nodes() {
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

// flows joins the rules of security groups: each line says all that one may send to another.
func flows(g *graph.Graph) []flow {
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
			add(peer(r.Source, r.CIDR, r.CIDRv6, r.PrefixList), groupName(r.Group), portText(r.Protocol, r.FromPort, r.ToPort))
		case awskind.SecurityGroupEgress:
			if r.Destination == (graph.Ref[awskind.SecurityGroup]{}) {
				add(groupName(r.Group), peer(r.Destination, r.CIDR, r.CIDRv6, r.PrefixList), portText(r.Protocol, r.FromPort, r.ToPort))
			}
		}
	}
	var out []flow
	for key, list := range ports {
		out = append(out, flow{from: key[0], to: key[1], ports: strings.Join(list, ", ")})
	}
	slices.SortFunc(out, func(a, b flow) int { return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to)) })
	return out
}

func groupName(r graph.Ref[awskind.SecurityGroup]) string {
	_, name, _ := strings.Cut(string(r.Addr()), "/")
	return cmp.Or(name, r.Literal())
}

func peer(r graph.Ref[awskind.SecurityGroup], others ...string) string {
	name := cmp.Or(groupName(r), cmp.Or(others...))
	if name == world {
		return "anywhere (" + world + ")"
	}
	return name
}

func portText(protocol string, from, to int) string {
	switch {
	case protocol == "-1":
		return "all"
	case from == to:
		return fmt.Sprintf("%s %d", protocol, from)
	}
	return fmt.Sprintf("%s %d–%d", protocol, from, to)
}

// drawn tells whether a kind is shown as a box or line, or is only what holds others together.
func drawn(r graph.Resource) bool {
	switch r.(type) {
	case awskind.VPC, awskind.Subnet, awskind.NATGateway, awskind.AutoScalingGroup, awskind.LoadBalancer, awskind.Listener,
		awskind.TargetGroup, awskind.Route, awskind.RouteTable, awskind.RouteTableAssociation, awskind.GatewayAttachment,
		awskind.SecurityGroup, awskind.SecurityGroupIngress, awskind.SecurityGroupEgress, awskind.LaunchTemplate,
		awskind.Volume, awskind.RolePolicy, awskind.InstanceProfile, awskind.Alias:
		return true
	}
	return false
}

// notes counts what is not drawn, by kind.
func notes(g *graph.Graph) []string {
	count := map[string]int{}
	var order []string
	for _, n := range g.Nodes() {
		if drawn(n.Resource) {
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

// tagsOf returns the tags of a resource that has some.
func tagsOf(r graph.Resource) map[string]string {
	for _, f := range graph.Fields(r) {
		if !f.Tags {
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
