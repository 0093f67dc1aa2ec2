// SPDX-License-Identifier: Apache-2.0

package aws_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	sdkec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	sdkelb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// clusterNetwork is the network of a cluster, in which tests create resources that slipway does not own.
type clusterNetwork struct {
	*testing.T
	ec2     *sdkec2.Client
	elb     *sdkelb.Client
	vpc     string
	subnet  string
	machine string // the security group of its instances
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func newClusterNetwork(t *testing.T, cfg sdk.Config, l testCluster, g *graph.Graph) clusterNetwork {
	t.Helper()
	p := l.makePlan(t, g)
	return clusterNetwork{
		T: t, ec2: sdkec2.NewFromConfig(cfg), elb: sdkelb.NewFromConfig(cfg),
		vpc: p.ResourceID("vpc/main"), subnet: p.ResourceID("subnet/private-a"), machine: p.ResourceID("security-group/worker"),
	}
}

func ec2TagsOf(tags map[string]string, kind ec2types.ResourceType) []ec2types.TagSpecification {
	spec := ec2types.TagSpecification{ResourceType: kind}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		spec.Tags = append(spec.Tags, ec2types.Tag{Key: sdk.String(k), Value: sdk.String(tags[k])})
	}
	if len(tags) == 0 {
		return nil
	}
	return []ec2types.TagSpecification{spec}
}

func (s clusterNetwork) createGroup(name string, tags map[string]string) string {
	s.Helper()
	out, err := s.ec2.CreateSecurityGroup(s.Context(), &sdkec2.CreateSecurityGroupInput{
		VpcId: &s.vpc, GroupName: &name, Description: sdk.String("[k8s] made by a test"), TagSpecifications: ec2TagsOf(tags, ec2types.ResourceTypeSecurityGroup),
	})
	return *must(s.T, out, err).GroupId
}

// allowTraffic adds a rule to the group to that allows traffic from the group from.
func (s clusterNetwork) allowTraffic(to, from string) {
	s.Helper()
	_, err := s.ec2.AuthorizeSecurityGroupIngress(s.Context(), &sdkec2.AuthorizeSecurityGroupIngressInput{GroupId: &to, IpPermissions: []ec2types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(30000), ToPort: sdk.Int32(32767), UserIdGroupPairs: []ec2types.UserIdGroupPair{{GroupId: &from}},
	}}})
	must(s.T, 0, err)
}

// openNodePort adds the rule that the cloud controller manager adds for the clients of a load balancer.
func (s clusterNetwork) openNodePort(balancer string) {
	s.Helper()
	_, err := s.ec2.AuthorizeSecurityGroupIngress(s.Context(), &sdkec2.AuthorizeSecurityGroupIngressInput{GroupId: &s.machine, IpPermissions: []ec2types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(31234), ToPort: sdk.Int32(31234),
		IpRanges: []ec2types.IpRange{{CidrIp: sdk.String("0.0.0.0/0"), Description: sdk.String("kubernetes.io/rule/nlb/client=" + balancer)}},
	}}})
	must(s.T, 0, err)
}

func toELBTags(tags map[string]string) []elbtypes.Tag {
	var out []elbtypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, elbtypes.Tag{Key: sdk.String(k), Value: sdk.String(tags[k])})
	}
	return out
}

// createBalancer creates an NLB with a target group, as a controller does for a Service. An empty group: it has none.
func (s clusterNetwork) createBalancer(name, group string, tags map[string]string) (lb, tg string) {
	s.Helper()
	in := &sdkelb.CreateLoadBalancerInput{
		Name: &name, Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal,
		Subnets: []string{s.subnet}, Tags: toELBTags(tags),
	}
	if group != "" {
		in.SecurityGroups = []string{group}
	}
	b, err := s.elb.CreateLoadBalancer(s.Context(), in)
	lb = *must(s.T, b, err).LoadBalancers[0].LoadBalancerArn
	g, err := s.elb.CreateTargetGroup(s.Context(), &sdkelb.CreateTargetGroupInput{
		Name: &name, VpcId: &s.vpc, Protocol: elbtypes.ProtocolEnumTcp, Port: sdk.Int32(80), TargetType: elbtypes.TargetTypeEnumInstance, Tags: toELBTags(tags),
	})
	tg = *must(s.T, g, err).TargetGroups[0].TargetGroupArn
	_, err = s.elb.CreateListener(s.Context(), &sdkelb.CreateListenerInput{
		LoadBalancerArn: &lb, Port: sdk.Int32(80), Protocol: elbtypes.ProtocolEnumTcp,
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: &tg}},
	})
	must(s.T, 0, err)
	return lb, tg
}

