// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

const (
	configMarker = "@@CONFIG@@"
	// maxBootUserData is the limit for the boot script, in bytes. AWS allows 16 KiB; the rest is for
	// additionalUserData.
	maxBootUserData = 4096
	// reservedNameBytes is the assumed length of a load balancer's name that is not known yet.
	reservedNameBytes = 100
)

// machineSet is one Auto Scaling group: a control-plane slot, a worker group or a bastion group.
type machineSet struct {
	group        v1alpha1.InstanceGroup
	name         string // in the graph
	slot         string // of a control plane; else empty
	machineRole  *machineRole
	min, max     int
	subnets      []string // by name
	targets      []graph.Ref[awskind.TargetGroup]
	notify       []awskind.GroupNotification
	dependencies []graph.Reference // without a property that refers to them
}

// addControlPlane adds for each slot an encrypted etcd volume, a launch template, and an Auto Scaling group
// of one machine in one zone, so that a replaced machine finds the data of its slot. Slots do not depend on
// each other.
func (b *builder) addControlPlane() {
	for _, ig := range b.groupsByRole(v1alpha1.RoleControlPlane) {
		for i := range ig.Spec.MinMachines() {
			slot := string(rune('a' + i))
			subnet := ig.Spec.Subnets[i%len(ig.Spec.Subnets)]
			volume := b.addEtcdVolume(slot, subnet)
			b.addMachineSet(machineSet{
				group:        ig,
				name:         ig.Metadata.Name + "-" + slot,
				slot:         slot,
				machineRole:  addSlotRole(b, slot, subnet),
				min:          1,
				max:          1,
				subnets:      []string{subnet},
				targets:      b.apiTargetGroups,
				notify:       b.etcdNotifications,
				dependencies: append([]graph.Reference{volume}, b.etcdEvents...),
			})
		}
	}
}

// addWorkers adds a launch template and an Auto Scaling group for each worker group. Karpenter's groups have neither.
func (b *builder) addWorkers() {
	for _, ig := range b.groupsByRole(v1alpha1.RoleWorker) {
		role := &b.worker
		if HasOwnRole(ig) {
			role = b.addGroupRole(ig)
		}

		if ig.Spec.UsesKarpenter() {
			checkKarpenterUserData(b, ig)
			continue
		}

		b.addMachineSet(machineSet{
			group:       ig,
			name:        ig.Metadata.Name,
			machineRole: role,
			min:         ig.Spec.MinMachines(),
			max:         ig.Spec.MaxMachines(),
			subnets:     ig.Spec.Subnets,
		})
	}
}

func (b *builder) addEtcdVolume(slot, subnet string) graph.Ref[awskind.Volume] {
	v := b.Cluster.Spec.Etcd.Volume
	name := "etcd-" + slot
	ref := graph.Add(b.graph, name, awskind.Volume{
		Zone:       b.zoneOf(subnet),
		VolumeType: v.Type,
		Size:       v.Size,
		IOPS:       v.IOPS,
		Throughput: v.Throughput,
		Encrypted:  true,
		KMSKey:     b.volumeKeyARN,
		Tags:       etcdVolumeTags(b, slot),
	})

	graph.Protect(b.graph, ref)

	return ref
}

