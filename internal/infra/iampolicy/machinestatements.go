// SPDX-License-Identifier: Apache-2.0

package iampolicy

import "slices"

// machineStatements allows managing load balancers and Auto Scaling groups. A listener has no tags, but its
// ARN contains the load balancer's name.
func (s policyBuilder) machineStatements() []Statement {
	groups := []string{s.regionalARN("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*."+s.Cluster)}
	out := []Statement{
		newStatement(
			"CreateBalancers",
			qualifyActions("elasticloadbalancing", "AddTags", "CreateLoadBalancer", "CreateTargetGroup"),
			[]string{s.regionalARN("elasticloadbalancing", "*")},
			s.requestHasClusterTag(),
		),
		newStatement(
			"ChangeBalancers",
			qualifyActions(
				"elasticloadbalancing", "AddTags", "CreateListener", "ModifyLoadBalancerAttributes",
				"ModifyTargetGroup", "ModifyTargetGroupAttributes", "RemoveTags",
				"SetSecurityGroups", "SetSubnets",
			),
			[]string{s.regionalARN("elasticloadbalancing", "*")},
			s.resourceHasClusterTag(),
		),
		newStatement(
			"ChangeGroups",
			qualifyActions(
				"autoscaling", "AttachLoadBalancerTargetGroups", "CompleteLifecycleAction",
				"CreateAutoScalingGroup", "CreateOrUpdateTags", "DeleteAutoScalingGroup",
				"DeleteLifecycleHook", "DeleteTags", "DetachInstances",
				"DetachLoadBalancerTargetGroups", "PutLifecycleHook",
				"TerminateInstanceInAutoScalingGroup", "UpdateAutoScalingGroup",
			),
			groups,
			nil,
		),
		newStatement("ReadActivities", qualifyActions("autoscaling", "DescribeScalingActivities"), []string{"*"}, nil),
		s.launchStatement(),
	}
	if s.WarmPools {
		out = append(
			out,
			newStatement(
				"WarmPools",
				qualifyActions("autoscaling", "DeleteWarmPool", "PutWarmPool"),
				groups,
				nil,
			),
		)
	}

	return append(out, s.listenerStatements()...)
}

// progressStatements allows reading what machines do.
func (s policyBuilder) progressStatements() []Statement {
	return []Statement{newStatement(
		"ReadProgress",
		slices.Concat(
			qualifyActions("ec2", "DescribeInstances", "GetConsoleOutput"),
			qualifyActions("elasticloadbalancing", "DescribeTargetHealth"),
		),
		[]string{"*"},
		nil,
	)}
}

// listenerStatements allows changing the listeners of the cluster's load balancers; none without load balancers.
func (s policyBuilder) listenerStatements() []Statement {
	if len(s.LoadBalancers) == 0 {
		return nil
	}

	var listeners []string
	for _, name := range s.LoadBalancers {
		listeners = append(listeners, s.regionalARN("elasticloadbalancing", "listener/net/"+name+"/*"))
	}

	return []Statement{newStatement(
		"ChangeListeners",
		qualifyActions("elasticloadbalancing", "DeleteListener", "ModifyListener"),
		listeners,
		nil,
	)}
}

// launchStatement allows launching instances from a launch template of the cluster.
//
// Auto Scaling checks that the creator of a group may launch its instances. The template, subnets and
// security groups must be the cluster's (statement Change).
func (s policyBuilder) launchStatement() Statement {
	return newStatement(
		"Launch",
		qualifyActions("ec2", "RunInstances"),
		append(
			s.ec2ARNs("instance", "key-pair", "network-interface", "volume"),
			"arn:"+s.Partition+":ec2:"+s.Region+"::image/*",
		),
		condition{"ArnLike": {"ec2:LaunchTemplate": {s.regionalARN("ec2", "launch-template/*")}}},
	)
}

// leftoverStatements allows deleting the resources that programs in the cluster created, by the tags that
// they set.
func (s policyBuilder) leftoverStatements() []Statement {
	all := []string{s.regionalARN("ec2", "*/*")}
	groups := qualifyActions(
		"ec2", "DeleteSecurityGroup", "RevokeSecurityGroupEgress", "RevokeSecurityGroupIngress",
	)

	return []Statement{
		newStatement(
			"FindLeftovers",
			qualifyActions("ec2", "DescribeNetworkInterfaces", "DescribeSnapshots"),
			[]string{"*"},
			nil,
		),
		// Slipway's own resources have this tag too.
		newStatement(
			"DeleteOwned",
			append(
				qualifyActions(
					"ec2", "DeleteNetworkInterface", "DeleteSnapshot", "DeleteVolume",
					"TerminateInstances",
				),
				groups...),
			append(slices.Clone(all), "arn:"+s.Partition+":ec2:"+s.Region+"::snapshot/*"), // has no account
			stringEquals("aws:ResourceTag/kubernetes.io/cluster/"+s.Cluster, "owned"),
		),
		newStatement(
			"DeleteOwnedBalancers",
			qualifyActions("elasticloadbalancing", "DeleteLoadBalancer", "DeleteTargetGroup"),
			[]string{s.regionalARN("elasticloadbalancing", "*")},
			stringEquals("aws:ResourceTag/kubernetes.io/cluster/"+s.Cluster, "owned"),
		),
		newStatement(
			"DeleteControllerResources",
			append(
				qualifyActions("elasticloadbalancing", "DeleteLoadBalancer", "DeleteTargetGroup"),
				groups...),
			append(
				slices.Clone(all),
				s.regionalARN("elasticloadbalancing", "*"),
			),
			stringEquals("aws:ResourceTag/elbv2.k8s.aws/cluster", s.Cluster),
		),
		newStatement(
			"DeleteInterfaces",
			qualifyActions("ec2", "DeleteNetworkInterface"),
			all,
			stringEquals("aws:ResourceTag/cluster.k8s.amazonaws.com/name", s.Cluster),
		),
	}
}
