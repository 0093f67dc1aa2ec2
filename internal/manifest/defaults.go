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

// Rule is the default of one field. Every default there is, is a Rule; the reference of fields is made from them.
type Rule struct {
	// Kind and Path of the field, such as Cluster and spec.networking.podCIDR.
	Kind, Path string
	// Text is the default in words.
	Text  string
	apply func(*Set)
}

// Default fills every field that is unset. It is idempotent.
func Default(s Set) Set {
	s = s.clone()
	for _, r := range Rules() {
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

// Rules lists the defaults in the order in which they apply: later ones read what earlier ones set.
func Rules() []Rule { return append(clusterRules(), groupRules()...) }

func clusterRules() []Rule {
	return []Rule{
		clusterText("spec.kubernetesVersion", DefaultKubernetesVersion, func(c *v1alpha1.ClusterSpec) *string { return &c.KubernetesVersion }),
		{v1alpha1.KindCluster, "spec.cloudProvider.aws.region", "the region of the subnets' zones", defaultRegion},
		clusterText("spec.networking.networkCIDR", "10.80.0.0/16", func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.NetworkCIDR }),
		clusterText("spec.networking.podCIDR", "10.244.0.0/16", func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.PodCIDR }),
		clusterText("spec.networking.serviceClusterIPRange", "10.96.0.0/16",
			func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.ServiceClusterIPRange }),
		clusterText("spec.networking.cni", "flannel", func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.CNI }),
		clusterText("spec.networking.natGateways", NATPerZone, func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.NATGateways }),
		{
			v1alpha1.KindCluster, "spec.networking.vpcEndpoints",
			strings.Join(isolatedEndpoints(), ", ") + " if natGateways is None and there are Private subnets to be made", defaultEndpoints,
		},
		clusterText("spec.networking.dnsDomain", "cluster.local", func(c *v1alpha1.ClusterSpec) *string { return &c.Networking.DNSDomain }),
		{
			v1alpha1.KindCluster, "spec.networking.subnets[].cidr",
			"the lowest free range of networkCIDR: a sixteenth of it (a /20 of a /16) for a subnet of machines, a 256th (a /24) for a Utility one, and for a Public one beside Private ones",
			carveSubnets,
		},
		clusterText("spec.api.loadBalancer.type", LoadBalancerPublic, func(c *v1alpha1.ClusterSpec) *string { return &c.API.LoadBalancer.Type }),
		{v1alpha1.KindCluster, "spec.topology.bastion.loadBalancer.type", "Public if there is a group of role Bastion", defaultBastion},
		{v1alpha1.KindCluster, "spec.api.publicName", "api.NAME.ZONE if spec.dnsZone is the name of a zone", defaultPublicName},
		{v1alpha1.KindCluster, "spec.api.access", "0.0.0.0/0 if spec.api.loadBalancer.type is Public or ElasticIP", defaultAccess},
		clusterText("spec.etcd.volume.type", "gp3", func(c *v1alpha1.ClusterSpec) *string { return &c.Etcd.Volume.Type }),
		clusterNumber("spec.etcd.volume.size", 20, func(c *v1alpha1.ClusterSpec) *int { return &c.Etcd.Volume.Size }),
		{v1alpha1.KindCluster, "spec.etcd.volume.iops", gp3IOPSText, func(s *Set) { defaultGP3(&s.Cluster.Spec.Etcd.Volume) }},
		{v1alpha1.KindCluster, "spec.etcd.volume.throughput", gp3ThroughputText, func(s *Set) { defaultGP3(&s.Cluster.Spec.Etcd.Volume) }},
		clusterNumber("spec.etcd.heartbeatIntervalMS", 100, func(c *v1alpha1.ClusterSpec) *int { return &c.Etcd.HeartbeatIntervalMS }),
		clusterNumber("spec.etcd.electionTimeoutMS", 1000, func(c *v1alpha1.ClusterSpec) *int { return &c.Etcd.ElectionTimeoutMS }),
	}
}

