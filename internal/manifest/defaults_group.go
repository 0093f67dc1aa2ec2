// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

func setDefaultRootSize(g *v1alpha1.InstanceGroup, _ *Set) {
	if g.Spec.Role == v1alpha1.RoleBastion {
		setDefaultNumber(&g.Spec.RootVolume.Size, defaultBastionRootSize)
	}

	setDefaultNumber(&g.Spec.RootVolume.Size, defaultRootSize)
}

func groupDefaultRules() []DefaultRule {
	return []DefaultRule{
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
		newGroupRule(
			"spec.rootVolume.size",
			fmt.Sprintf("%d; %d for a bastion", defaultRootSize, defaultBastionRootSize),
			setDefaultRootSize,
		),
		newGroupRule("spec.rootVolume.iops", gp3IOPSText, defaultRootGP3),
		newGroupRule("spec.rootVolume.throughput", gp3ThroughputText, defaultRootGP3),
		newGroupRule(
			"spec.taints",
			controlPlaneTaint+" for a control plane; none if there are no workers and "+
				"spec.api.loadBalancer.type is ElasticIP",
			defaultTaints,
		),
		newGroupRule(
			"spec.instanceMetadata.httpPutResponseHopLimit",
			"1, which keeps pods from reaching the metadata service",
			func(g *v1alpha1.InstanceGroup, _ *Set) {
				setDefaultNumber(&g.Spec.InstanceMetadata.HTTPPutResponseHopLimit, 1)
			},
		),
		newGroupRule("spec.repair.notReadyFor", "10m for workers and the control plane", defaultRepair),
		newGroupRule("spec.repair.maxUnhealthyPercent", "20 for workers", defaultRepair),
		newGroupRule("spec.repair.minMachineAge", "20m for the control plane", defaultRepair),
	}
}

func defaultMinSize(g *v1alpha1.InstanceGroup, _ *Set) {
	sizes := map[v1alpha1.Role]int{
		v1alpha1.RoleControlPlane: 3,
		v1alpha1.RoleWorker:       2,
		v1alpha1.RoleBastion:      1,
	}
	if g.Spec.UsesKarpenter() {
		sizes[v1alpha1.RoleWorker] = 0
	}

	if g.Spec.MinSize != nil {
		return
	}

	size := sizes[g.Spec.Role]
	if g.Spec.MaxSize != nil && g.Spec.Role == v1alpha1.RoleWorker {
		size = max(0, min(size, *g.Spec.MaxSize)) // maxSize 0 alone scales the group to zero
	}

	if size != 0 || g.Spec.MaxSize != nil {
		g.Spec.MinSize = &size
	}
}

func defaultMaxSize(g *v1alpha1.InstanceGroup, _ *Set) {
	if g.Spec.MaxSize == nil && g.Spec.MinSize != nil && !g.Spec.UsesKarpenter() {
		size := *g.Spec.MinSize
		g.Spec.MaxSize = &size
	}
}

func defaultRootGP3(g *v1alpha1.InstanceGroup, _ *Set) {
	v := toVolume(g.Spec.RootVolume)
	defaultGP3(&v)
	g.Spec.RootVolume.IOPS = v.IOPS
	g.Spec.RootVolume.Throughput = v.Throughput
}

// defaultTaints taints control planes. That of a cluster without workers and load balancers runs
// the users' pods too.
func defaultTaints(g *v1alpha1.InstanceGroup, s *Set) {
	if len(g.Spec.Taints) > 0 || g.Spec.Role != v1alpha1.RoleControlPlane {
		return
	}

	if hasWorkers(*s) || s.Cluster.Spec.API.LoadBalancer.Type != LoadBalancerElasticIP {
		g.Spec.Taints = []string{controlPlaneTaint}
	}
}

// newGroupRule returns a rule that is applied to each group.
func newGroupRule(path, description string, apply func(*v1alpha1.InstanceGroup, *Set)) DefaultRule {
	return DefaultRule{
		Kind:        v1alpha1.KindInstanceGroup,
		Path:        path,
		Description: description,
		apply: func(s *Set) {
			for i := range s.Groups {
				apply(&s.Groups[i], s)
			}
		},
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

	subnetType := v1alpha1.SubnetPublic
	if hasPrivate(s.Cluster.Spec.Networking.Subnets) {
		subnetType = v1alpha1.SubnetPrivate
	}

	if g.Spec.Role == v1alpha1.RoleBastion &&
		s.Cluster.Spec.Topology.Bastion.LoadBalancer.Type == LoadBalancerNone {
		subnetType = v1alpha1.SubnetPublic
	}

	for _, sub := range s.Cluster.Spec.Networking.Subnets {
		if sub.Type == subnetType && sub.Name != "" {
			g.Spec.Subnets = append(g.Spec.Subnets, sub.Name)
		}
	}
}
