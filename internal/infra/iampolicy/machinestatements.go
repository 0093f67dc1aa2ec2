// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// machineStatements allows managing load balancers and Auto Scaling groups. A listener has no tags, but its
// ARN contains the load balancer's name.
func (s policyBuilder) machineStatements() []Statement {
	out := append(s.balancerStatements(), s.groupStatements()...)
	out = append(
		out,
		newStatement(
			"ReadActivities",
			qualifyActions("autoscaling", "DescribeScalingActivities"),
			[]string{"*"},
			nil,
		),
	)
	out = append(out, s.launchStatements()...)

	return append(out, s.listenerStatements()...)
}

// balancerStatements allows creating and changing load balancers and target groups. Tags decide whose they are, so only what
// the request creates can be tagged without having the cluster's tag.
func (s policyBuilder) balancerStatements() []Statement {
	all := []string{s.regionalARN("elasticloadbalancing", "*")}
	isNew := s.requestHasClusterTag()
	isNew["StringEquals"]["elasticloadbalancing:CreateAction"] = []string{
		"CreateListener", "CreateLoadBalancer", "CreateTargetGroup",
	}

	return []Statement{
		newStatement(
			"CreateBalancers",
			qualifyActions("elasticloadbalancing", "CreateLoadBalancer", "CreateTargetGroup"),
			all,
			s.requestHasClusterTag(),
		),
		newStatement(
			"TagNewBalancers",
			qualifyActions("elasticloadbalancing", "AddTags"),
			all,
			isNew,
		),
		newStatement(
			"ChangeBalancers",
			qualifyActions(
				"elasticloadbalancing", "AddTags", "CreateListener", "ModifyLoadBalancerAttributes",
				"ModifyTargetGroup", "ModifyTargetGroupAttributes", "RemoveTags",
				"SetSecurityGroups", "SetSubnets",
			),
			all,
			s.staysInCluster(),
		),
	}
}

// groupStatements allows creating and changing Auto Scaling groups. A group is the cluster's by its name and its tag: names
// of clusters may have dots, so the name of another cluster's group may end in this one's.
func (s policyBuilder) groupStatements() []Statement {
	groups := []string{s.regionalARN("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*."+s.Cluster)}
	create := s.onlyOwnTargets()
	create["StringEquals"] = s.requestHasClusterTag()["StringEquals"]
	// Nobody asks who starts machines of a launch configuration for its role: that was when it was created.
	noConfiguration := map[string][]string{"autoscaling:LaunchConfigurationName": {"true"}}
	create["Null"] = noConfiguration
	update := s.resourceHasClusterTag()
	update["Null"] = noConfiguration
	attach := s.onlyOwnTargets()
	attach["StringEquals"] = s.resourceHasClusterTag()["StringEquals"]
	changes := []string{
		"CompleteLifecycleAction", "DeleteAutoScalingGroup", "DeleteLifecycleHook", "DeleteTags",
		"DetachInstances", "DetachLoadBalancerTargetGroups", "PutLifecycleHook",
		"TerminateInstanceInAutoScalingGroup",
	}
	if s.WarmPools {
		changes = append(changes, "DeleteWarmPool", "PutWarmPool")
	}

	if s.HasTopic {
		changes = append(changes, "DeleteNotificationConfiguration", "PutNotificationConfiguration")
	}

	return []Statement{
		newStatement(
			"CreateGroups",
			qualifyActions("autoscaling", "CreateAutoScalingGroup"),
			groups,
			create,
		),
		newStatement(
			"AttachTargets",
			qualifyActions("autoscaling", "AttachLoadBalancerTargetGroups"),
			groups,
			attach,
		),
		// A group that is being created has no tags yet.
		newStatement(
			"TagGroups",
			qualifyActions("autoscaling", "CreateOrUpdateTags"),
			groups,
			condition{"StringEqualsIfExists": {
				"aws:RequestTag/" + awskind.TagCluster:  {s.Cluster},
				"aws:ResourceTag/" + awskind.TagCluster: {s.Cluster},
			}},
		),
		newStatement(
			"ChangeGroups",
			qualifyActions("autoscaling", changes...),
			groups,
			s.resourceHasClusterTag(),
		),
		newStatement(
			"UpdateGroups",
			qualifyActions("autoscaling", "UpdateAutoScalingGroup"),
			groups,
			update,
		),
	}
}

// onlyOwnTargets requires that a group gets no target groups but the cluster's, and no classic load balancer: its machines
// would get the requests of another workload. The conditions hold for a request without them.
func (s policyBuilder) onlyOwnTargets() condition {
	names := s.TargetGroups
	if len(names) == 0 {
		names = []string{"-"} // no name begins with it
	}

	var targets []string
	for _, name := range names {
		targets = append(targets, s.regionalARN("elasticloadbalancing", "targetgroup/"+name+"/*"))
	}

	return condition{
		"ForAllValues:ArnLike": {"autoscaling:TargetGroupARNs": targets},
		"ForAllValues:StringLike": {
			"autoscaling:LoadBalancerNames":        {""},
			"autoscaling:TrafficSourceIdentifiers": targets,
		},
	}
}

// progressStatements allows reading what machines do.
func (s policyBuilder) progressStatements() []Statement {
	return []Statement{
		newStatement(
			"ReadProgress",
			slices.Concat(
				qualifyActions("ec2", "DescribeInstances"),
				qualifyActions("elasticloadbalancing", "DescribeTargetHealth"),
			),
			[]string{"*"},
			nil,
		),
		newStatement(
			"ReadConsoles",
			qualifyActions("ec2", "GetConsoleOutput"),
			s.ec2ARNs("instance"),
			s.resourceHasClusterTag(),
		),
	}
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

// launchStatements allows launching instances from a launch template of the cluster.
//
// Auto Scaling checks that the creator of a group may launch its instances. The template, subnets and
// security groups must be the cluster's (statement Change). A new network interface gets the cluster's tag from the template, which
// one that exists cannot get by a launch: a machine with that of others would have its addresses.
func (s policyBuilder) launchStatements() []Statement {
	byTemplate := condition{"ArnLike": {"ec2:LaunchTemplate": {s.regionalARN("ec2", "launch-template/*")}}}
	withInterface := s.requestHasClusterTag()
	withInterface["ArnLike"] = byTemplate["ArnLike"]

	return []Statement{
		newStatement(
			"Launch",
			qualifyActions("ec2", "RunInstances"),
			append(
				s.ec2ARNs("instance", "key-pair", "volume"),
				"arn:"+s.Partition+":ec2:"+s.Region+"::image/*",
			),
			byTemplate,
		),
		newStatement(
			"LaunchInterfaces",
			qualifyActions("ec2", "RunInstances"),
			s.ec2ARNs("network-interface"),
			withInterface,
		),
	}
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
