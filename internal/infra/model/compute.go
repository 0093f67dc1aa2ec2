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
	// maxUserData in bytes: what the machines of every cluster are promised; AWS allows 16 KiB.
	maxUserData = 4096
	// nameRoom is what an unknown load balancer's name is counted as.
	nameRoom = 100
)

// launch is one set of like machines: a slot of a control plane or a group of workers.
type launch struct {
	group v1alpha1.InstanceGroup
	// name in the graph, and slot of a control plane.
	name, slot string
	of         *machines
	min, max   int
	subnets    []string
	targets    []graph.Ref[awskind.TargetGroup]
	after      []graph.Pointer
}

// controlPlane adds, for each slot, an encrypted volume for etcd, a launch template, and a group of one in one zone:
// a machine that comes back finds exactly its own data. Slots do not wait for each other.
func (b *builder) controlPlane() {
	for _, ig := range b.groups(v1alpha1.RoleControlPlane) {
		for i := range ig.Spec.MinSize {
			slot := string(rune('a' + i))
			subnet := ig.Spec.Subnets[i%len(ig.Spec.Subnets)]
			volume := b.etcdVolume(slot, subnet)
			b.launch(launch{
				group: ig, name: ig.Metadata.Name + "-" + slot, slot: slot, of: &b.cp, min: 1, max: 1,
				subnets: []string{subnet}, targets: b.targets, after: []graph.Pointer{volume},
			})
		}
	}
}

// workers adds a launch template and an auto scaling group for each group of workers.
func (b *builder) workers() {
	for _, ig := range b.groups(v1alpha1.RoleWorker) {
		of := &b.worker
		if OwnRights(ig) {
			of = b.groupRole(ig)
		}
		b.launch(launch{
			group: ig, name: ig.Metadata.Name, of: of, min: ig.Spec.MinSize, max: ig.Spec.MaxSize, subnets: ig.Spec.Subnets,
		})
	}
}

func (b *builder) etcdVolume(slot, subnet string) graph.Ref[awskind.Volume] {
	v, name := b.Cluster.Spec.Etcd.Volume, "etcd-"+slot
	ref := graph.Add(b.g, name, awskind.Volume{
		Zone: b.zoneOf(subnet), VolumeType: v.Type, Size: v.Size, IOPS: v.IOPS, Throughput: v.Throughput,
		Encrypted: true, KMSKey: b.key,
		Tags: b.tags(awskind.Volume{}.Kind(), name, awskind.Tags{awskind.TagSlot: slot}),
	})
	graph.Protect(b.g, ref)
	return ref
}

func (b *builder) launch(l launch) {
	template := graph.Add(b.g, l.name, awskind.LaunchTemplate{
		Name: l.name + "." + b.name(), Data: b.template(l), Tags: b.labelled(l.group, b.tags(awskind.LaunchTemplate{}.Kind(), l.name, nil)),
	})
	// A machine without a way out or without its role's rights would only wait.
	after := slices.Concat(l.of.policies, []graph.Pointer{l.of.egress}, l.after)
	var subnets []graph.Ref[awskind.Subnet]
	for _, s := range l.subnets {
		subnets = append(subnets, b.subnets[s])
		after = append(after, b.wayOut[s]...)
	}
	tags := awskind.Tags{awskind.TagRole: roleTag(l.group.Spec.Role), awskind.TagGroup: l.group.Metadata.Name}
	if l.slot != "" {
		tags[awskind.TagSlot] = l.slot
	}
	maps.Copy(tags, b.autoscalerTags(l.group))
	group := awskind.AutoScalingGroup{
		Name: l.name + "." + b.name(), MinSize: l.min, MaxSize: l.max, DesiredCapacity: l.min,
		Subnets: subnets, TargetGroups: l.targets, HealthCheckType: "EC2", Rebalance: l.group.Spec.CapacityRebalance,
		Warm: warm(l.group.Spec.WarmPool),
		Tags: b.labelled(l.group, b.tags(awskind.AutoScalingGroup{}.Kind(), l.name, tags)),
	}
	from := awskind.TemplateSpec{ID: template, Version: template.Attr("LatestVersionNumber")}
	if group.Mixed = mixed(l.group.Spec, from); len(group.Mixed.Launch.Overrides) == 0 {
		group.Template = from
	}
	graph.Add(b.g, l.name, group, after...)
}

