// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// BoundaryName returns the name of the permissions boundary of all machines that read the store in a bucket.
func BoundaryName(bucket string) string { return "slipway-machines-" + bucket }

// BoundaryPath is the IAM path of permissions boundaries.
const BoundaryPath = "/slipway/"

// BoundaryARN returns the ARN of the permissions boundary for the machine store in bucket.
func BoundaryARN(partition, account, bucket string) string {
	return "arn:" + partition + ":iam::" + account + ":policy" + BoundaryPath + BoundaryName(bucket)
}

// BuildBoundary returns the permissions boundary of the roles of machines that read the store st: the most that any
// of them may be allowed. It has no action of IAM and STS. Each role is limited to the cluster of its own tag. An
// administrator may extend the boundary for groups with permissions of their own. Images can be pulled from private
// registries of the account, and of the accounts that the manifests name.
//
// IAM counts its characters, so statements with the same condition are one, and an action is named with a star where the
// Service Authorization Reference has no other action that the star stands for. The policies of the roles are the narrow ones.
func BuildBoundary(in Input, st StoreLocation) Policy {
	s := policyBuilder{in}
	s.Region = "*"
	s.Stores = []StoreLocation{st}

	return Policy{Version: policyVersion, Statement: slices.Concat(
		s.boundaryOfAPIs(),
		s.boundaryOfVolumes(),
		s.boundaryOfStore(st),
		s.boundaryOfRecords(),
		s.boundaryOfRegistries(),
		s.boundaryOfTags(),
		s.boundaryOfVPCCNI(),
	)}
}

// clusterOfRole is the policy variable with the value of a role's own cluster tag.
const clusterOfRole = "${aws:PrincipalTag/" + awskind.TagCluster + "}"

// boundaryOfTags denies everything to a role whose cluster tag is not that of its path. Who creates a role, such as an operator,
// chooses its trust, and may assume it with a tag of the session, which takes the place of the role's own one. The path stays,
// and operators create roles only below that of their cluster. A path with more parts may end in the name of another cluster.
func (policyBuilder) boundaryOfTags() []Statement {
	deny := func(sid, operator, roles string) Statement {
		all := []string{"*"}

		return newDeny(sid, all, all, condition{operator: {"aws:PrincipalArn": {roles}}})
	}

	return []Statement{
		deny("Tag", "StringNotLike", "*:role/slipway/*/"+clusterOfRole+"/*"),
		deny("Path", "StringLike", "*/*/*/*/*/*"), // arn:aws:iam::ACCOUNT:role/slipway/REGION/CLUSTER/NAME has four slashes
	}
}

// boundaryOfAPIs allows the calls of agents to EC2 and Auto Scaling, and sessions.
func (policyBuilder) boundaryOfAPIs() []Statement {
	return []Statement{
		newStatement(
			"Find",
			slices.Concat(
				qualifyActions(
					"ec2", "DescribeAddresses", "DescribeInstances", "DescribeTags", "DescribeVolumes",
				),
				qualifyActions("autoscaling", "DescribeAutoScaling*", "DescribeLifecycleHooks"),
				qualifyActions("ssm", "UpdateInstanceInformation"),
				qualifyActions("ssmmessages", "*Channel"),
				qualifyActions("ecr", "GetAuth*"), // has no resource
			),
			[]string{"*"},
			nil,
		),
		newStatement(
			"Attach",
			slices.Concat(
				qualifyActions(
					"ec2", "AssociateAddress", "AttachVolume", "DescribeInstanceAttribute", "DetachVolume",
					"DisassociateAddress",
				),
				qualifyActions(
					"autoscaling", "CompleteLifecycle*", "RecordLifecycle*", "SetInstanceHealth", "TerminateInstance*",
				),
			),
			[]string{"*"}, // the tag says which
			stringEquals("aws:ResourceTag/"+awskind.TagCluster, clusterOfRole),
		),
	}
}

// boundaryOfVolumes allows creating empty volumes of the cluster. The role of a slot says which. Tags are given to a new volume
// only, since they decide whose a volume is.
func (s policyBuilder) boundaryOfVolumes() []Statement {
	return []Statement{
		newStatement(
			"Volumes",
			qualifyActions("ec2", "CreateVolume"),
			s.ec2ARNs("volume"), // and no snapshot
			condition{
				"StringEquals": {"aws:RequestTag/" + awskind.TagCluster: {clusterOfRole}},
				"Null":         {"ec2:ParentSnapshot": {"true"}},
			},
		),
		newStatement(
			"TagVolumes",
			qualifyActions("ec2", "CreateTags"),
			[]string{"*"},
			stringEquals("ec2:CreateAction", "CreateVolume"),
		),
	}
}

// boundaryOfStore allows reading and writing the machine store, and using its key for that, and what has the cluster's names in
// its resources or none.
func (s policyBuilder) boundaryOfStore(st StoreLocation) []Statement {
	base := s.storeBase(st)
	keys := []string{s.regionalARN("kms", "key/*")}
	sealed := s.storeKeyCondition()
	sealed["StringEquals"] = map[string][]string{"kms:EncryptionContext:" + awskind.TagCluster: {clusterOfRole}}
	services := []string{"ec2.*." + s.dnsSuffix(), "s3.*." + s.dnsSuffix()}

	return []Statement{
		newStatement(
			"Store",
			slices.Concat(
				qualifyActions("s3", "DeleteObject", "GetObject", "ListBucket", "PutObject"),
				qualifyActions("cloudformation", "SignalResource"),
				qualifyActions("logs", "CreateLogStream", "PutLogEvents"),
				qualifyActions("route53", "ListResourceRecordSets"),
				pullActions(),
			),
			[]string{
				base + "/" + clusterOfRole + "/machine/*",
				"arn:" + s.Partition + ":s3:::" + st.Bucket,
				s.regionalARN("cloudformation", "stack/*"),
				s.regionalARN("logs", "log-group:/aws/lambda/slipway-dns-*"),
				s.hostedZoneARN("*"),
				s.repositoriesOf(s.Account),
			},
			nil,
		),
		newStatement( // a machine may add to the audit log, and never replace a part of it
			"Audit",
			qualifyActions("s3", "PutObject"),
			[]string{base + "/" + store.AuditLogPrefix(clusterOfRole) + "*"},
			condition{"Null": {"s3:if-none-match": {"false"}}},
		),
		// S3 and EC2 use a key for the caller only with objects and volumes that the caller may use. The statements Store and
		// Volumes say which.
		newStatement(
			"Encrypt",
			qualifyActions("kms", "CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKey*"),
			keys,
			condition{"StringLike": {"kms:ViaService": services}},
		),
		newStatement("Keys", qualifyActions("kms", "Decrypt", "GenerateDataKey"), keys, sealed),
	}
}

// pullActions returns the actions that pull an image. The role of a machine names its repositories.
func pullActions() []string {
	return qualifyActions("ecr", "BatchCheck*", "BatchGetImage", "GetDownload*")
}

// repositoriesOf returns the pattern of the repositories of an account, in all regions.
func (s policyBuilder) repositoriesOf(account string) string {
	s.Account = account

	return s.regionalARN("ecr", "repository/*")
}

// boundaryOfRegistries allows pulling from the registries of other accounts. Each account has a statement of its own, which
// stays in the boundary as long as nobody takes it out: another cluster with the same boundary may need it.
func (s policyBuilder) boundaryOfRegistries() []Statement {
	var out []Statement
	for _, account := range s.RegistryAccounts {
		out = append(out, newStatement("Images"+account, pullActions(), []string{s.repositoriesOf(account)}, nil))
	}

	return out
}
