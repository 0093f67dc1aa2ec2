// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// KarpenterBoundaryName returns the name of the permissions boundary of the roles of Karpenter in
// the clusters whose machines read the store in a bucket.
func KarpenterBoundaryName(bucket string) string { return "slipway-karpenter-" + bucket }

// KarpenterBoundaryARN returns the ARN of the permissions boundary of Karpenter's roles for the
// machine store in bucket.
func KarpenterBoundaryARN(partition, account, bucket string) string {
	return "arn:" + partition + ":iam::" + account + ":policy" +
		BoundaryPath + KarpenterBoundaryName(bucket)
}

// KarpenterInput is what the policy of Karpenter's role depends on.
type KarpenterInput struct {
	// Partition is aws, aws-cn or aws-us-gov.
	Partition string
	// Region such as us-east-1.
	Region string
	// Account is the AWS account's 12 digits.
	Account string
	// Cluster is the cluster's name, and ClusterID its random id.
	Cluster, ClusterID string
	// Groups are the names of Karpenter's groups.
	Groups []string
	// Images are the ids of the machine images that they use.
	Images []string
	// Role is the ARN of the IAM role of the workers, and Profile that of their instance profile.
	Role, Profile string
	// Keys are the ARNs of the KMS keys of the user that encrypt the machines' volumes. The policy
	// of Slipway's own key allows its use.
	Keys []string
}

// BuildKarpenterPolicy returns the policy of Karpenter's role (docs/design/0028-karpenter.md): it
// may launch workers of its groups with the cluster's subnets, security group and images, and end
// what it launched. What is launched runs what Karpenter's user data says, so all rights of such a
// machine are Karpenter's too. Without groups it may only end machines.
func BuildKarpenterPolicy(in KarpenterInput) Policy {
	s := policyBuilder{Input{
		Partition: in.Partition,
		Region:    in.Region,
		Account:   in.Account,
		Cluster:   in.Cluster,
	}}
	worker := stringEquals("aws:RequestTag/"+awskind.TagCluster, in.Cluster)
	worker["StringEquals"]["aws:RequestTag/"+awskind.TagClusterID] = []string{in.ClusterID}
	worker["StringEquals"]["aws:RequestTag/"+awskind.TagRole] = []string{"worker"}
	worker["StringEquals"]["aws:RequestTag/"+awskind.TagGroup] = in.Groups
	images := make([]string, 0, len(in.Images))
	for _, id := range in.Images {
		images = append(images, "arn:"+in.Partition+":ec2:"+in.Region+"::image/"+id)
	}

	k := karpenterPolicy{
		policyBuilder: s,
		cluster:       in.Cluster,
		images:        images,
		role:          in.Role,
		profile:       in.Profile,
		worker:        worker,
	}
	if len(in.Groups) == 0 {
		return Policy{
			Version:   policyVersion,
			Statement: []Statement{readForKarpenter(), k.deleteStatement()},
		}
	}

	list := k.statements()
	if len(in.Keys) > 0 {
		list = append(list, k.encryptStatement(in.Keys))
	}

	return Policy{Version: policyVersion, Statement: list}
}

// BuildKarpenterBoundary returns the permissions boundary of Karpenter's roles: the most that any
// of them may be allowed. Each is limited to the cluster of its own tag. The statements of
// [BuildBoundary] have no room for it, and machines need none of it.
func BuildKarpenterBoundary(in Input) Policy {
	s := policyBuilder{in}
	s.Region = "*"
	worker := stringEquals("aws:RequestTag/"+awskind.TagCluster, clusterOfRole)
	worker["StringEquals"]["aws:RequestTag/"+awskind.TagRole] = []string{"worker"}
	k := karpenterPolicy{
		policyBuilder: s,
		cluster:       clusterOfRole,
		images:        []string{"arn:" + s.Partition + ":ec2:*::image/*"},
		role:          s.rolesOfCluster("role"),
		profile:       s.rolesOfCluster("instance-profile"),
		worker:        worker,
	}

	return Policy{
		Version: policyVersion,
		Statement: slices.Concat(
			k.statements(),
			[]Statement{k.encryptStatement([]string{s.regionalARN("kms", "key/*")})},
			s.boundaryOfTags(),
		),
	}
}

// rolesOfCluster returns the ARN pattern of the role or instance profile of the workers in the
// cluster of a role, and not of groups with permissions of their own. Neither name is ever
// shortened.
func (s policyBuilder) rolesOfCluster(kind string) string {
	return "arn:" + s.Partition + ":iam::" + s.Account + ":" + kind +
		"/slipway/*/" + clusterOfRole + "/" + clusterOfRole + ".worker.*"
}

// karpenterPolicy builds the statements of Karpenter's policy or boundary.
type karpenterPolicy struct {
	policyBuilder

	cluster string
	images  []string
	role    string
	profile string
	// worker is the condition on the tags of a new machine.
	worker condition
}

