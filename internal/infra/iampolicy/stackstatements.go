// SPDX-License-Identifier: Apache-2.0

package iampolicy

import "maps"

// BuildStackPolicy returns the policy that an operator needs in addition to [BuildPolicies] if CloudFormation creates the
// cluster. The stack has no service role: CloudFormation makes its calls with the operator's own permissions, so a template of
// the operator's can do nothing that the operator cannot.
//
// Two permissions are only for calls by CloudFormation. It creates the cluster's key with its tags, for which KMS asks for the
// permission to tag all keys, and enables its rotation at once, while KMS may not see the tags for five minutes. CloudFormation
// does both with the keys of its stack alone. A stack gets a key of others only by an import, which the policy does not allow.
func BuildStackPolicy(in Input) Policy {
	s := policyBuilder{in}
	viaCloudFormation := condition{
		"ForAnyValue:StringEquals": {"aws:CalledVia": {"cloudformation.amazonaws.com"}},
	}
	tagKey := s.requestHasClusterTag()
	maps.Copy(tagKey, viaCloudFormation)

	return Policy{Version: policyVersion, Statement: append([]Statement{
		newStatement(
			"UseStack",
			qualifyActions(
				"cloudformation", "ContinueUpdateRollback", "CreateChangeSet", "CreateStack", "DeleteChangeSet",
				"DeleteStack", "DescribeChangeSet", "DescribeStackEvents", "DescribeStacks", "ExecuteChangeSet",
				"GetTemplate", "ListChangeSets", "ListStackResources", "SetStackPolicy", "UpdateStack",
				"UpdateTerminationProtection",
			),
			[]string{s.regionalARN("cloudformation", "stack/slipway-"+s.Cluster+"/*")},
			condition{"Null": {"cloudformation:RoleArn": {"true"}, "cloudformation:ImportResourceTypes": {"true"}}},
		),
		newStatement("ReadForStack", qualifyActions("ec2", "DescribeNetworkAcls"), []string{"*"}, viaCloudFormation),
		newStatement(
			"TagKeyOfStack",
			qualifyActions("kms", "TagResource"),
			[]string{s.regionalARN("kms", "key/*")},
			tagKey,
		),
		newStatement(
			"RotateKeyOfStack",
			qualifyActions("kms", "EnableKeyRotation"),
			[]string{s.regionalARN("kms", "key/*")},
			viaCloudFormation,
		),
	}, s.topicStackStatements(viaCloudFormation)...)}
}
