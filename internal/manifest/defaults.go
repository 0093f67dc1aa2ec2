// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// DefaultKubernetesVersion is what kops recommends of the newest minor (assets: kubernetes.recommended_by_kops) and
// what the asset catalogue holds.
const DefaultKubernetesVersion = "1.36.3"

// controlPlaneTaint keeps ordinary pods from control-plane machines, as kubeadm's does.
const controlPlaneTaint = "node-role.kubernetes.io/control-plane=:NoSchedule"

// DefaultRule is the default of one field. Every default there is, is a Rule; the reference of fields is made from them.
type DefaultRule struct {
	// Kind and Path of the field, such as Cluster and spec.networking.podCIDR.
	Kind, Path string
	// Description is the default in words.
	Description string
	apply       func(*Set)
}

// Default fills every field that is unset. It is idempotent.
func Default(s Set) Set {
	s = s.clone()
	for _, r := range DefaultRules() {
		r.apply(&s)
	}

	return s
}

// clone copies what the rules write through.
func (s Set) clone() Set {
	s.Cluster.Spec.Networking.Subnets = slices.Clone(s.Cluster.Spec.Networking.Subnets)
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		labels := map[string]string{}
		maps.Copy(labels, s.Groups[i].Metadata.Labels)
		s.Groups[i].Metadata.Labels = labels
	}

	return s
}

// DefaultRules lists the defaults in the order in which they apply: later ones read what earlier ones set.
func DefaultRules() []DefaultRule { return append(clusterDefaultRules(), groupDefaultRules()...) }

func clusterDefaultRules() []DefaultRule {
	return []DefaultRule{
		newTextRule(
			"spec.kubernetesVersion",
			DefaultKubernetesVersion,
			func(c *v1alpha1.ClusterSpec) *string { return &c.KubernetesVersion },
		),
		{
			v1alpha1.KindCluster,
			"spec.cloudProvider.aws.region",
			"the region of the subnets' zones",
			defaultRegion,
		},
		newTextRule(
			"spec.networking.networkCIDR",
			"10.80.0.0/16",
			func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.NetworkCIDR },
		),
		newTextRule(
			"spec.networking.podCIDR",
			"10.244.0.0/16",
			func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.PodCIDR },
		),
		newTextRule("spec.networking.serviceClusterIPRange", "10.96.0.0/16",
			func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.ServiceClusterIPRange }),
		newTextRule(
			"spec.networking.cni",
			"flannel",
			func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.CNI },
		),
		newTextRule(
			"spec.networking.natGateways",
			NATPerZone,
			func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.NATGateways },
		),
		{
			v1alpha1.KindCluster, "spec.networking.vpcEndpoints",
			strings.Join(
				isolatedEndpoints(),
				", ",
			) + " if natGateways is None and there are Private subnets to be made", defaultEndpoints,
		},
		newTextRule(
			"spec.networking.dnsDomain",
			"cluster.local",
			func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.DNSDomain },
		),
		{
			v1alpha1.KindCluster, "spec.networking.subnets[].cidr",
			"the lowest free range of networkCIDR: a sixteenth of it (a /20 of a /16) for a subnet of machines, a 256th (a /24) for a Utility one, and for a Public one beside Private ones",
			assignSubnetRanges,
		},
		newTextRule(
			"spec.api.loadBalancer.type",
			LoadBalancerPublic,
			func(c *v1alpha1.ClusterSpec) *string { return &c.API.LoadBalancer.Type },
		),
		{
			v1alpha1.KindCluster,
			"spec.topology.bastion.loadBalancer.type",
			"Public if there is a group of role Bastion",
			defaultBastion,
		},
		{
			v1alpha1.KindCluster,
			"spec.api.publicName",
			"api.NAME.ZONE if spec.dnsZone is the name of a zone",
			defaultPublicName,
		},
		{
			v1alpha1.KindCluster,
			"spec.api.access",
			"0.0.0.0/0 if spec.api.loadBalancer.type is Public or ElasticIP",
			defaultAccess,
		},
		newTextRule(
			"spec.etcd.volume.type",
			"gp3",
			func(c *v1alpha1.ClusterSpec) *string { return &c.Etcd.Volume.Type },
		),
		newNumberRule(
			"spec.etcd.volume.size",
			20,
			func(c *v1alpha1.ClusterSpec) *int { return &c.Etcd.Volume.Size },
		),
		{
			v1alpha1.KindCluster,
			"spec.etcd.volume.iops",
			gp3IOPSText,
			func(s *Set) { defaultGP3(&s.Cluster.Spec.Etcd.Volume) },
		},
		{
			v1alpha1.KindCluster,
			"spec.etcd.volume.throughput",
			gp3ThroughputText,
			func(s *Set) { defaultGP3(&s.Cluster.Spec.Etcd.Volume) },
		},
		newNumberRule(
			"spec.etcd.heartbeatIntervalMS",
			100,
			func(c *v1alpha1.ClusterSpec) *int { return &c.Etcd.HeartbeatIntervalMS },
		),
		newNumberRule(
			"spec.etcd.electionTimeoutMS",
			1000,
			func(c *v1alpha1.ClusterSpec) *int { return &c.Etcd.ElectionTimeoutMS },
		),
	}
}