func (s clusterNetwork) createInterface(description string, tags map[string]string) string {
	s.Helper()
	out, err := s.ec2.CreateNetworkInterface(s.Context(), &sdkec2.CreateNetworkInterfaceInput{
		SubnetId: &s.subnet, Description: &description, Groups: []string{s.machine}, TagSpecifications: ec2TagsOf(tags, ec2types.ResourceTypeNetworkInterface),
	})
	return *must(s.T, out, err).NetworkInterface.NetworkInterfaceId
}

func (s clusterNetwork) launchInstance(tags map[string]string) string {
	s.Helper()
	out, err := s.ec2.RunInstances(s.Context(), &sdkec2.RunInstancesInput{
		ImageId: sdk.String(regiontest.ImageID), InstanceType: ec2types.InstanceTypeM5Large, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
		SubnetId: &s.subnet, SecurityGroupIds: []string{s.machine}, TagSpecifications: ec2TagsOf(tags, ec2types.ResourceTypeInstance),
	})
	return *must(s.T, out, err).Instances[0].InstanceId
}

// karpenterTags are the tags that Karpenter gives what it creates for cluster name, with those of the EC2NodeClass.
func karpenterTags(name string) map[string]string {
	return map[string]string{
		"kubernetes.io/cluster/" + name: "owned", "eks:eks-cluster-name": name, "karpenter.sh/nodepool": "nodes",
		awskind.TagCluster: name, awskind.TagGroup: "nodes",
	}
}

// checkTags are the tags of the launch template with which Karpenter checks a changed EC2NodeClass: no NodePool has asked for it.
func checkTags(name string) map[string]string {
	tags := karpenterTags(name)
	tags["karpenter.sh/nodepool"] = ""
	return tags
}

func (s clusterNetwork) createTemplate(name string, tags map[string]string) string {
	s.Helper()
	out, err := s.ec2.CreateLaunchTemplate(s.Context(), &sdkec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name, TagSpecifications: ec2TagsOf(tags, ec2types.ResourceTypeLaunchTemplate),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: sdk.String(regiontest.ImageID)},
	})
	return *must(s.T, out, err).LaunchTemplate.LaunchTemplateId
}

func (s clusterNetwork) createVolume(key string, tags map[string]string) string {
	s.Helper()
	in := &sdkec2.CreateVolumeInput{AvailabilityZone: sdk.String("us-east-1a"), Size: sdk.Int32(8), TagSpecifications: ec2TagsOf(tags, ec2types.ResourceTypeVolume)}
	if key != "" {
		in.Encrypted, in.KmsKeyId = sdk.Bool(true), &key
	}
	out, err := s.ec2.CreateVolume(s.Context(), in)
	return *must(s.T, out, err).VolumeId
}

func (s clusterNetwork) createSnapshot(volume string, tags map[string]string) string {
	s.Helper()
	out, err := s.ec2.CreateSnapshot(s.Context(), &sdkec2.CreateSnapshotInput{VolumeId: &volume, TagSpecifications: ec2TagsOf(tags, ec2types.ResourceTypeSnapshot)})
	return *must(s.T, out, err).SnapshotId
}

// deleteCluster deletes a cluster with its leftovers, and with its data if data is set.
func (l testCluster) deleteCluster(t *testing.T, data bool) (plan.Plan, cleanup.Leftovers, error) {
	t.Helper()
	have, err := l.cloud.Read(t.Context())
	must(t, 0, err)
	r, err := l.cloud.FindLeftovers(t.Context(), have)
	must(t, 0, err)
	have = append(have, r.Resources...)
	if data {
		have = append(have, r.Data...)
	} else {
		have, _ = cleanup.SplitDataKeys(have, r.Data)
	}
	p, fs := plan.Compute(&graph.Graph{}, have, plan.Options{DestroyData: true})
	must(t, 0, fs.Err())
	err = plan.Applier{Cloud: l.cloud, Now: time.Now, RetryTimeout: 20 * time.Second}.Apply(t.Context(), p)
	return p, r, err
}

// createCluster creates cluster name in cfg, with one NAT gateway.
func createCluster(t *testing.T, cfg sdk.Config, name string) (testCluster, *graph.Graph) {
	t.Helper()
	g := desiredGraph(t, name, func(in *model.Input) { in.Cluster.Spec.Networking.NATGateways = "Single" })
	l := newTestCluster(cfg, name)
	l.applyPlan(t, l.makePlan(t, g))
	return l, g
}

