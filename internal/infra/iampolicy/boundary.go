// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
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
// administrator may extend the boundary for groups with permissions of their own.
func BuildBoundary(in Input, st StoreLocation) Policy {
	s := policyBuilder{in}
	s.Region = "*"
	s.Stores = []StoreLocation{st}

	return Policy{Version: policyVersion, Statement: slices.Concat(
		s.boundaryOfAPIs(),
		s.boundaryOfStore(st),
		s.boundaryOfFunction(),
		[]Statement{
			newStatement(
				"Sessions",
				slices.Concat(
					qualifyActions("ssm", "UpdateInstanceInformation"),
					qualifyActions(
						"ssmmessages", "CreateControlChannel", "CreateDataChannel", "OpenControlChannel",
						"OpenDataChannel",
					),
				),
				[]string{"*"},
				nil,
			),
			newStatement(
				"Signal",
				qualifyActions("cloudformation", "SignalResource"),
				[]string{s.regionalARN("cloudformation", "stack/*")},
				nil,
			),
			// A registry may belong to another account. A role names its own.
			newStatement(
				"Pull",
				append(ecraddress.PullActions(), ecraddress.TokenAction),
				[]string{"*"},
				nil,
			),
		},
	)}
}

// clusterOfRole is the policy variable with the value of a role's own cluster tag.
const clusterOfRole = "${aws:PrincipalTag/" + awskind.TagCluster + "}"

// boundaryOfAPIs allows the calls of agents to EC2 and Auto Scaling.
func (s policyBuilder) boundaryOfAPIs() []Statement {
	return []Statement{
		newStatement(
			"Find",
			slices.Concat(
				qualifyActions(
					"ec2", "DescribeAddresses", "DescribeInstances", "DescribeTags", "DescribeVolumes",
				),
				qualifyActions(
					"autoscaling", "DescribeAutoScalingGroups", "DescribeAutoScalingInstances",
					"DescribeLifecycleHooks",
				),
			),
			[]string{"*"},
			nil,
		),
		newStatement(
			"Attach",
			slices.Concat(
				qualifyActions(
					"ec2", "AssociateAddress", "AttachVolume", "DetachVolume", "DisassociateAddress",
				),
				qualifyActions(
					"autoscaling", "CompleteLifecycleAction", "RecordLifecycleActionHeartbeat",
					"SetInstanceHealth", "TerminateInstanceInAutoScalingGroup",
				),
			),
			[]string{s.regionalARN("ec2", "*"), s.regionalARN("autoscaling", "autoScalingGroup:*")},
			stringEquals("aws:ResourceTag/"+awskind.TagCluster, clusterOfRole),
		),
	}
}

// boundaryOfStore allows reading and writing the machine store, and using its key for that.
func (s policyBuilder) boundaryOfStore(st StoreLocation) []Statement {
	base := s.storeBase(st)
	sealed := s.storeKeyCondition()
	sealed["StringEquals"] = map[string][]string{"kms:EncryptionContext:" + awskind.TagCluster: {clusterOfRole}}
	byS3 := s.storeKeyCondition()
	byS3["StringLike"] = map[string][]string{"kms:ViaService": {"s3.*." + s.dnsSuffix()}}

	return []Statement{
		newStatement(
			"Store",
			qualifyActions("s3", "DeleteObject", "GetObject", "PutObject"),
			[]string{base + "/" + clusterOfRole + "/machine/*"},
			nil,
		),
		newStatement( // a machine may add to the audit log, and never replace a part of it
			"Audit",
			qualifyActions("s3", "PutObject"),
			[]string{base + "/" + store.AuditLogPrefix(clusterOfRole) + "*"},
			condition{"Null": {"s3:if-none-match": {"false"}}},
		),
		newStatement(
			"List",
			qualifyActions("s3", "ListBucket"),
			[]string{"arn:" + s.Partition + ":s3:::" + st.Bucket},
			nil,
		),
		newStatement(
			"Objects",
			qualifyActions("kms", "Decrypt", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			byS3,
		),
		newStatement(
			"Keys",
			qualifyActions("kms", "Decrypt", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			sealed,
		),
	}
}
