// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// DefaultKubernetesVersion is the version that kops recommends for the newest minor release. The
// asset catalogue contains it.
const DefaultKubernetesVersion = "1.36.3"

// DefaultMachineType is the EC2 instance type of groups that name none, except for bastions.
const DefaultMachineType = "t3.large"

// controlPlaneTaint keeps ordinary pods from control-plane machines. kubeadm sets the same taint.
const controlPlaneTaint = "node-role.kubernetes.io/control-plane=:NoSchedule"

// DefaultRule is the default of one field. Every default is a DefaultRule, and the reference of the
// manifest is generated from these rules.
type DefaultRule struct {
	// Kind and Path of the field, such as Cluster and spec.networking.podCIDR.
	Kind, Path string
	// Description is the default as text, for the reference.
	Description string
	apply       func(*Set)
}

// Default returns the set with every unset field filled. It is idempotent, and does not change s.
func Default(s Set) Set {
	s = s.clone()
	for _, r := range DefaultRules() {
		r.apply(&s)
	}

	return s
}

// DefaultNew is [Default] for a cluster that is being created. It also sets what would change the machines of an existing
// cluster, or what its users rely on, whose manifest leaves it unset.
func DefaultNew(s Set) Set {
	s = Default(s)
	setDefaultText(&s.Cluster.Spec.Networking.Hostnames, v1alpha1.HostnamesByResource)
	setDefaultText(&s.Cluster.Spec.KubeControllerManager.ServiceAccountTokenSecrets, v1alpha1.TokenSecretsDisabled)

	return s
}

// KeepNew returns a changed manifest of an existing cluster. What it leaves unset of what [DefaultNew] sets stays as it
// was before: a file that a cluster was created from does not have it, and is not meant to change it.
func KeepNew(c, before v1alpha1.Cluster) v1alpha1.Cluster {
	setDefaultText(&c.Spec.Networking.Hostnames, before.Spec.Networking.Hostnames)
	setDefaultText(
		&c.Spec.KubeControllerManager.ServiceAccountTokenSecrets,
		before.Spec.KubeControllerManager.ServiceAccountTokenSecrets,
	)

	return c
}

// clone copies the parts of the set that the rules change in place.
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

// DefaultRules returns all defaults in the order in which Default applies them. Later rules read
// the fields that earlier ones set.
func DefaultRules() []DefaultRule {
	return slices.Concat(networkDefaultRules(), clusterDefaultRules(), machineDefaultRules(), groupDefaultRules())
}

// networkDefaultRules are the defaults of a cluster's version, region and network.
func networkDefaultRules() []DefaultRule {
	type spec = v1alpha1.ClusterSpec

	return []DefaultRule{
		newTextRule(
			"spec.kubernetesVersion",
			DefaultKubernetesVersion,
			func(c *spec) *string { return &c.KubernetesVersion },
		),
		newClusterRule("spec.cloudProvider.aws.region", "the region of the subnets' zones", defaultRegion),
		newTextRule(
			"spec.networking.networkCIDR",
			"10.80.0.0/16",
			func(c *spec) *string { return &c.Networking.NetworkCIDR },
		),
		newClusterRule(
			"spec.networking.podCIDR",
			"10.244.0.0/16, or networkCIDR with spec.networking.cni amazon-vpc",
			defaultPodCIDR,
		),
		newTextRule(
			"spec.networking.serviceClusterIPRange",
			"10.96.0.0/16",
			func(c *spec) *string { return &c.Networking.ServiceClusterIPRange },
		),
		newTextRule("spec.networking.cni", v1alpha1.CNIFlannel, func(c *spec) *string { return &c.Networking.CNI }),
		newClusterRule(
			"spec.networking.flannel.backend",
			"VXLAN with spec.networking.cni flannel",
			defaultFlannelBackend,
		),
		newTextRule(
			"spec.networking.natGateways",
			NATPerZone,
			func(c *spec) *string { return &c.Networking.NATGateways },
		),
		newClusterRule("spec.networking.vpcEndpoints", endpointsDescription(), defaultEndpoints),
		newTextRule(
			"spec.networking.dnsDomain",
			"cluster.local",
			func(c *spec) *string { return &c.Networking.DNSDomain },
		),
		newClusterRule(
			"spec.networking.subnets[].cidr",
			"the lowest free range of networkCIDR: a sixteenth of it (a /20 of a /16) for a subnet with machines, "+
				"a 256th (a /24) for a Utility subnet, and for a Public subnet if there are Private subnets",
			assignSubnetRanges,
		),
	}
}