const (
	gp3IOPSText       = "3000 for gp3, which its price includes; for io1 and io2 it must be given"
	gp3ThroughputText = "125 for gp3, which its price includes"
	gp3IncludedIOPS   = 3000
	gp3IncludedMiBs   = 125
)

func groupRules() []Rule {
	eachVolume := func(g *v1alpha1.InstanceGroup, _ *Set) {
		v := sized(g.Spec.RootVolume)
		defaultGP3(&v)
		g.Spec.RootVolume.IOPS, g.Spec.RootVolume.Throughput = v.IOPS, v.Throughput
	}
	return []Rule{
		groupRule("metadata.labels", "slipway.dev/cluster: the cluster's name", defaultClusterLabel),
		groupRule("spec.machineType", "the first of mixedInstancesPolicy.instances; else t3.large, t3.micro for a bastion", defaultMachineType),
		groupRule("spec.mixedInstancesPolicy.onDemandAllocationStrategy", "prioritized if mixedInstancesPolicy has instances", defaultMixed),
		groupRule("spec.mixedInstancesPolicy.spotAllocationStrategy", "price-capacity-optimized if mixedInstancesPolicy has instances", defaultMixed),
		groupRule("spec.image", "debian-12; a distribution's name stands for the image that it publishes for machineType's architecture", defaultImage),
		groupRule("spec.userDataFormat", "Ignition for an image with flatcar in its name, else CloudInit", defaultFormat),
		groupRule("spec.warmPool.poolState", "Stopped if warmPool has a size", defaultWarmPool),
		groupRule("spec.minSize", "3 for a control plane, 2 for workers, 1 for a bastion", func(g *v1alpha1.InstanceGroup, _ *Set) {
			setNumber(&g.Spec.MinSize, map[v1alpha1.Role]int{v1alpha1.RoleControlPlane: 3, v1alpha1.RoleWorker: 2, v1alpha1.RoleBastion: 1}[g.Spec.Role])
		}),
		groupRule("spec.maxSize", "minSize", func(g *v1alpha1.InstanceGroup, _ *Set) { setNumber(&g.Spec.MaxSize, g.Spec.MinSize) }),
		groupRule("spec.subnets", "every Private subnet; without one, every Public one", defaultGroupSubnets),
		groupRule("spec.rootVolume.type", "gp3", func(g *v1alpha1.InstanceGroup, _ *Set) { setText(&g.Spec.RootVolume.Type, "gp3") }),
		groupRule("spec.rootVolume.size", "64; 16 for a bastion", defaultRootSize),
		groupRule("spec.rootVolume.iops", gp3IOPSText, eachVolume),
		groupRule("spec.rootVolume.throughput", gp3ThroughputText, eachVolume),
		groupRule("spec.taints", controlPlaneTaint+" for a control plane beside workers; without workers it runs everything", func(g *v1alpha1.InstanceGroup, s *Set) {
			if len(g.Spec.Taints) == 0 && g.Spec.Role == v1alpha1.RoleControlPlane && (hasWorkers(*s) || s.Cluster.Spec.API.LoadBalancer.Type != LoadBalancerElastic) {
				g.Spec.Taints = []string{controlPlaneTaint}
			}
		}),
		groupRule("spec.instanceMetadata.httpPutResponseHopLimit", "1, which keeps the metadata service from pods",
			func(g *v1alpha1.InstanceGroup, _ *Set) {
				setNumber(&g.Spec.InstanceMetadata.HTTPPutResponseHopLimit, 1)
			}),
	}
}

func hasWorkers(s Set) bool {
	return slices.ContainsFunc(s.Groups, func(g v1alpha1.InstanceGroup) bool { return g.Spec.Role == v1alpha1.RoleWorker })
}

