// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// functionARN returns the ARN of the function that keeps DNS records.
func (s policyBuilder) functionARN() string { return s.regionalARN("lambda", "function:"+s.Function) }

// ruleARN returns the ARN of the rule that triggers the function.
func (s policyBuilder) ruleARN() string { return s.regionalARN("events", "rule/"+s.Function) }

// logGroupARN returns the ARN of the log group of the function. Some operations need it with :* at its end.
func (s policyBuilder) logGroupARN() string {
	return s.regionalARN("logs", "log-group:"+awskind.FunctionLogGroup(s.Function))
}

// functionReadStatements allows reading the function, its rule and its log group. CloudWatch Logs does not restrict the list
// of log groups to one of them.
func (s policyBuilder) functionReadStatements() []Statement {
	return []Statement{
		newStatement(
			"ReadFunction",
			qualifyActions("lambda", "GetFunction", "GetPolicy"),
			[]string{s.functionARN()},
			nil,
		),
		newStatement(
			"ReadRule",
			qualifyActions("events", "DescribeRule", "ListTagsForResource", "ListTargetsByRule"),
			[]string{s.ruleARN()},
			nil,
		),
		newStatement(
			"FindLogGroup",
			qualifyActions("logs", "DescribeLogGroups"), // it has no resources
			[]string{"*"},
			nil,
		),
		newStatement(
			"ReadLogGroup",
			qualifyActions("logs", "ListTagsForResource"),
			[]string{s.regionalARN("logs", "log-group:*")},
			nil,
		),
	}
}

// triggers returns the principals of the services that trigger the function.
func (s policyBuilder) triggers() []string {
	if s.HasTopic {
		return []string{awskind.PrincipalEventBridge, awskind.PrincipalSNS}
	}

	return []string{awskind.PrincipalEventBridge}
}

// functionStatements allows managing the function, its rule and its log group, and passing its role to Lambda.
//
// They are no way to more permissions: who can replace the code of the function has the permissions of its role, and that
// role has the boundary of machines.
func (s policyBuilder) functionStatements() []Statement {
	if s.Function == "" {
		return nil
	}

	return []Statement{
		newStatement(
			"ChangeFunction",
			qualifyActions(
				"lambda", "CreateFunction", "DeleteFunction", "InvokeFunction", "RemovePermission", "TagResource",
				"UntagResource", "UpdateFunctionCode", "UpdateFunctionConfiguration",
			),
			[]string{s.functionARN()},
			nil,
		),
		newStatement(
			"TriggerFunction",
			qualifyActions("lambda", "AddPermission"),
			[]string{s.functionARN()},
			stringEquals("lambda:Principal", s.triggers()...),
		),
		newStatement(
			"PassFunctionRole",
			qualifyActions("iam", "PassRole"),
			[]string{"arn:" + s.Partition + ":iam::" + s.Account + ":role" + s.RolePath + s.FunctionRole},
			stringEquals("iam:PassedToService", awskind.PrincipalLambda),
		),
		newStatement(
			"ChangeRule",
			qualifyActions("events", "DeleteRule", "PutRule", "RemoveTargets", "TagResource", "UntagResource"),
			[]string{s.ruleARN()},
			nil,
		),
		newStatement(
			"ChangeTargets",
			qualifyActions("events", "PutTargets"),
			[]string{s.ruleARN()},
			condition{"ForAllValues:StringEquals": {"events:TargetArn": {s.functionARN()}}},
		),
		newStatement(
			"ChangeLogGroup",
			qualifyActions(
				"logs", "CreateLogGroup", "DeleteLogGroup", "PutRetentionPolicy", "TagResource", "UntagResource",
			),
			[]string{s.logGroupARN(), s.logGroupARN() + ":*"},
			nil,
		),
	}
}

// boundaryOfRecords allows the function of a cluster to keep the DNS records of the cluster's members of etcd. No pattern
// matches a record of another cluster: names of clusters may have dots, so there may be one whose name ends in this one's.
func (s policyBuilder) boundaryOfRecords() []Statement {
	const names = "route53:ChangeResourceRecordSetsNormalizedRecordNames"
	domain := v1alpha1.EtcdZone(clusterOfRole)

	return []Statement{
		newStatement(
			"Records",
			qualifyActions("route53", "ChangeResourceRecordSets"),
			[]string{s.hostedZoneARN("*")},
			condition{
				"ForAllValues:StringLike": {names: {"etcd-?." + domain, "_etcd-*._tcp." + domain}},
				"Null":                    {names: {"false"}}, // ForAllValues holds without any name
			},
		),
	}
}