// clusterDefaultRules are the defaults of a cluster's API, bastions and etcd.
func clusterDefaultRules() []DefaultRule {
	type spec = v1alpha1.ClusterSpec
	defaultEtcdVolume := func(s *Set) { defaultGP3(&s.Cluster.Spec.Etcd.Volume) }

	return append([]DefaultRule{
		newTextRule(
			"spec.api.loadBalancer.type",
			LoadBalancerPublic,
			func(c *spec) *string { return &c.API.LoadBalancer.Type },
		),
		newClusterRule(
			"spec.topology.bastion.loadBalancer.type",
			"Public if there is a group of role Bastion",
			defaultBastion,
		),
		newClusterRule(
			"spec.api.publicName",
			"api.NAME.ZONE if spec.dnsZone is the name of a zone",
			defaultPublicName,
		),
		newClusterRule(
			"spec.api.access",
			"0.0.0.0/0 if spec.api.loadBalancer.type is Public or ElasticIP",
			defaultAccess,
		),
		newClusterRule(
			"spec.kubeAPIServer.serviceAccountIssuer",
			"https://BUCKET.s3.REGION.amazonaws.com/PREFIX/NAME if spec.serviceAccountIssuerDiscovery.discoveryStore is set",
			defaultIssuerOfStore,
		),
		newTextRule("spec.etcd.volume.type", "gp3", func(c *spec) *string { return &c.Etcd.Volume.Type }),
		newNumberRule("spec.etcd.volume.size", 20, func(c *spec) *int { return &c.Etcd.Volume.Size }),
		newClusterRule("spec.etcd.volume.iops", gp3IOPSText, defaultEtcdVolume),
		newClusterRule("spec.etcd.volume.throughput", gp3ThroughputText, defaultEtcdVolume),
		newNumberRule(
			"spec.etcd.heartbeatIntervalMS",
			100,
			func(c *spec) *int { return &c.Etcd.HeartbeatIntervalMS },
		),
		newNumberRule(
			"spec.etcd.electionTimeoutMS",
			1000,
			func(c *spec) *int { return &c.Etcd.ElectionTimeoutMS },
		),
	}, etcdCareRules()...)
}

// etcdCareRules are the defaults of the backups of etcd, of its recovery and of the discovery of its members.
func etcdCareRules() []DefaultRule {
	type spec = v1alpha1.ClusterSpec

	return []DefaultRule{
		newTextRule("spec.etcd.backup.interval", "1h", func(c *spec) *string { return &c.Etcd.Backup.Interval }),
		newTextRule("spec.etcd.backup.keepAll", "24h", func(c *spec) *string { return &c.Etcd.Backup.KeepAll }),
		newNumberRule("spec.etcd.backup.keepDaily", 14, func(c *spec) *int { return &c.Etcd.Backup.KeepDaily }),
		newNumberRule("spec.etcd.backup.verifyEvery", 6, func(c *spec) *int { return &c.Etcd.Backup.VerifyEvery }),
		newClusterRule(
			"spec.etcd.quorumLoss.recovery",
			"Automatic unless spec.etcd.backup.disabled is true",
			defaultRecovery,
		),
		newTextRule("spec.etcd.quorumLoss.after", "10m", func(c *spec) *string { return &c.Etcd.QuorumLoss.After }),
		newClusterRule(
			"spec.etcd.recreateVolumesAfter",
			"10m unless spec.cloudProvider.aws.instanceProfiles.controlPlane is set, or spec.tags are too long for a policy",
			defaultNewVolumes,
		),
		newTextRule("spec.etcd.discovery", v1alpha1.EtcdDiscoveryTags, func(c *spec) *string { return &c.Etcd.Discovery }),
		newClusterRule("spec.etcd.discoveryEvents", "EventBridge if spec.etcd.discovery is DNS", defaultDiscoveryEvents),
	}
}

// The IOPS and the throughput in MiB/s that are included in the price of a gp3 volume.
const (
	gp3IncludedIOPS   = 3000
	gp3IncludedMiBs   = 125
	gp3IOPSText       = "3000 for gp3, included in its price; required for io1 and io2"
	gp3ThroughputText = "125 for gp3, included in its price"
	minSizeText       = "3 for a control plane, 2 for workers (maxSize if that is less; 0 with spec.manager Karpenter), 1 for a bastion"
)