const (
	gp3IOPSText       = "3000 for gp3, which its price includes; for io1 and io2 it must be given"
	gp3ThroughputText = "125 for gp3, which its price includes"
	gp3IncludedIOPS   = 3000
	gp3IncludedMiBs   = 125
)

func groupDefaultRules() []DefaultRule {
	eachVolume := func(g *v1alpha1.InstanceGroup, _ *Set) {
		v := toVolume(g.Spec.RootVolume)
		defaultGP3(&v)
		g.Spec.RootVolume.IOPS = v.IOPS
		g.Spec.RootVolume.Throughput = v.Throughput
	}

	return []DefaultRule{
		newGroupRule("metadata.labels", "slipway.dev/cluster: the cluster's name", defaultClusterLabel),
		newGroupRule(
			"spec.machineType",
			"the first of mixedInstancesPolicy.instances; else t3.large, t3.micro for a bastion",
			defaultMachineType,
		),
		newGroupRule(
			"spec.mixedInstancesPolicy.onDemandAllocationStrategy",
			"prioritized if mixedInstancesPolicy has instances",
			defaultMixed,
		),
		newGroupRule(
			"spec.mixedInstancesPolicy.spotAllocationStrategy",
			"price-capacity-optimized if mixedInstancesPolicy has instances",
			defaultMixed,
		),
		newGroupRule(
			"spec.image",
			"debian-12; a distribution's name stands for the image that it publishes for machineType's architecture",
			defaultImage,
		),
		newGroupRule(
			"spec.userDataFormat",
			"Ignition for an image with flatcar in its name, else CloudInit",
			defaultFormat,
		),
		newGroupRule("spec.warmPool.poolState", "Stopped if warmPool has a size", defaultWarmPool),
		newGroupRule(
			"spec.minSize",
			"3 for a control plane, 2 for workers, 1 for a bastion",
			func(g *v1alpha1.InstanceGroup, _ *Set) {
				setDefaultNumber(
					&g.Spec.MinSize,
					map[v1alpha1.Role]int{v1alpha1.RoleControlPlane: 3, v1alpha1.RoleWorker: 2, v1alpha1.RoleBastion: 1}[g.Spec.Role],
				)
			},
		),
		newGroupRule(
			"spec.maxSize",
			"minSize",
			func(g *v1alpha1.InstanceGroup, _ *Set) { setDefaultNumber(&g.Spec.MaxSize, g.Spec.MinSize) },
		),
		newGroupRule(
			"spec.subnets",
			"every Private subnet; without one, every Public one",
			defaultGroupSubnets,
		),
		newGroupRule(
			"spec.rootVolume.type",
			"gp3",
			func(g *v1alpha1.InstanceGroup, _ *Set) { setDefaultText(&g.Spec.RootVolume.Type, "gp3") },
		),
		newGroupRule("spec.rootVolume.size", "64; 16 for a bastion", defaultRootSize),
		newGroupRule("spec.rootVolume.iops", gp3IOPSText, eachVolume),
		newGroupRule("spec.rootVolume.throughput", gp3ThroughputText, eachVolume),
		newGroupRule(
			"spec.taints",
			controlPlaneTaint+" for a control plane beside workers; without workers it runs everything",
			func(g *v1alpha1.InstanceGroup, s *Set) {
				if len(g.Spec.Taints) == 0 && g.Spec.Role == v1alpha1.RoleControlPlane &&
					(hasWorkers(*s) || s.Cluster.Spec.API.LoadBalancer.Type != LoadBalancerElasticIP) {
					g.Spec.Taints = []string{controlPlaneTaint}
				}
			},
		),
		newGroupRule(
			"spec.instanceMetadata.httpPutResponseHopLimit",
			"1, which keeps the metadata service from pods",
			func(g *v1alpha1.InstanceGroup, _ *Set) {
				setDefaultNumber(&g.Spec.InstanceMetadata.HTTPPutResponseHopLimit, 1)
			},
		),
	}
}

