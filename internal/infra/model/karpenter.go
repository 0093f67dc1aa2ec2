// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// KarpenterLaunch is what Karpenter launches the machines of a group with
// (docs/design/0028-karpenter.md). A group with an Auto Scaling group has a launch template
// instead.
type KarpenterLaunch struct {
	// UserData has the markers @@PUBLIC@@ and @@INTERNAL@@ for the names of the API.
	UserData string
	// Image is the machine image.
	Image Image
	// Profile is the name of the instance profile.
	Profile string
	// Subnets has the tags of each subnet, and SecurityGroups those of each security group.
	Subnets, SecurityGroups []map[string]string
	// VolumeKey is the KMS key of the root volume: an ARN or an alias.
	VolumeKey string
	// Tags of the machines, and of what Karpenter creates for them.
	Tags map[string]string
}

// KarpenterLaunches returns what Karpenter launches the machines of each of its groups with, by the
// name of the group.
func KarpenterLaunches(in Input) map[string]KarpenterLaunch {
	b := &builder{Input: in}
	out := map[string]KarpenterLaunch{}
	for _, ig := range manifest.KarpenterGroups(in.Groups) {
		out[ig.Metadata.Name] = karpenterLaunch(b, ig)
	}

	return out
}

func karpenterLaunch(b *builder, ig v1alpha1.InstanceGroup) KarpenterLaunch {
	l := KarpenterLaunch{
		UserData: karpenterUserData(b, ig),
		Image:    b.Images[ig.Metadata.Name],
		Profile:  RoleName(b.clusterName(), b.Region, v1alpha1.RoleWorker),
		SecurityGroups: []map[string]string{
			addressTags(b, graph.Address(awskind.SecurityGroup{}.Kind(), roleTag(v1alpha1.RoleWorker))),
		},
		VolumeKey: volumeKeyName(b, ig.Spec),
		Tags:      map[string]string{},
	}
	for _, s := range ig.Spec.Subnets {
		l.Subnets = append(l.Subnets, addressTags(b, graph.Address(awskind.Subnet{}.Kind(), s)))
	}

	maps.Copy(l.Tags, b.Cluster.Spec.Tags)
	maps.Copy(l.Tags, ig.Spec.CloudLabels)
	l.Tags[awskind.TagCluster] = b.clusterName()
	l.Tags[awskind.TagClusterID] = b.ClusterID
	l.Tags[awskind.TagRole] = roleTag(ig.Spec.Role)
	l.Tags[awskind.TagGroup] = ig.Metadata.Name

	return l
}

// addressTags returns the tags by which Karpenter finds a resource of the cluster: nobody knows its
// id when templates are rendered.
func addressTags(b *builder, addr graph.Addr) map[string]string {
	return map[string]string{
		awskind.TagCluster:   b.clusterName(),
		awskind.TagClusterID: b.ClusterID,
		awskind.TagAddress:   string(addr),
	}
}

// volumeKeyName returns the KMS key of the root volumes of a group, by a name that is known before
// the key exists.
func volumeKeyName(b *builder, spec v1alpha1.InstanceGroupSpec) string {
	if keys := karpenterKeys(b, []v1alpha1.InstanceGroup{{Spec: spec}}); len(keys) > 0 {
		return keys[0]
	}

	return KeyAliasName(b.clusterName())
}

// karpenterKeys returns the ARNs of the KMS keys of the user that encrypt the root volumes of
// groups, each once.
func karpenterKeys(b *builder, groups []v1alpha1.InstanceGroup) []string {
	var out []string
	for _, ig := range groups {
		key := ig.Spec.RootVolume.EncryptionKey
		if key == "" {
			key = b.Cluster.Spec.CloudProvider.AWS.KMSKeyARN
		}

		if key != "" && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}

	return out
}

// karpenterUserData returns the user data of a group of Karpenter, with markers for the names of
// the API.
func karpenterUserData(b *builder, ig v1alpha1.InstanceGroup) string {
	own := graph.LiteralText(bootText(b, machineSet{group: ig, name: ig.Metadata.Name}))
	var text strings.Builder
	for _, p := range withAdditionalUserData(ig.Spec, own).Parts() {
		text.WriteString(p.Literal) // without symbols there is nothing else
	}

	return text.String()
}

// checkKarpenterUserData reports user data that is too long.
func checkKarpenterUserData(b *builder, ig v1alpha1.InstanceGroup) {
	const names = 2 * reservedNameBytes
	checkBootSize(b, ig, len(bootText(b, machineSet{group: ig, name: ig.Metadata.Name}))+names)
	checkUserDataSize(b, ig, len(karpenterUserData(b, ig))+names)
}

// karpenterAccount returns the service account of Karpenter, without permissions.
func karpenterAccount() v1alpha1.ServiceAccountPermissions {
	return v1alpha1.ServiceAccountPermissions{
		Namespace: manifest.KarpenterNamespace,
		Name:      manifest.KarpenterName,
	}
}

// karpenterInput returns what the policy of Karpenter's role depends on.
func karpenterInput(b *builder, groups []v1alpha1.InstanceGroup) iampolicy.KarpenterInput {
	name := RoleName(b.clusterName(), b.Region, v1alpha1.RoleWorker)
	arn := func(kind string) string {
		return "arn:" + b.Partition + ":iam::" + b.Account + ":" + kind +
			RolePath(b.clusterName(), b.Region) + name
	}

	in := iampolicy.KarpenterInput{
		Partition: b.Partition,
		Region:    b.Region,
		Account:   b.Account,
		Cluster:   b.clusterName(),
		ClusterID: b.ClusterID,
		Images:    slices.Clone(b.KarpenterImages),
		Role:      arn("role"),
		Profile:   arn("instance-profile"),
		Keys:      karpenterKeys(b, groups),
	}
	for _, ig := range groups {
		in.Groups = append(in.Groups, ig.Metadata.Name)
		in.Images = append(in.Images, b.Images[ig.Metadata.Name].ID)
	}

	slices.Sort(in.Groups)
	slices.Sort(in.Images)
	in.Images = slices.Compact(in.Images)

	return in
}

// karpenterBoundary returns the ARN of the permissions boundary of Karpenter's role; empty for a
// store without boundaries.
func karpenterBoundary(b *builder) string {
	if b.MachineStore.Boundary == "" {
		return ""
	}

	return iampolicy.KarpenterBoundaryARN(b.Partition, b.Account, b.MachineStore.Bucket)
}

// launchCheckStatements allows control-plane machines to read the user data of the cluster's
// machines, if Karpenter launches some: they may join only with that of their group.
func launchCheckStatements(b *builder) []policyStatement {
	if len(manifest.KarpenterGroups(b.Groups)) == 0 {
		return nil
	}

	return []policyStatement{{
		ID:        "CheckLaunches",
		Actions:   []string{"ec2:DescribeInstanceAttribute"},
		Resources: []string{"arn:" + b.Partition + ":ec2:" + b.Region + ":" + b.Account + ":instance/*"},
		Condition: policyCondition{"StringEquals": {"aws:ResourceTag/" + awskind.TagCluster: b.clusterName()}},
	}}
}
