// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// readStatements is what a plan looks at. These operations of EC2, Elastic Load Balancing and Auto Scaling know no narrower
// resource than all; those of IAM and KMS do.
func (s policyBuilder) readStatements() []Statement {
	out := []Statement{
		newStatement("Read", slices.Concat(
			qualifyActions(
				"ec2",
				"DescribeAddresses",
				"DescribeImages",
				"DescribeInternetGateways",
				"DescribeKeyPairs",
				"DescribeLaunchTemplateVersions",
				"DescribeLaunchTemplates",
				"DescribeNatGateways",
				"DescribeRouteTables",
				"DescribeSecurityGroupRules",
				"DescribeSecurityGroups",
				"DescribeSubnets",
				"DescribeTags",
				"DescribeVolumes",
				"DescribeVpcAttribute",
				"DescribeVpcEndpoints",
				"DescribeVpcPeeringConnections",
				"DescribeVpcs",
			),
			qualifyActions(
				"elasticloadbalancing",
				"DescribeListeners",
				"DescribeLoadBalancerAttributes",
				"DescribeLoadBalancers",
				"DescribeTags",
				"DescribeTargetGroupAttributes",
				"DescribeTargetGroups",
			),
			qualifyActions(
				"autoscaling",
				"DescribeAutoScalingGroups",
			),
			qualifyActions("iam", "ListInstanceProfiles", "ListRoles"),
			qualifyActions("kms", "ListAliases", "ListKeys"),
			qualifyActions("route53", "ListHostedZones"),
		), []string{"*"}, nil),
		newStatement(
			"ReadRoles",
			qualifyActions("iam", "GetRole", "GetRolePolicy", "ListAttachedRolePolicies", "ListRolePolicies"),
			[]string{s.iamARN("role"), s.iamARN("instance-profile")},
			nil,
		),
		newStatement(
			"ReadKeys",
			qualifyActions("kms", "DescribeKey", "GetKeyPolicy", "GetKeyRotationStatus", "ListResourceTags"),
			[]string{s.regionalARN("kms", "key/*")},
			nil,
		),
		// It knows no narrower resource. Without it quotas are not checked.
		newStatement("ReadQuotas", qualifyActions("servicequotas", "GetServiceQuota"), []string{"*"}, nil),
		newStatement(
			"ReadImages",
			qualifyActions("ssm", "GetParameter"),
			[]string{"arn:" + s.Partition + ":ssm:" + s.Region + "::parameter/aws/service/*"},
			nil,
		),
	}
	if len(s.DNSNames) > 0 {
		out = append(
			out,
			newStatement(
				"ReadZones",
				qualifyActions("route53", "GetHostedZone", "ListResourceRecordSets", "ListTagsForResources"),
				[]string{s.hostedZoneARN("*")},
				nil,
			),
		)
	}

	return out
}