func (b *builder) template(l launch) awskind.LaunchTemplateData {
	image, root := b.Images[l.group.Metadata.Name], l.group.Spec.RootVolume
	hop := max(l.group.Spec.InstanceMetadata.HTTPPutResponseHopLimit, 1)
	tags := maps.Clone(b.Cluster.Spec.Tags)
	if tags == nil {
		tags = awskind.Tags{}
	}
	maps.Copy(tags, awskind.Tags{
		awskind.TagCluster: b.name(), awskind.TagGroup: l.group.Metadata.Name,
		awskind.TagClusterOwned + b.name(): "owned", "Name": l.name + "." + b.name(),
	})
	tags = b.labelled(l.group, tags)
	groups := []graph.Ref[awskind.SecurityGroup]{l.of.group}
	for _, id := range l.group.Spec.AdditionalSecurityGroups {
		groups = append(groups, graph.Existing[awskind.SecurityGroup](id))
	}
	key := b.key
	if root.EncryptionKey != "" {
		key = graph.Lit(root.EncryptionKey)
	}
	return awskind.LaunchTemplateData{
		ImageID: image.ID, InstanceType: l.group.Spec.MachineType, KeyName: b.keyPair,
		Profile: awskind.ProfileSpec{Name: l.of.profile}, SecurityGroups: groups,
		BlockDevices: []awskind.BlockDevice{{DeviceName: image.RootDevice, EBS: awskind.EBS{
			VolumeType: root.Type, VolumeSize: root.Size, IOPS: root.IOPS, Throughput: root.Throughput,
			Encrypted: true, KMSKey: key, DeleteOnTermination: true,
		}}},
		Metadata: awskind.MetadataOptions{Endpoint: "enabled", Tokens: "required", HopLimit: hop},
		Tags:     []awskind.TagSpecification{{ResourceType: "network-interface", Tags: tags}, {ResourceType: "volume", Tags: tags}},
		UserData: b.allUserData(l).Base64(),
	}
}

// bootConfig is what a machine is told; package node reads it back.
type bootConfig struct {
	Cluster  string    `json:"cluster"`
	Group    string    `json:"group"`
	Role     string    `json:"role"`
	Region   string    `json:"region"`
	Agent    download  `json:"agent"`
	Document download  `json:"document"`
	API      endpoints `json:"api"`
	// What differs within a group comes last, so that a template holds the rest once.
	Slot   string `json:"slot,omitempty"`
	Signal string `json:"signal,omitempty"`
	Stack  string `json:"stack,omitempty"`
}

type download struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
}

type endpoints struct {
	Public   string `json:"public,omitempty"`
	Internal string `json:"internal"`
	Elastic  bool   `json:"elastic,omitempty"`
}

// userData is the boot script with the configuration in it, and in that the load balancers' names, which AWS makes up (D12).
func (b *builder) userData(l launch) graph.Text {
	const public, internal = "@@PUBLIC@@", "@@INTERNAL@@"
	boot := b.Boot[l.group.Metadata.Name]
	config := bootConfig{
		Cluster: b.name(), Group: l.group.Metadata.Name, Role: roleTag(l.group.Spec.Role), Slot: l.slot, Region: b.Region,
		Agent:    download{URL: boot.AgentURL, SHA256: boot.AgentSHA256},
		Document: download{URL: boot.DocumentURL, SHA256: boot.DocumentSHA256},
		API:      endpoints{Internal: internal, Elastic: b.elastic()},
	}
	outer, inner := b.reach()
	if len(outer.Parts()) > 0 {
		config.API.Public = public
	}
	if b.Signals {
		config.Signal, config.Stack = graph.Signals(graph.Address(awskind.AutoScalingGroup{}.Kind(), l.name)), graph.StackName
	}
	text := graph.Lit(strings.Replace(b.BootScript, configMarker, marshal(config), 1))
	if l.group.Spec.UserDataFormat == "Ignition" {
		text = graph.Lit(b.ignition(l, config))
	}
	text = substitute(substitute(text, internal, inner), public, outer)
	size := sizeOf(text)
	if b.Signals {
		text = b.versioned(l.group, text)
	}
	if b.Signals {
		size += nameRoom // the stack's name
	}
	if size > maxUserData {
		b.findings.Errorf("instancegroup/"+l.group.Metadata.Name, "", "shorten the names of the cluster, the group or the store",
			"user data would have %d bytes, at most %d are allowed", size, maxUserData)
	}
	return text
}

// versioned lets users of a template choose among the documents of several versions of Kubernetes: the end of a document's
// name, with its hash, is what tells them apart.
func (b *builder) versioned(ig v1alpha1.InstanceGroup, text graph.Text) graph.Text {
	sum := b.Boot[ig.Metadata.Name].DocumentSHA256
	end := sum + `.json","sha256":"` + sum
	mark := graph.Versioned{Version: b.Cluster.Spec.KubernetesVersion, Key: ig.Metadata.Name, Value: end}.Mark()
	return substitute(text, end, graph.Lit(mark))
}

// substitute puts value in the place of the first marker in the literal parts of t.
func substitute(t graph.Text, marker string, value graph.Text) graph.Text {
	var out []graph.Text
	for _, p := range t.Parts() {
		if p.Symbol != (graph.Symbol{}) {
			out = append(out, graph.SymbolText(p.Symbol))
			continue
		}
		before, after, found := strings.Cut(p.Literal, marker)
		out = append(out, graph.Lit(before))
		if found {
			out = append(out, value, graph.Lit(after))
		}
	}
	return graph.Concat(out...)
}