// machineDefaultRules are the defaults of a group's machines: their types, images and numbers.
func machineDefaultRules() []DefaultRule {
	return []DefaultRule{
		newGroupRule("metadata.labels", "slipway.dev/cluster: the cluster's name", defaultClusterLabel),
		newGroupRule(
			"spec.machineType",
			"the first of mixedInstancesPolicy.instances; else t3.large, t3.micro for a bastion",
			defaultMachineType,
		),
		newGroupRule(
			"spec.mixedInstancesPolicy.onDemandAboveBase",
			"100 for a control plane whose mixedInstancesPolicy has instances",
			defaultMixed,
		),
		newGroupRule(
			"spec.mixedInstancesPolicy.onDemandAllocationStrategy",
			"prioritized if mixedInstancesPolicy has instances, except with spec.manager Karpenter",
			defaultMixed,
		),
		newGroupRule(
			"spec.mixedInstancesPolicy.spotAllocationStrategy",
			"price-capacity-optimized if mixedInstancesPolicy has instances, except with spec.manager Karpenter",
			defaultMixed,
		),
		newGroupRule(
			"spec.image",
			"debian-12; a distribution's name selects the image that it publishes for the architecture of machineType",
			defaultImage,
		),
		newGroupRule(
			"spec.userDataFormat",
			"Ignition for an image with flatcar in its name, else CloudInit",
			defaultFormat,
		),
		newGroupRule("spec.warmPool.poolState", "Stopped if warmPool has a size", defaultWarmPool),
		newGroupRule("spec.minSize", minSizeText, defaultMinSize),
		newGroupRule(
			"spec.maxSize",
			"minSize; none with spec.manager Karpenter",
			defaultMaxSize,
		),
	}
}

// groupDefaultRules are the defaults of a group's subnets, volumes, taints and metadata service.
// The size of a root volume, in GiB.
const (
	defaultRootSize        = 64
	defaultBastionRootSize = 16
)

func hasWorkers(s Set) bool {
	return slices.ContainsFunc(
		s.Groups,
		func(g v1alpha1.InstanceGroup) bool { return g.Spec.Role == v1alpha1.RoleWorker },
	)
}

func newClusterRule(path, description string, apply func(*Set)) DefaultRule {
	return DefaultRule{
		Kind:        v1alpha1.KindCluster,
		Path:        path,
		Description: description,
		apply:       apply,
	}
}

func newTextRule(path, value string, field func(*v1alpha1.ClusterSpec) *string) DefaultRule {
	return newClusterRule(path, value, func(s *Set) { setDefaultText(field(&s.Cluster.Spec), value) })
}

func newNumberRule(path string, value int, field func(*v1alpha1.ClusterSpec) *int) DefaultRule {
	return newClusterRule(
		path,
		strconv.Itoa(value),
		func(s *Set) { setDefaultNumber(field(&s.Cluster.Spec), value) },
	)
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

func hasPrivate(subnets []v1alpha1.Subnet) bool {
	return slices.ContainsFunc(
		subnets,
		func(s v1alpha1.Subnet) bool { return s.Type == v1alpha1.SubnetPrivate },
	)
}

// isolatedEndpoints are the AWS services that machines call: their agent, which also signals a stack, the container
// registry, and controllers in the cluster. Without NAT they are reachable through VPC endpoints only.
func isolatedEndpoints() []string {
	return []string{
		"s3", "autoscaling", "cloudformation", "ec2", "ecr.api", "ecr.dkr", "elasticloadbalancing", "kms", "ssm", "sts",
	}
}

func endpointsDescription() string {
	return strings.Join(isolatedEndpoints(), ", ") +
		" if natGateways is None and Slipway creates Private subnets"
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

// The difference between the prefix lengths of a subnet and of the network, and the longest prefix
// that AWS allows.
const (
	privateSubnetBits = 4
	publicSubnetBits  = 8
	maxSubnetPrefix   = 28
)

// zoneLetter returns the letter of a zone: a for us-east-1a.
func zoneLetter(zone string) string { return zone[strings.LastIndexAny(zone, "0123456789")+1:] }