func (k karpenterPolicy) statements() []Statement {
	return slices.Concat(k.launchStatements(), k.tagStatements(), []Statement{
		k.deleteStatement(),
		newStatement("PassRole", qualifyActions("iam", "PassRole"), []string{k.role},
			stringEquals("iam:PassedToService", "ec2."+k.dnsSuffix())),
	})
}

// deleteStatement allows Karpenter to end its machines.
func (k karpenterPolicy) deleteStatement() Statement {
	return newStatement(
		"Delete",
		qualifyActions("ec2", "DeleteLaunchTemplate", "TerminateInstances"),
		k.ec2ARNs("instance", "launch-template"),
		k.own(),
	)
}

// readForKarpenter allows what IAM does not restrict to resources.
func readForKarpenter() Statement {
	return newStatement(
		"Read",
		qualifyActions(
			"ec2", "DescribeImages", "DescribeInstances", "DescribeInstanceStatus", "DescribeInstanceTypeOfferings",
			"DescribeInstanceTypes", "DescribeLaunchTemplates", "DescribeSecurityGroups", "DescribeSpotPriceHistory",
			"DescribeSubnets",
		),
		[]string{"*"},
		nil,
	)
}

// own is true for what Karpenter has created in the cluster.
func (k karpenterPolicy) own() condition {
	return condition{
		"StringEquals": {"aws:ResourceTag/" + awskind.TagCluster: {k.cluster}},
		"StringLike":   {"aws:ResourceTag/" + awskind.TagNodePool: {"*"}},
	}
}

// created is true for what Karpenter creates for the cluster.
func (k karpenterPolicy) created() condition {
	return condition{
		"StringEquals": {"aws:RequestTag/" + awskind.TagCluster: {k.cluster}},
		"StringLike":   {"aws:RequestTag/" + awskind.TagNodePool: {"*"}},
	}
}

func (k karpenterPolicy) launchStatements() []Statement {
	launch := qualifyActions("ec2", "CreateFleet", "RunInstances")
	machine := condition{
		"StringEquals": {"ec2:MetadataHttpTokens": {"required"}},
		"StringLike":   {"aws:RequestTag/" + awskind.TagNodePool: {"*"}},
		"ArnLike":      {"ec2:InstanceProfile": {k.profile}},
	}
	maps.Copy(machine["StringEquals"], k.worker["StringEquals"])

	return []Statement{
		readForKarpenter(),
		newStatement(
			"LaunchIn",
			launch,
			k.ec2ARNs("subnet"),
			stringEquals("aws:ResourceTag/"+awskind.TagCluster, k.cluster),
		),
		newStatement("LaunchWith", launch, k.ec2ARNs("security-group"), condition{"StringEquals": {
			"aws:ResourceTag/" + awskind.TagCluster: {k.cluster},
			"aws:ResourceTag/" + awskind.TagAddress: {"security-group/worker"},
		}}),
		newStatement("LaunchImage", launch, k.images, nil),
		newStatement("LaunchFrom", launch, k.ec2ARNs("launch-template"), k.own()),
		newStatement(
			"Create",
			append(slices.Clone(launch), "ec2:CreateLaunchTemplate"),
			k.ec2ARNs("fleet", "launch-template", "network-interface", "spot-instances-request", "volume"),
			k.created(),
		),
		newStatement(
			"Launch",
			qualifyActions("ec2", "RunInstances"),
			k.ec2ARNs("instance"),
			machine,
		),
	}
}

// tagStatements allow tags on what is created, and later the tags that Karpenter adds to its
// instances. No tag may make Slipway take something for a resource of its own, or for a machine of
// the control plane.
func (k karpenterPolicy) tagStatements() []Statement {
	isNew := k.created()
	isNew["StringEquals"]["ec2:CreateAction"] = []string{"CreateFleet", "CreateLaunchTemplate", "RunInstances"}
	isNew["StringEqualsIfExists"] = map[string][]string{"aws:RequestTag/" + awskind.TagRole: {"worker"}}
	isNew["Null"] = map[string][]string{
		"aws:RequestTag/" + awskind.TagAddress: {"true"},
		"aws:RequestTag/" + awskind.TagSlot:    {"true"},
	}
	later := k.own()
	later["ForAllValues:StringEquals"] = map[string][]string{
		"aws:TagKeys": {"Name", "eks:eks-cluster-name", "karpenter.sh/nodeclaim"},
	}

	return []Statement{
		newStatement(
			"TagNew",
			qualifyActions("ec2", "CreateTags"),
			k.ec2ARNs("fleet", "instance", "launch-template", "network-interface", "spot-instances-request", "volume"),
			isNew,
		),
		newStatement("TagOwn", qualifyActions("ec2", "CreateTags"), k.ec2ARNs("instance"), later),
	}
}

// encryptStatement allows EC2 to encrypt the volumes of a machine with keys.
func (k karpenterPolicy) encryptStatement(keys []string) Statement {
	return newStatement(
		"Encrypt",
		qualifyActions("kms", "CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKey*", "ReEncrypt*"),
		keys,
		condition{"StringLike": {"kms:ViaService": {"ec2.*." + k.dnsSuffix()}}},
	)
}