// asideOwner describes the creator of a volume that 'slipway etcd move' has set aside.
const asideOwner = "slipway etcd move of slot a"

// asideTags returns the tags of the volume of slot a in the former zone, after 'slipway etcd move' has set it aside.
func asideTags(name string) map[string]string {
	return map[string]string{
		awskind.TagCluster: name, awskind.TagSetAside: "a", "Name": "etcd-a." + name, "kubernetes.io/cluster/" + name: "owned",
	}
}

// createLeftovers creates one leftover of every kind, tagged as the controllers of cluster name tag them. It
// returns the leftovers that are deleted with the cluster, by kind and owner, and its data.
func (s clusterNetwork) createLeftovers(name, key string) (want, data map[string]string) {
	s.Helper()
	lbc := func(more ...string) map[string]string {
		tags := map[string]string{"elbv2.k8s.aws/cluster": name}
		for i := 0; i < len(more); i += 2 {
			tags[more[i]] = more[i+1]
		}
		return tags
	}
	owned := func(more ...string) map[string]string {
		tags := lbc(more...)
		delete(tags, "elbv2.k8s.aws/cluster")
		tags["kubernetes.io/cluster/"+name] = "owned"
		return tags
	}
	frontend := s.createGroup("k8s-default-web-"+name, lbc("service.k8s.aws/stack", "default/web", "service.k8s.aws/resource", "ManagedLBSecurityGroup"))
	backend := s.createGroup("k8s-traffic-"+name, lbc("elbv2.k8s.aws/resource", "backend-sg"))
	s.allowTraffic(frontend, backend) // two groups that refer to each other
	s.allowTraffic(backend, frontend)
	s.allowTraffic(s.machine, backend) // as the controller opens the ports of instances
	lb, tg := s.createBalancer("k8s-web-"+name, frontend, lbc("service.k8s.aws/stack", "default/web", "service.k8s.aws/resource", "LoadBalancer"))
	old, oldTarget := s.createBalancer("a0123-"+name, s.createGroup("k8s-elb-a0123-"+name, owned()), owned("kubernetes.io/service-name", "shop/cart"))
	s.openNodePort("a4567-" + name) // the cloud controller manager gives an NLB no security group
	newer, newerTarget := s.createBalancer("a4567-"+name, "", owned("kubernetes.io/service-name", "shop/front"))
	claim := owned("ebs.csi.aws.com/cluster", "true", "CSIVolumeName", "pvc-1",
		"kubernetes.io/created-for/pvc/namespace", "db", "kubernetes.io/created-for/pvc/name", "data-0")
	volume := s.createVolume(key, claim)
	aside := s.createVolume(key, asideTags(name))
	want = map[string]string{
		frontend: "service default/web", backend: "the AWS load balancer controller", lb: "service default/web", tg: "service default/web",
		old: "service shop/cart", oldTarget: "service shop/cart", newer: "service shop/front", newerTarget: "service shop/front",
		s.createInterface("aws-K8S-i-0123456789abcdef0", map[string]string{"cluster.k8s.amazonaws.com/name": name, "node.k8s.amazonaws.com/instance_id": "i-0123456789abcdef0"}): "the VPC CNI of i-0123456789abcdef0",
		s.createInterface("aws-K8S-i-0123456789abcdef1", nil):                                          "the VPC CNI",
		s.launchInstance(owned("karpenter.sh/nodepool", "default")):                                    "Karpenter's node pool default",
		s.launchInstance(map[string]string{"slipway.dev/cluster": name, "slipway.dev/group": "nodes"}): "instance group nodes",
		s.launchInstance(karpenterTags(name)):                                                          "Karpenter's node pool nodes",
		s.createTemplate("karpenter.k8s.aws/"+name, karpenterTags(name)):                               "Karpenter's node pool nodes",
		s.createTemplate("karpenter.k8s.aws/check-"+name, checkTags(name)):                             "instance group nodes",
	}
	data = map[string]string{
		volume: "claim db/data-0",
		aside:  asideOwner,
		s.createSnapshot(volume, owned("ebs.csi.aws.com/cluster", "true", "CSIVolumeSnapshotName", "nightly")): "volume snapshot nightly",
	}
	return want, data
}

func ownersByID(list []plan.ActualResource, want map[string]string) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		if _, ok := want[a.ID]; ok {
			out[a.ID] = a.Owner
		}
	}
	return out
}