// networkStatements makes, changes and removes networks. What others depend on is in a statement of its own: a right to make
// something in a network must not be a right to all networks.
func (s policyBuilder) networkStatements() []Statement {
	return []Statement{
		newStatement(
			"MakeAlone",
			qualifyActions(
				"ec2",
				"AllocateAddress",
				"CreateInternetGateway",
				"CreateLaunchTemplate",
				"CreateVolume",
				"CreateVpc",
				"ImportKeyPair",
			),
			s.ec2ARNs("elastic-ip", "internet-gateway", "key-pair", "launch-template", "volume", "vpc"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"MakeInNetwork",
			qualifyActions("ec2", "CreateRouteTable", "CreateSecurityGroup", "CreateSubnet"),
			s.ec2ARNs("route-table", "security-group", "subnet"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"MakeInSubnet",
			qualifyActions("ec2", "CreateNatGateway", "CreateVpcEndpoint"),
			s.ec2ARNs("natgateway", "vpc-endpoint"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"TagWhatIsMade",
			qualifyActions("ec2", "CreateTags"),
			[]string{s.regionalARN("ec2", "*/*")},
			condition{
				"StringEquals": {
					"aws:RequestTag/" + awskind.TagCluster: {s.Cluster},
				}, "StringLike": {"ec2:CreateAction": {"*"}},
			},
		),
		newStatement(
			"Change",
			qualifyActions(
				"ec2",
				"AssociateRouteTable",
				"AttachInternetGateway",
				"AuthorizeSecurityGroupEgress",
				"AuthorizeSecurityGroupIngress",
				"CreateLaunchTemplateVersion",
				"CreateNatGateway",
				"CreateRoute",
				"CreateRouteTable",
				"CreateSecurityGroup",
				"CreateSubnet",
				"CreateTags",
				"CreateVpcEndpoint",
				"DeleteInternetGateway",
				"DeleteKeyPair",
				"DeleteLaunchTemplate",
				"DeleteNatGateway",
				"DeleteRoute",
				"DeleteRouteTable",
				"DeleteSubnet",
				"DeleteTags",
				"DeleteVpc",
				"DeleteVpcEndpoints",
				"DetachInternetGateway",
				"DisassociateRouteTable",
				"ModifyLaunchTemplate",
				"ModifySecurityGroupRules",
				"ModifySubnetAttribute",
				"ModifyVolume",
				"ModifyVpcAttribute",
				"ModifyVpcEndpoint",
				"ReleaseAddress",
				"ReplaceRoute",
				"RunInstances",
				"TerminateInstances",
			),
			[]string{s.regionalARN("ec2", "*/*")},
			s.resourceHasClusterTag(),
		),
		// A rule has no tags of its own; its group, which is asked about too, does.
		newStatement(
			"ChangeRules",
			qualifyActions(
				"ec2",
				"ModifySecurityGroupRules",
				"RevokeSecurityGroupEgress",
				"RevokeSecurityGroupIngress",
			),
			s.ec2ARNs("security-group-rule"),
			nil,
		),
	}
}

// peeringStatements connect the cluster's VPC with others. Of those only the tables that the manifest names can be changed.
func (s policyBuilder) peeringStatements() []Statement {
	if len(s.PeerVPCs) == 0 {
		return nil
	}

	out := []Statement{
		newStatement(
			"MakePeering",
			qualifyActions("ec2", "CreateVpcPeeringConnection"),
			s.ec2ARNs("vpc-peering-connection"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"ChangePeering",
			qualifyActions(
				"ec2",
				"AcceptVpcPeeringConnection",
				"CreateVpcPeeringConnection",
				"DeleteVpcPeeringConnection",
			),
			s.ec2ARNs("vpc", "vpc-peering-connection"),
			s.resourceHasClusterTag(),
		),
		newStatement(
			"AcceptPeering",
			qualifyActions("ec2", "AcceptVpcPeeringConnection"),
			s.arnsByID("ec2", "vpc/", s.PeerVPCs),
			nil,
		),
	}
	if len(s.RouteTables) > 0 {
		out = append(
			out,
			newStatement(
				"RouteBack",
				qualifyActions("ec2", "CreateRoute", "DeleteRoute", "ReplaceRoute"),
				s.arnsByID("ec2", "route-table/", s.RouteTables),
				nil,
			),
		)
	}

	return out
}

// hostedZoneARN is the ARN of a hosted zone. Zones are of no region, and their ARNs of no account.
func (s policyBuilder) hostedZoneARN(id string) string {
	return "arn:" + s.Partition + ":route53:::hostedzone/" + id
}

// dnsStatements are the cluster's DNS names: in an existing zone only these can be changed. IAM knows no tags of zones, so the
// right to make one is a right to delete any that is empty.
func (s policyBuilder) dnsStatements() []Statement {
	if len(s.DNSNames) == 0 {
		return nil
	}

	only := condition{
		"ForAllValues:StringEquals": {"route53:ChangeResourceRecordSetsNormalizedRecordNames": s.DNSNames},
	}
	if len(s.HostedZones) > 0 {
		var zones []string
		for _, id := range s.HostedZones {
			zones = append(zones, s.hostedZoneARN(id))
		}

		return []Statement{
			newStatement("ChangeNames", qualifyActions("route53", "ChangeResourceRecordSets"), zones, only),
		}
	}

	return []Statement{
		newStatement("MakeZone", qualifyActions("route53", "CreateHostedZone"), []string{"*"}, nil),
		newStatement(
			"ChangeZones",
			qualifyActions(
				"route53",
				"AssociateVPCWithHostedZone",
				"ChangeTagsForResource",
				"DeleteHostedZone",
				"DisassociateVPCFromHostedZone",
				"UpdateHostedZoneComment",
			),
			[]string{s.hostedZoneARN("*")},
			nil,
		),
		newStatement(
			"ChangeNames",
			qualifyActions("route53", "ChangeResourceRecordSets"),
			[]string{s.hostedZoneARN("*")},
			only,
		),
	}
}

// machineStatements are load balancers and auto scaling groups. A listener has no tags: its load balancer's name is in its ARN.
func (s policyBuilder) machineStatements() []Statement {
	var listeners []string
	for _, name := range s.LoadBalancers {
		listeners = append(listeners, s.regionalARN("elasticloadbalancing", "listener/net/"+name+"/*"))
	}

	out := []Statement{
		newStatement(
			"MakeBalancers",
			qualifyActions("elasticloadbalancing", "AddTags", "CreateLoadBalancer", "CreateTargetGroup"),
			[]string{s.regionalARN("elasticloadbalancing", "*")},
			s.requestHasClusterTag(),
		),
		newStatement(
			"ChangeBalancers",
			qualifyActions(
				"elasticloadbalancing",
				"AddTags",
				"CreateListener",
				"ModifyLoadBalancerAttributes",
				"ModifyTargetGroup",
				"ModifyTargetGroupAttributes",
				"RemoveTags",
				"SetSecurityGroups",
				"SetSubnets",
			),
			[]string{s.regionalARN("elasticloadbalancing", "*")},
			s.resourceHasClusterTag(),
		),
		newStatement(
			"ChangeGroups",
			qualifyActions(
				"autoscaling",
				"AttachLoadBalancerTargetGroups",
				"CreateAutoScalingGroup",
				"CreateOrUpdateTags",
				"DeleteAutoScalingGroup",
				"DeleteTags",
				"DetachLoadBalancerTargetGroups",
				"UpdateAutoScalingGroup",
			),
			[]string{
				s.regionalARN("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*."+s.Cluster),
			},
			nil,
		),
		newStatement(
			"Wait",
			slices.Concat(
				qualifyActions("autoscaling", "DescribeScalingActivities"),
				qualifyActions("ec2", "DescribeInstances"),
			),
			[]string{"*"},
			nil,
		),
		// Auto Scaling launches for whoever made the group, so that one must be allowed to: the template, subnets and
		// groups must be the cluster's (statement Change).
		newStatement(
			"Launch",
			qualifyActions("ec2", "RunInstances"),
			append(
				s.ec2ARNs("instance", "key-pair", "network-interface", "volume"),
				"arn:"+s.Partition+":ec2:"+s.Region+"::image/*",
			),
			condition{"ArnLike": {"ec2:LaunchTemplate": {s.regionalARN("ec2", "launch-template/*")}}},
		),
	}
	if s.WarmPools {
		out = append(
			out,
			newStatement(
				"WarmPools",
				qualifyActions("autoscaling", "DeleteWarmPool", "PutWarmPool"),
				[]string{
					s.regionalARN("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*."+s.Cluster),
				},
				nil,
			),
		)
	}

	if len(listeners) > 0 {
		out = append(
			out,
			newStatement(
				"ChangeListeners",
				qualifyActions("elasticloadbalancing", "DeleteListener", "ModifyListener"),
				listeners,
				nil,
			),
		)
	}

	return out
}

// identityStatements are roles, profiles and the cluster's key.
func (s policyBuilder) identityStatements() []Statement {
	return []Statement{
		newStatement(
			"ChangeRoles",
			qualifyActions(
				"iam",
				"AddRoleToInstanceProfile",
				"CreateInstanceProfile",
				"CreateRole",
				"DeleteInstanceProfile",
				"DeleteRole",
				"DeleteRolePolicy",
				"DetachRolePolicy",
				"GetInstanceProfile",
				"PassRole",
				"PutRolePolicy",
				"RemoveRoleFromInstanceProfile",
				"TagRole",
				"UntagRole",
				"UpdateAssumeRolePolicy",
				"UpdateRole",
			),
			[]string{s.iamARN("role"), s.iamARN("instance-profile")},
			nil,
		),
		newStatement(
			"MakeKey",
			qualifyActions("kms", "CreateKey", "TagResource"),
			[]string{"*"},
			s.requestHasClusterTag(),
		),
		newStatement(
			"ChangeKey",
			qualifyActions(
				"kms",
				"CreateAlias",
				"DeleteAlias",
				"EnableKey",
				"EnableKeyRotation",
				"PutKeyPolicy",
				"TagResource",
				"UntagResource",
				"UpdateAlias",
				"UpdateKeyDescription",
			),
			[]string{s.regionalARN("kms", "key/*")},
			s.resourceHasClusterTag(),
		),
		// The cluster's tag comes off a key before its end is scheduled.
		newStatement(
			"EndKey",
			qualifyActions("kms", "ScheduleKeyDeletion"),
			[]string{s.regionalARN("kms", "key/*")},
			stringEquals("aws:ResourceTag/slipway.dev/former-cluster", s.Cluster),
		),
		newStatement(
			"ChangeAlias",
			qualifyActions("kms", "CreateAlias", "DeleteAlias", "UpdateAlias"),
			[]string{s.regionalARN("kms", s.KeyAlias)},
			nil,
		),
	}
}

// leftoverStatements are what programs in the cluster made, by the tags that they use.
func (s policyBuilder) leftoverStatements() []Statement {
	all := []string{s.regionalARN("ec2", "*/*")}
	groups := qualifyActions(
		"ec2",
		"DeleteSecurityGroup",
		"RevokeSecurityGroupEgress",
		"RevokeSecurityGroupIngress",
	)

	return []Statement{
		newStatement(
			"FindLeftovers",
			qualifyActions("ec2", "DescribeNetworkInterfaces", "DescribeSnapshots"),
			[]string{"*"},
			nil,
		),
		// What we made bears this tag too.
		newStatement(
			"EndOwned",
			append(
				qualifyActions(
					"ec2",
					"DeleteNetworkInterface",
					"DeleteSnapshot",
					"DeleteVolume",
					"TerminateInstances",
				),
				groups...),
			all,
			stringEquals("aws:ResourceTag/kubernetes.io/cluster/"+s.Cluster, "owned"),
		),
		newStatement(
			"EndOwnedBalancers",
			qualifyActions("elasticloadbalancing", "DeleteLoadBalancer", "DeleteTargetGroup"),
			[]string{s.regionalARN("elasticloadbalancing", "*")},
			stringEquals("aws:ResourceTag/kubernetes.io/cluster/"+s.Cluster, "owned"),
		),
		newStatement(
			"EndControllers",
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
			"EndInterfaces",
			qualifyActions("ec2", "DeleteNetworkInterface"),
			all,
			stringEquals("aws:ResourceTag/cluster.k8s.amazonaws.com/name", s.Cluster),
		),
	}
}

// objectARNs are the ARNs of the cluster's objects, and of the two that describe a store.
func (s policyBuilder) objectARNs() (buckets, all []string) {
	for _, st := range s.Stores {
		bucket := "arn:" + s.Partition + ":s3:::" + st.Bucket
		base := strings.TrimSuffix(bucket+"/"+st.Prefix, "/") + "/"
		buckets = append(buckets, bucket)
		all = append(
			all,
			base+s.Cluster+"/*",
			base+"_operations/"+s.Cluster+"/*",
		) // the latter: lock and history
	}

	return buckets, all
}

// settingsARNs are the ARNs of what describes each store.
func (s policyBuilder) settingsARNs() []string {
	var out []string
	for _, st := range s.Stores {
		out = append(
			out,
			strings.TrimSuffix(
				"arn:"+s.Partition+":s3:::"+st.Bucket+"/"+st.Prefix,
				"/",
			)+"/slipway-state.json",
		)
	}

	return out
}

// storeKeyCondition asks that a key is that of one of the stores.
func (s policyBuilder) storeKeyCondition() condition {
	var aliases []string
	for _, st := range s.Stores {
		aliases = append(aliases, "alias/slipway-"+st.Bucket)
	}

	return condition{"ForAnyValue:StringEquals": {"kms:ResourceAliases": aliases}}
}

func (s policyBuilder) storeReadStatements() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}

	buckets, objects := s.objectARNs()
	return []Statement{
		newStatement("ListState", qualifyActions("s3", "ListBucket"), buckets, nil),
		newStatement(
			"ReadState",
			qualifyActions("s3", "GetObject"),
			append(objects, s.settingsARNs()...),
			nil,
		),
		newStatement(
			"OpenState",
			qualifyActions("kms", "Decrypt"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
	}
}

// storeStatements is the state and what machines read.
func (s policyBuilder) storeStatements() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}

	_, objects := s.objectARNs()
	return append(
		s.storeReadStatements(),
		newStatement("WriteState", qualifyActions("s3", "DeleteObject", "PutObject"), objects, nil),
		newStatement(
			"SealState",
			qualifyActions("kms", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
	)
}

// BuildStateInitPolicy returns the policy for 'slipway state init' of the store of bucket: it is needed once.
func BuildStateInitPolicy(in Input, st StoreLocation) Policy {
	s := policyBuilder{in}
	s.Stores = []StoreLocation{st}
	bucket := "arn:" + s.Partition + ":s3:::" + st.Bucket
	tagged := stringEquals("aws:RequestTag/slipway.dev/state", st.Bucket)

	return Policy{Version: "2012-10-17", Statement: []Statement{
		newStatement(
			"MakeBucket",
			qualifyActions(
				"s3",
				"CreateBucket",
				"GetBucketPolicy",
				"ListBucket",
				"PutBucketPolicy",
				"PutBucketPublicAccessBlock",
				"PutBucketVersioning",
				"PutEncryptionConfiguration",
			),
			[]string{bucket},
			nil,
		),
		newStatement("MakeSettings", qualifyActions("s3", "GetObject", "PutObject"), s.settingsARNs(), nil),
		newStatement(
			"MakeStateKey",
			qualifyActions("kms", "CreateKey", "TagResource"),
			[]string{"*"},
			tagged,
		),
		newStatement(
			"ChangeStateKey",
			qualifyActions("kms", "CreateAlias", "EnableKeyRotation"),
			[]string{s.regionalARN("kms", "key/*")},
			stringEquals("aws:ResourceTag/slipway.dev/state", st.Bucket),
		),
		newStatement(
			"NameStateKey",
			qualifyActions("kms", "CreateAlias"),
			[]string{s.regionalARN("kms", "alias/slipway-"+st.Bucket)},
			nil,
		),
		newStatement(
			"UseStateKey",
			qualifyActions("kms", "Decrypt", "DescribeKey", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
	}}
}
