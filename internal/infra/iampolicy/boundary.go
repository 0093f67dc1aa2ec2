// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
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
// of them may be allowed. It has no action of IAM and STS, and none that changes what is not tagged as a cluster's.
// An administrator may extend it for groups with permissions of their own.
func BuildBoundary(in Input, st StoreLocation) Policy {
	s := policyBuilder{in}
	s.Region = "*"
	s.Stores = []StoreLocation{st}
	base := strings.TrimSuffix("arn:"+s.Partition+":s3:::"+st.Bucket+"/"+st.Prefix, "/")
	ofCluster := condition{"Null": {"aws:ResourceTag/" + awskind.TagCluster: {"false"}}}

	return Policy{Version: policyVersion, Statement: []Statement{
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
					"SetInstanceHealth",
				),
			),
			[]string{s.regionalARN("ec2", "*"), s.regionalARN("autoscaling", "autoScalingGroup:*")},
			ofCluster,
		),
		newStatement(
			"Store",
			qualifyActions("s3", "DeleteObject", "GetObject", "PutObject"),
			[]string{base + "/*/machine/*"},
			nil,
		),
		newStatement(
			"List",
			qualifyActions("s3", "ListBucket"),
			[]string{"arn:" + s.Partition + ":s3:::" + st.Bucket},
			nil,
		),
		newStatement(
			"Keys",
			qualifyActions("kms", "Decrypt", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
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
	}}
}