func (b *builder) addMachineSet(l machineSet) {
	templateTags := b.resourceTags(awskind.LaunchTemplate{}.Kind(), l.name, nil)
	template := graph.Add(b.graph, l.name, awskind.LaunchTemplate{
		Name: l.name + "." + b.clusterName(),
		Data: b.launchTemplateData(l),
		Tags: b.withCloudLabels(l.group, templateTags),
	})

	// A machine cannot boot without outbound traffic or without its role's permissions.
	after := slices.Concat(
		l.machineRole.policies,
		[]graph.Reference{l.machineRole.egressRule},
		l.dependencies,
	)

	var subnets []graph.Ref[awskind.Subnet]
	for _, s := range l.subnets {
		subnets = append(subnets, b.subnets[s])
		after = append(after, b.egressDeps[s]...)
	}

	tags := awskind.Tags{awskind.TagRole: roleTag(l.group.Spec.Role), awskind.TagGroup: l.group.Metadata.Name}
	if l.slot != "" {
		tags[awskind.TagSlot] = l.slot
	}

	maps.Copy(tags, b.autoscalerTags(l.group))
	maps.Copy(tags, repairTags(l.group))
	group := awskind.AutoScalingGroup{
		Name:              l.name + "." + b.clusterName(),
		MinSize:           l.min,
		MaxSize:           l.max,
		DesiredCapacity:   l.min,
		Subnets:           subnets,
		TargetGroups:      l.targets,
		HealthCheckType:   "EC2",
		CapacityRebalance: l.group.Spec.CapacityRebalance,
		WarmPool:          warmPoolOf(l.group.Spec.WarmPool),
		Notifications:     l.notify,
		Tags: b.withCloudLabels(
			l.group,
			b.resourceTags(awskind.AutoScalingGroup{}.Kind(), l.name, tags),
		),
	}

	from := awskind.TemplateSpec{ID: template, Version: template.Attr("LatestVersionNumber")}
	group.MixedInstances = mixedInstancesPolicy(l.group.Spec, from)
	if len(group.MixedInstances.Launch.Overrides) == 0 {
		group.Template = from
	}

	ref := graph.Add(b.graph, l.name, group, after...)
	b.addTerminationHook(l, ref)
	addLaunchHook(b.graph, l, ref)
}

func (b *builder) launchTemplateData(l machineSet) awskind.LaunchTemplateData {
	image := b.Images[l.group.Metadata.Name]
	root := l.group.Spec.RootVolume
	hop := max(l.group.Spec.InstanceMetadata.HTTPPutResponseHopLimit, 1)
	tags := maps.Clone(b.Cluster.Spec.Tags)
	if tags == nil {
		tags = awskind.Tags{}
	}

	maps.Copy(tags, b.clusterTags(l.name))
	tags[awskind.TagGroup] = l.group.Metadata.Name
	tags = b.withCloudLabels(l.group, tags)
	groups := []graph.Ref[awskind.SecurityGroup]{l.machineRole.securityGroup}
	for _, id := range l.group.Spec.AdditionalSecurityGroups {
		groups = append(groups, graph.UnmanagedRef[awskind.SecurityGroup](id))
	}

	key := b.volumeKeyARN
	if root.EncryptionKey != "" {
		key = graph.LiteralText(root.EncryptionKey)
	}

	return awskind.LaunchTemplateData{
		ImageID:        image.ID,
		InstanceType:   l.group.Spec.MachineType,
		KeyName:        b.keyPair,
		Profile:        awskind.ProfileSpec{Name: l.machineRole.profile},
		SecurityGroups: groups,
		BlockDevices: []awskind.BlockDevice{{
			DeviceName: image.RootDevice,
			EBS: awskind.EBS{
				VolumeType:          root.Type,
				VolumeSize:          root.Size,
				IOPS:                root.IOPS,
				Throughput:          root.Throughput,
				Encrypted:           true,
				KMSKey:              key,
				DeleteOnTermination: true,
			},
		}},
		Metadata: awskind.MetadataOptions{Endpoint: "enabled", Tokens: "required", HopLimit: hop},
		Hostname: hostnameOptions(b.Cluster.Spec.Networking.Hostnames),
		Tags: []awskind.TagSpecification{
			{ResourceType: "network-interface", Tags: tags},
			{ResourceType: "volume", Tags: tags},
		},
		UserData: b.fullUserData(l).Base64(),
	}
}

// hostnameOptions returns how EC2 names machines, from spec.networking.hostnames.
func hostnameOptions(hostnames string) awskind.HostnameOptions {
	switch hostnames {
	case v1alpha1.HostnamesByResource:
		return awskind.HostnameOptions{Type: "resource-name", ResourceNameA: true}
	case v1alpha1.HostnamesByAddress:
		return awskind.HostnameOptions{Type: "ip-name"}
	default: // a cluster of an older Slipway: its machines keep being named as their subnets say
		return awskind.HostnameOptions{}
	}
}

// bootConfig is the boot configuration in the user data. Package node parses it.
type bootConfig struct {
	Cluster  string       `json:"cluster"`
	Group    string       `json:"group"`
	Role     string       `json:"role"`
	Region   string       `json:"region"`
	Owner    string       `json:"owner,omitempty"`
	Agent    bootDownload `json:"agent"`
	Document bootDownload `json:"document"`
	API      bootAPI      `json:"api"`
	// The fields that differ within a group come last, so that a template can share the rest.
	Slot   string `json:"slot,omitempty"`
	Signal string `json:"signal,omitempty"`
	Stack  string `json:"stack,omitempty"`
}