func clusterText(path, value string, field func(*v1alpha1.ClusterSpec) *string) Rule {
	return Rule{v1alpha1.KindCluster, path, value, func(s *Set) { setText(field(&s.Cluster.Spec), value) }}
}

func clusterNumber(path string, value int, field func(*v1alpha1.ClusterSpec) *int) Rule {
	return Rule{v1alpha1.KindCluster, path, strconv.Itoa(value), func(s *Set) { setNumber(field(&s.Cluster.Spec), value) }}
}

func groupRule(path, text string, apply func(*v1alpha1.InstanceGroup, *Set)) Rule {
	return Rule{v1alpha1.KindInstanceGroup, path, text, func(s *Set) {
		for i := range s.Groups {
			apply(&s.Groups[i], s)
		}
	}}
}

func setText(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func setNumber(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

func defaultRegion(s *Set) {
	for _, sub := range s.Cluster.Spec.Networking.Subnets {
		if zonePattern().MatchString(sub.Zone) {
			setText(&s.Cluster.Spec.CloudProvider.AWS.Region, sub.Zone[:len(sub.Zone)-1])
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
		setNumber(&v.IOPS, gp3IncludedIOPS)
		setNumber(&v.Throughput, gp3IncludedMiBs)
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
	if g.Spec.Role == v1alpha1.RoleBastion && s.Cluster.Spec.Topology.Bastion.LoadBalancer.Type == LoadBalancerNone {
		want = v1alpha1.SubnetPublic
	}
	for _, sub := range s.Cluster.Spec.Networking.Subnets {
		if sub.Type == want && sub.Name != "" {
			g.Spec.Subnets = append(g.Spec.Subnets, sub.Name)
		}
	}
}

func hasPrivate(subnets []v1alpha1.Subnet) bool {
	return slices.ContainsFunc(subnets, func(s v1alpha1.Subnet) bool { return s.Type == v1alpha1.SubnetPrivate })
}

// isolatedEndpoints are the services that machines call (their agent, the registry, controllers in the cluster), and
// that they reach in no other way where there is no NAT.
func isolatedEndpoints() []string {
	return []string{"s3", "autoscaling", "ec2", "ecr.api", "ecr.dkr", "elasticloadbalancing", "kms", "ssm", "sts"}
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
	privateBits  = 4
	publicBits   = 8
	longestBlock = 28
)

// carveSubnets gives every subnet without a range the lowest free one.
func carveSubnets(s *Set) {
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
		bits := network.Bits() + privateBits
		if t := subnets[i].Type; t == v1alpha1.SubnetUtility || t == v1alpha1.SubnetPublic && hasPrivate(subnets) {
			bits = network.Bits() + publicBits
		}
		if p, ok := lowestFree(network, min(bits, longestBlock), used); ok {
			subnets[i].CIDR = p.String()
			used = append(used, p)
		}
	}
}

// lowestFree returns the lowest block of a network with that prefix length that overlaps none of used.
func lowestFree(network netip.Prefix, bits int, used []netip.Prefix) (netip.Prefix, bool) {
	block := netip.PrefixFrom(network.Masked().Addr(), bits)
	for bits >= network.Bits() && network.Contains(block.Addr()) {
		if !slices.ContainsFunc(used, block.Overlaps) {
			return block, true
		}
		next, ok := after(block)
		if !ok {
			break
		}
		block = next
	}
	return netip.Prefix{}, false
}

// after returns the next block of the same size.
func after(p netip.Prefix) (netip.Prefix, bool) {
	b := p.Addr().As4()
	n := binary.BigEndian.Uint32(b[:])
	next := n + 1<<(32-p.Bits())
	binary.BigEndian.PutUint32(b[:], next)
	return netip.PrefixFrom(netip.AddrFrom4(b), p.Bits()), next > n // else past the last address
}

// zoneLetter shortens a zone to its letter: us-east-1a is a.
func zoneLetter(zone string) string { return zone[strings.LastIndexAny(zone, "0123456789")+1:] }
