// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// readStatements allows the calls of a plan. IAM does not restrict these operations of EC2, Elastic Load
// Balancing and Auto Scaling to resources; it does for IAM and KMS.
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
		// IAM does not restrict it to resources. Without it, quotas are not checked.
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

// networkStatements allows creating, changing and deleting networks. Creating a resource in a VPC or subnet
// also needs the statement Change for that VPC or subnet, so that it is not possible in other networks.
func (s policyBuilder) networkStatements() []Statement {
	return []Statement{
		newStatement(
			"CreateResources",
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
			"CreateInVPC",
			qualifyActions("ec2", "CreateRouteTable", "CreateSecurityGroup", "CreateSubnet"),
			s.ec2ARNs("route-table", "security-group", "subnet"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"CreateInSubnet",
			qualifyActions("ec2", "CreateNatGateway", "CreateVpcEndpoint"),
			s.ec2ARNs("natgateway", "vpc-endpoint"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"TagOnCreate",
			qualifyActions("ec2", "CreateTags"),
			[]string{s.regionalARN("ec2", "*/*")},
			condition{
				"StringEquals": {"aws:RequestTag/" + awskind.TagCluster: {s.Cluster}},
				"StringLike":   {"ec2:CreateAction": {"*"}},
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
		// A rule has no tags; IAM also evaluates the call for its security group, which has.
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

// peeringStatements allows peering the cluster's VPC with others. Of the others, only the route tables in the
// manifest can be changed.
func (s policyBuilder) peeringStatements() []Statement {
	if len(s.PeerVPCs) == 0 {
		return nil
	}

	out := []Statement{
		newStatement(
			"CreatePeering",
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
				"ChangePeerRoutes",
				qualifyActions("ec2", "CreateRoute", "DeleteRoute", "ReplaceRoute"),
				s.arnsByID("ec2", "route-table/", s.RouteTables),
				nil,
			),
		)
	}

	return out
}

// hostedZoneARN returns the ARN of a hosted zone, which has neither a region nor an account.
func (s policyBuilder) hostedZoneARN(id string) string {
	return "arn:" + s.Partition + ":route53:::hostedzone/" + id
}

// dnsStatements allows changing the records of the cluster's DNS names. IAM has no condition on tags of
// hosted zones, so an operator who may create a zone may also delete any empty zone.
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
			newStatement("ChangeRecords", qualifyActions("route53", "ChangeResourceRecordSets"), zones, only),
		}
	}

	return []Statement{
		newStatement("CreateZone", qualifyActions("route53", "CreateHostedZone"), []string{"*"}, nil),
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
			"ChangeRecords",
			qualifyActions("route53", "ChangeResourceRecordSets"),
			[]string{s.hostedZoneARN("*")},
			only,
		),
	}
}

// machineStatements allows managing load balancers and Auto Scaling groups. A listener has no tags, but its
// ARN contains the load balancer's name.
func (s policyBuilder) machineStatements() []Statement {
	var listeners []string
	for _, name := range s.LoadBalancers {
		listeners = append(listeners, s.regionalARN("elasticloadbalancing", "listener/net/"+name+"/*"))
	}

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
			"ReadProgress",
			slices.Concat(
				qualifyActions("autoscaling", "DescribeScalingActivities"),
				qualifyActions("ec2", "DescribeInstances"),
			),
			[]string{"*"},
			nil,
		),
		// Auto Scaling checks that the creator of a group may launch its instances. The template, subnets and
		// security groups must be the cluster's (statement Change).
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

// identityStatements allows managing the cluster's roles, instance profiles and KMS key.
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
			"CreateKey",
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
		// Before its deletion is scheduled, the key's cluster tag is replaced by this one.
		newStatement(
			"DeleteKey",
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

// leftoverStatements allows deleting the resources that programs in the cluster created, by the tags that
// they set.
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
		// Slipway's own resources have this tag too.
		newStatement(
			"DeleteOwned",
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

// objectARNs returns the ARNs of the stores' buckets and of the cluster's objects in them.
func (s policyBuilder) objectARNs() (buckets, all []string) {
	for _, st := range s.Stores {
		bucket := "arn:" + s.Partition + ":s3:::" + st.Bucket
		base := strings.TrimSuffix(bucket+"/"+st.Prefix, "/") + "/"
		buckets = append(buckets, bucket)
		all = append(all, base+s.Cluster+"/*")
		all = append(all, base+"_operations/"+s.Cluster+"/*") // lock and journal
	}

	return buckets, all
}

// settingsARNs returns the ARN of each store's settings object.
func (s policyBuilder) settingsARNs() []string {
	var out []string
	for _, st := range s.Stores {
		base := strings.TrimSuffix("arn:"+s.Partition+":s3:::"+st.Bucket+"/"+st.Prefix, "/")
		out = append(out, base+"/slipway-state.json")
	}

	return out
}

// storeKeyCondition requires that the key has the alias of one of the stores.
func (s policyBuilder) storeKeyCondition() condition {
	var aliases []string
	for _, st := range s.Stores {
		aliases = append(aliases, "alias/slipway-"+st.Bucket)
	}

	return condition{"ForAnyValue:StringEquals": {"kms:ResourceAliases": aliases}}
}

// storeReadStatements allows reading the state.
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
			"DecryptState",
			qualifyActions("kms", "Decrypt"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
	}
}

// storeStatements allows reading and writing the state store and the machine store.
func (s policyBuilder) storeStatements() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}

	_, objects := s.objectARNs()
	return append(
		s.storeReadStatements(),
		newStatement("WriteState", qualifyActions("s3", "DeleteObject", "PutObject"), objects, nil),
		newStatement(
			"EncryptState",
			qualifyActions("kms", "GenerateDataKey"),
			[]string{s.regionalARN("kms", "key/*")},
			s.storeKeyCondition(),
		),
	)
}

// BuildStateInitPolicy returns the policy for 'slipway state init' of the store st. An operator needs it once
// for a store.
func BuildStateInitPolicy(in Input, st StoreLocation) Policy {
	s := policyBuilder{in}
	s.Stores = []StoreLocation{st}
	bucket := "arn:" + s.Partition + ":s3:::" + st.Bucket
	tagged := stringEquals("aws:RequestTag/slipway.dev/state", st.Bucket)

	return Policy{Version: "2012-10-17", Statement: []Statement{
		newStatement(
			"CreateBucket",
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
		newStatement("WriteSettings", qualifyActions("s3", "GetObject", "PutObject"), s.settingsARNs(), nil),
		newStatement(
			"CreateStateKey",
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
			"AliasStateKey",
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