type bootDownload struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
}

type bootAPI struct {
	Public   string `json:"public,omitempty"`
	Internal string `json:"internal"`
	Elastic  bool   `json:"elastic,omitempty"`
}

// The markers of the load balancers' names in the text of [bootText].
const (
	publicMarker   = "@@PUBLIC@@"
	internalMarker = "@@INTERNAL@@"
)

// bootText returns the boot script with the boot configuration, with markers for the load balancers' names, which AWS assigns.
func bootText(b *builder, l machineSet) string {
	boot := b.Boot[l.group.Metadata.Name]
	config := bootConfig{
		Cluster:  b.clusterName(),
		Group:    l.group.Metadata.Name,
		Role:     roleTag(l.group.Spec.Role),
		Slot:     l.slot,
		Region:   b.Region,
		Owner:    b.MachineStore.Owner,
		Agent:    bootDownload{URL: boot.AgentURL, SHA256: boot.AgentSHA256},
		Document: bootDownload{URL: boot.DocumentURL, SHA256: boot.DocumentSHA256},
		API:      bootAPI{Internal: internalMarker, Elastic: b.usesElasticIP()},
	}

	if b.hasPublicBalancer() || b.usesElasticIP() {
		config.API.Public = publicMarker
	}

	if b.SignalStack && !l.group.Spec.UsesKarpenter() {
		config.Signal = graph.SignalsPlaceholder(graph.Address(awskind.AutoScalingGroup{}.Kind(), l.name))
		config.Stack = graph.StackNamePlaceholder
	}

	if l.group.Spec.UserDataFormat == "Ignition" {
		return b.ignitionConfig(l, config)
	}

	return strings.Replace(b.BootScript, configMarker, marshalJSON(config), 1)
}

// bootUserData returns the boot script with the boot configuration, with the load balancers' names as symbols.
func (b *builder) bootUserData(l machineSet) graph.Text {
	outer, inner := b.apiHostnames()
	text := graph.LiteralText(bootText(b, l))
	text = replaceMarker(replaceMarker(text, internalMarker, inner), publicMarker, outer)
	size := sizeOf(text)
	if b.SignalStack {
		text = b.markVersion(l.group, text)
		size += reservedNameBytes // the stack's name
	}

	checkBootSize(b, l.group, size)

	return text
}

// checkBootSize reports a boot script that is too long.
func checkBootSize(b *builder, ig v1alpha1.InstanceGroup, size int) {
	if size > maxBootUserData {
		b.findings.Errorf(
			"instancegroup/"+ig.Metadata.Name,
			"",
			"shorten the names of the cluster, the group or the store",
			"user data would have %d bytes, at most %d are allowed",
			size,
			maxBootUserData,
		)
	}
}

// markVersion replaces the part of the user data that depends on the Kubernetes version, the end of the
// document's name and its hash, by a placeholder. Users of a template can then choose among the documents of
// several versions.
func (b *builder) markVersion(ig v1alpha1.InstanceGroup, text graph.Text) graph.Text {
	sum := b.Boot[ig.Metadata.Name].DocumentSHA256
	end := sum + `.json","sha256":"` + sum
	placeholder := graph.VersionedValue{
		Version: b.Cluster.Spec.KubernetesVersion,
		Key:     ig.Metadata.Name,
		Value:   end,
	}.Placeholder()

	return replaceMarker(text, end, graph.LiteralText(placeholder))
}

// replaceMarker replaces the first marker in each literal part of t by value.
func replaceMarker(t graph.Text, marker string, value graph.Text) graph.Text {
	var out []graph.Text
	for _, p := range t.Parts() {
		if p.Symbol != (graph.Symbol{}) {
			out = append(out, graph.SymbolText(p.Symbol))
			continue
		}

		before, after, found := strings.Cut(p.Literal, marker)
		out = append(out, graph.LiteralText(before))
		if found {
			out = append(out, value, graph.LiteralText(after))
		}
	}

	return graph.Concat(out...)
}