// TestLeftovers deletes a cluster whose controllers left one leftover of every kind, next to a cluster
// whose name begins with the same letters and which has the same leftovers. All leftovers of the
// first are deleted, its data only on request, and nothing of the other changes.
func TestLeftovers(t *testing.T) {
	cfg := startRegion(t)
	l, g := createCluster(t, cfg, "prod")
	other, otherGraph := createCluster(t, cfg, "prod-2")
	s, s2 := newClusterNetwork(t, cfg, l, g), newClusterNetwork(t, cfg, other, otherGraph)
	want, data := s.createLeftovers("prod", l.makePlan(t, g).ResourceID("kms-key/main"))
	theirs, theirData := s2.createLeftovers("prod-2", "")
	loose := s.createVolume("", map[string]string{"ebs.csi.aws.com/cluster": "true"}) // of an unknown cluster
	shared := s.createVolume("", map[string]string{"kubernetes.io/cluster/prod": "shared"})

	before := planLines(other.makePlan(t, otherGraph)) // the rule that its controller added
	p, r, err := l.deleteCluster(t, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := ownersByID(r.Resources, want); !maps.Equal(got, want) {
		t.Errorf("leftovers:\n got %v\nwant %v", got, want)
	}
	if got := ownersByID(r.Data, data); !maps.Equal(got, data) || len(r.Data) != len(data) {
		t.Errorf("data:\n got %v\nwant %v", r.Data, data)
	}
	if len(r.Blockers) > 0 {
		t.Errorf("blockers: %v", r.Blockers)
	}
	for _, st := range p.Steps {
		if theirs[st.ID] != "" || theirData[st.ID] != "" || st.ID == loose || st.ID == shared || data[st.ID] != "" {
			t.Errorf("the plan has %s", st)
		}
		if st.Kind == "kms-key" {
			t.Errorf("the key of kept data is deleted: %s", st)
		}
	}
	t.Logf("%d steps, %d of them leftovers; %d kept", len(p.Steps), len(r.Resources), len(r.Data))
	if after := planLines(other.makePlan(t, otherGraph)); !slices.Equal(after, before) {
		t.Errorf("deleting prod changed prod-2:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	// All leftovers of the other cluster still exist.
	have, err := other.cloud.Read(t.Context())
	must(t, 0, err)
	left, err := other.cloud.FindLeftovers(t.Context(), have)
	must(t, 0, err)
	if got := ownersByID(slices.Concat(left.Resources, left.Data), theirs); !maps.Equal(got, theirs) {
		t.Errorf("leftovers of prod-2 are\n%v, want\n%v", got, theirs)
	}

	// Later, the data and its key.
	p, _, err = l.deleteCluster(t, true)
	if err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{}
	for _, st := range p.Steps {
		gone[st.Kind] = true
	}
	if got := slices.Sorted(maps.Keys(gone)); !slices.Equal(got, []string{"kms-alias", "kms-key", "snapshot", "volume"}) {
		t.Errorf("the second run removes %v", got)
	}
	if p, r, err := l.deleteCluster(t, true); err != nil || !p.IsEmpty() {
		t.Errorf("a third run has %v %v: %v", p.Steps, r, err)
	}
	if out, err := s.ec2.DescribeVolumes(t.Context(), &sdkec2.DescribeVolumesInput{VolumeIds: []string{loose, shared}}); err != nil || len(out.Volumes) != 2 {
		t.Errorf("volumes of an unknown owner are deleted: %v", err)
	}
}

// TestBlockers creates resources in a cluster's network that do not belong to the cluster. Each must
// be announced and, when AWS refuses a deletion, named with id, kind and owner. All else must be
// deleted. Once the blocker is deleted, another run deletes the rest of the cluster.
func TestBlockers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		put  func(clusterNetwork) (id string, undo func() error)
		// announced is printed before anything is deleted; want is in the error.
		announced, want string
		// stays are the kinds that must remain besides the VPC.
		stays []string
	}{
		{"a machine of somebody", func(s clusterNetwork) (string, func() error) {
			id := s.launchInstance(map[string]string{"Name": "jumphost"})
			return id, func() error {
				_, err := s.ec2.TerminateInstances(s.Context(), &sdkec2.TerminateInstancesInput{InstanceIds: []string{id}})
				return err
			}
		}, "ID: instance named jumphost", "network interface of instance ID named jumphost", []string{"security-group", "subnet", "vpc"}},
		{"a load balancer of a neighbour", func(s clusterNetwork) (string, func() error) {
			group := s.createGroup("k8s-other", map[string]string{"elbv2.k8s.aws/cluster": "prod-2"})
			lb, tg := s.createBalancer("k8s-other-web", group, map[string]string{"elbv2.k8s.aws/cluster": "prod-2", "service.k8s.aws/stack": "default/web"})
			return lb, func() error {
				if _, err := s.elb.DeleteLoadBalancer(s.Context(), &sdkelb.DeleteLoadBalancerInput{LoadBalancerArn: &lb}); err != nil {
					return err
				}
				time.Sleep(300 * time.Millisecond) // its interfaces are deleted a while later
				if _, err := s.elb.DeleteTargetGroup(s.Context(), &sdkelb.DeleteTargetGroupInput{TargetGroupArn: &tg}); err != nil {
					return err
				}
				_, err := s.ec2.DeleteSecurityGroup(s.Context(), &sdkec2.DeleteSecurityGroupInput{GroupId: &group})
				return err
			}
		}, "ID: NLB k8s-other-web of service default/web", "network interface of NLB k8s-other-web created by service default/web", []string{"subnet", "vpc"}},
		{"an interface of nobody", func(s clusterNetwork) (string, func() error) {
			id := s.createInterface("by hand", nil)
			return id, func() error {
				_, err := s.ec2.DeleteNetworkInterface(s.Context(), &sdkec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &id})
				return err
			}
		}, "ID: network interface (by hand)", "ID: network interface (by hand), which", []string{"security-group", "subnet", "vpc"}},
		{"a group that lets our machines in", func(s clusterNetwork) (string, func() error) {
			id := s.createGroup("database", map[string]string{"Name": "rds"})
			s.allowTraffic(id, s.machine)
			return id, func() error {
				_, err := s.ec2.DeleteSecurityGroup(s.Context(), &sdkec2.DeleteSecurityGroupInput{GroupId: &id})
				return err
			}
		}, "ID: security group database", "ID: rule in security group database", []string{"security-group", "vpc"}},
		{"a load balancer that AWS protects", func(s clusterNetwork) (string, func() error) {
			tags := map[string]string{"elbv2.k8s.aws/cluster": "prod", "service.k8s.aws/stack": "default/web"}
			lb, _ := s.createBalancer("k8s-kept", s.createGroup("k8s-kept", tags), tags)
			set := func(v string) error {
				_, err := s.elb.ModifyLoadBalancerAttributes(s.Context(), &sdkelb.ModifyLoadBalancerAttributesInput{
					LoadBalancerArn: &lb, Attributes: []elbtypes.LoadBalancerAttribute{{Key: sdk.String("deletion_protection.enabled"), Value: &v}},
				})
				return err
			}
			must(s.T, 0, set("true"))
			return lb, func() error { return set("false") }
		}, "", "load-balancer/leftover:k8s-kept: delete: OperationNotPermitted: Load balancer 'ID' cannot be deleted because deletion protection is enabled", []string{"internet-gateway", "load-balancer", "security-group", "subnet", "target-group", "vpc"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := startRegion(t)
			l, g := createCluster(t, cfg, "prod")
			s := newClusterNetwork(t, cfg, l, g)
			id, undo := tc.put(s)
			fill := func(text string) string { return strings.ReplaceAll(text, "ID", id) }
			start := time.Now()
			_, r, err := l.deleteCluster(t, false)
			if err == nil || !strings.Contains(err.Error(), fill(tc.want)) {
				t.Errorf("the error is\n%v\nwhich lacks\n%s", err, fill(tc.want))
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("the blocker was reported after %s", took)
			}
			var all []string
			for _, b := range r.Blockers {
				all = append(all, b.String())
			}
			if announced := strings.Join(all, "\n"); tc.announced != "" && !strings.Contains(announced, fill(tc.announced)) {
				t.Errorf("announced:\n%s\nwant %s", announced, fill(tc.announced))
			}
			have, err := l.cloud.Read(t.Context())
			must(t, 0, err)
			left, err := l.cloud.FindLeftovers(t.Context(), have)
			must(t, 0, err)
			kinds := map[string]bool{}
			for _, a := range slices.Concat(have, left.Resources) {
				if _, rule := a.Resource.(awskind.SecurityGroupIngress); !rule {
					kinds[a.Resource.Kind().Name] = true
				}
			}
			delete(kinds, "gateway-attachment")
			delete(kinds, "listener")
			delete(kinds, "security-group-egress")
			if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, tc.stays) {
				t.Errorf("remaining kinds are %v, want %v", got, tc.stays)
			}
			must(t, 0, undo())
			if _, _, err := l.deleteCluster(t, false); err != nil {
				t.Errorf("the second run: %v", err)
			}
			if rest := l.makePlan(t, &graph.Graph{}); !rest.IsEmpty() {
				t.Errorf("remaining: %v", planLines(rest))
			}
		})
	}
}