func hasWorkers(s Set) bool {
	return slices.ContainsFunc(
		s.Groups,
		func(g v1alpha1.InstanceGroup) bool { return g.Spec.Role == v1alpha1.RoleWorker },
	)
}

func newTextRule(path, value string, field func(*v1alpha1.ClusterSpec) *string) DefaultRule {
	return DefaultRule{
		v1alpha1.KindCluster,
		path,
		value,
		func(s *Set) { setDefaultText(field(&s.Cluster.Spec), value) },
	}
}

func newNumberRule(path string, value int, field func(*v1alpha1.ClusterSpec) *int) DefaultRule {
	return DefaultRule{
		v1alpha1.KindCluster,
		path,
		strconv.Itoa(value),
		func(s *Set) { setDefaultNumber(field(&s.Cluster.Spec), value) },
	}
}

func newGroupRule(path, text string, apply func(*v1alpha1.InstanceGroup, *Set)) DefaultRule {
	return DefaultRule{v1alpha1.KindInstanceGroup, path, text, func(s *Set) {
		for i := range s.Groups {
			apply(&s.Groups[i], s)
		}
	}}
}

func setDefaultText(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func setDefaultNumber(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

func defaultRegion(s *Set) {
	for _, sub := range s.Cluster.Spec.Networking.Subnets {
		if zonePattern().MatchString(sub.Zone) {
			setDefaultText(&s.Cluster.Spec.CloudProvider.AWS.Region, sub.Zone[:len(sub.Zone)-1])
			return
		}
	}
}

func defaultAccess(s *Set) {
	api := &s.Cluster.Spec.API
	if len(api.Access) == 0 && api.LoadBalancer.Type != LoadBalancerInternal {
		api.Access = []string{"0.0.0.0/0"}
	}
}

func defaultGP3(v *v1alpha1.Volume) {
	if v.Type == "gp3" {
		setDefaultNumber(&v.IOPS, gp3IncludedIOPS)
		setDefaultNumber(&v.Throughput, gp3IncludedMiBs)
	}
}

func defaultClusterLabel(g *v1alpha1.InstanceGroup, s *Set) {
	if g.Metadata.Labels == nil {
		g.Metadata.Labels = map[string]string{}
	}

	if _, ok := g.Metadata.Labels[v1alpha1.ClusterLabel]; !ok && s.Cluster.Metadata.Name != "" {
		g.Metadata.Labels[v1alpha1.ClusterLabel] = s.Cluster.Metadata.Name
	}
}

func defaultGroupSubnets(g *v1alpha1.InstanceGroup, s *Set) {
	if len(g.Spec.Subnets) > 0 {
		return
	}

	want := v1alpha1.SubnetPublic
	if hasPrivate(s.Cluster.Spec.Networking.Subnets) {
		want = v1alpha1.SubnetPrivate
	}

	if g.Spec.Role == v1alpha1.RoleBastion &&
		s.Cluster.Spec.Topology.Bastion.LoadBalancer.Type == LoadBalancerNone {
		want = v1alpha1.SubnetPublic
	}

	for _, sub := range s.Cluster.Spec.Networking.Subnets {
		if sub.Type == want && sub.Name != "" {
			g.Spec.Subnets = append(g.Spec.Subnets, sub.Name)
		}
	}
}

func hasPrivate(subnets []v1alpha1.Subnet) bool {
	return slices.ContainsFunc(
		subnets,
		func(s v1alpha1.Subnet) bool { return s.Type == v1alpha1.SubnetPrivate },
	)
}

// isolatedEndpoints are the services that machines call (their agent, the registry, controllers in the cluster), and
// that they reach in no other way where there is no NAT.
func isolatedEndpoints() []string {
	return []string{
		"s3",
		"autoscaling",
		"ec2",
		"ecr.api",
		"ecr.dkr",
		"elasticloadbalancing",
		"kms",
		"ssm",
		"sts",
	}
}

func defaultEndpoints(s *Set) {
	n := &s.Cluster.Spec.Networking
	isolated := slices.ContainsFunc(n.Subnets, func(s v1alpha1.Subnet) bool {
		return s.Type == v1alpha1.SubnetPrivate && s.ID == "" && s.Egress == ""
	})
	if n.NATGateways == NATNone && isolated && len(n.VPCEndpoints) == 0 {
		n.VPCEndpoints = isolatedEndpoints()
	}
}

// How many bits longer a subnet's prefix is than the network's, and the longest that AWS allows.
const (
	privateSubnetBits = 4
	publicSubnetBits  = 8
	maxSubnetPrefix   = 28
)

// assignSubnetRanges gives every subnet without a range the lowest free one.
func assignSubnetRanges(s *Set) {
	network, err := netip.ParsePrefix(s.Cluster.Spec.Networking.NetworkCIDR)
	if err != nil || !network.Addr().Is4() {
		return // Validate says so
	}

	subnets := s.Cluster.Spec.Networking.Subnets
	var used []netip.Prefix

	for _, sub := range subnets {
		if p, err := netip.ParsePrefix(sub.CIDR); err == nil {
			used = append(used, p)
		}
	}

	for i := range subnets {
		if subnets[i].CIDR != "" || subnets[i].ID != "" {
			continue
		}

		bits := network.Bits() + privateSubnetBits
		if t := subnets[i].Type; t == v1alpha1.SubnetUtility ||
			t == v1alpha1.SubnetPublic && hasPrivate(subnets) {
			bits = network.Bits() + publicSubnetBits
		}

		if p, ok := findFreeBlock(network, min(bits, maxSubnetPrefix), used); ok {
			subnets[i].CIDR = p.String()
			used = append(used, p)
		}
	}
}

// findFreeBlock returns the lowest block of a network with that prefix length that overlaps none of used.
func findFreeBlock(network netip.Prefix, bits int, used []netip.Prefix) (netip.Prefix, bool) {
	block := netip.PrefixFrom(network.Masked().Addr(), bits)
	for bits >= network.Bits() && network.Contains(block.Addr()) {
		if !slices.ContainsFunc(used, block.Overlaps) {
			return block, true
		}

		next, ok := nextBlock(block)
		if !ok {
			break
		}

		block = next
	}

	return netip.Prefix{}, false
}

// nextBlock returns the next block of the same size.
func nextBlock(p netip.Prefix) (netip.Prefix, bool) {
	b := p.Addr().As4()
	n := binary.BigEndian.Uint32(b[:])
	next := n + 1<<(32-p.Bits())
	binary.BigEndian.PutUint32(b[:], next)

	return netip.PrefixFrom(netip.AddrFrom4(b), p.Bits()), next > n // else past the last address
}

// zoneLetter shortens a zone to its letter: us-east-1a is a.
func zoneLetter(zone string) string { return zone[strings.LastIndexAny(zone, "0123456789")+1:] }
