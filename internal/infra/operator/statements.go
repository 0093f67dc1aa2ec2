// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// reads is what a plan looks at. These operations of EC2, Elastic Load Balancing and Auto Scaling know no narrower
// resource than all; those of IAM and KMS do.
func (s scope) reads() []Statement {
	out := []Statement{
		allow("Read", slices.Concat(
			of("ec2", "DescribeAddresses", "DescribeImages", "DescribeInternetGateways", "DescribeKeyPairs", "DescribeLaunchTemplateVersions",
				"DescribeLaunchTemplates", "DescribeNatGateways", "DescribeRouteTables", "DescribeSecurityGroupRules", "DescribeSecurityGroups",
				"DescribeSubnets", "DescribeTags", "DescribeVolumes", "DescribeVpcAttribute", "DescribeVpcEndpoints", "DescribeVpcPeeringConnections", "DescribeVpcs"),
			of("elasticloadbalancing", "DescribeListeners", "DescribeLoadBalancerAttributes", "DescribeLoadBalancers", "DescribeTags",
				"DescribeTargetGroupAttributes", "DescribeTargetGroups"),
			of("autoscaling", "DescribeAutoScalingGroups"), of("iam", "ListInstanceProfiles", "ListRoles"), of("kms", "ListAliases", "ListKeys"), of("route53", "ListHostedZones"),
		), []string{"*"}, nil),
		allow("ReadRoles", of("iam", "GetRole", "GetRolePolicy", "ListAttachedRolePolicies", "ListRolePolicies"),
			[]string{s.iam("role"), s.iam("instance-profile")}, nil),
		allow("ReadKeys", of("kms", "DescribeKey", "GetKeyPolicy", "GetKeyRotationStatus", "ListResourceTags"), []string{s.arn("kms", "key/*")}, nil),
		// It knows no narrower resource. Without it quotas are not checked.
		allow("ReadQuotas", of("servicequotas", "GetServiceQuota"), []string{"*"}, nil),
		allow("ReadImages", of("ssm", "GetParameter"), []string{"arn:" + s.Partition + ":ssm:" + s.Region + "::parameter/aws/service/*"}, nil),
	}
	if len(s.Names) > 0 {
		out = append(out, allow("ReadZones", of("route53", "GetHostedZone", "ListResourceRecordSets", "ListTagsForResources"), []string{s.zones("*")}, nil))
	}
	return out
}

// network makes, changes and removes networks. What others depend on is in a statement of its own: a right to make
// something in a network must not be a right to all networks.
func (s scope) network() []Statement {
	return []Statement{
		allow("MakeAlone", of("ec2", "AllocateAddress", "CreateInternetGateway", "CreateLaunchTemplate", "CreateVolume", "CreateVpc",
			"ImportKeyPair"), s.ec2("elastic-ip", "internet-gateway", "key-pair", "launch-template", "volume", "vpc"), s.made()),
		allow("MakeInNetwork", of("ec2", "CreateRouteTable", "CreateSecurityGroup", "CreateSubnet"), s.ec2("route-table", "security-group", "subnet"), s.made()),
		allow("MakeInSubnet", of("ec2", "CreateNatGateway", "CreateVpcEndpoint"), s.ec2("natgateway", "vpc-endpoint"), s.made()),
		allow("TagWhatIsMade", of("ec2", "CreateTags"), []string{s.arn("ec2", "*/*")}, condition{
			"StringEquals": {"aws:RequestTag/" + awskind.TagCluster: {s.Cluster}}, "StringLike": {"ec2:CreateAction": {"*"}},
		}),
		allow("Change", of("ec2", "AssociateRouteTable", "AttachInternetGateway", "AuthorizeSecurityGroupEgress", "AuthorizeSecurityGroupIngress",
			"CreateLaunchTemplateVersion", "CreateNatGateway", "CreateRoute", "CreateRouteTable", "CreateSecurityGroup", "CreateSubnet", "CreateTags",
			"CreateVpcEndpoint", "DeleteInternetGateway", "DeleteKeyPair", "DeleteLaunchTemplate", "DeleteNatGateway", "DeleteRoute", "DeleteRouteTable",
			"DeleteSubnet", "DeleteTags", "DeleteVpc", "DeleteVpcEndpoints", "DetachInternetGateway",
			"DisassociateRouteTable", "ModifyLaunchTemplate", "ModifySecurityGroupRules", "ModifySubnetAttribute", "ModifyVolume",
			"ModifyVpcAttribute", "ModifyVpcEndpoint", "ReleaseAddress", "ReplaceRoute", "RunInstances", "TerminateInstances"), []string{s.arn("ec2", "*/*")}, s.ours()),
		// A rule has no tags of its own; its group, which is asked about too, does.
		allow("ChangeRules", of("ec2", "ModifySecurityGroupRules", "RevokeSecurityGroupEgress", "RevokeSecurityGroupIngress"), s.ec2("security-group-rule"), nil),
	}
}

// peerings connect the cluster's VPC with others. Of those only the tables that the manifest names can be changed.
func (s scope) peerings() []Statement {
	if len(s.Peers) == 0 {
		return nil
	}
	out := []Statement{
		allow("MakePeering", of("ec2", "CreateVpcPeeringConnection"), s.ec2("vpc-peering-connection"), s.made()),
		allow("ChangePeering", of("ec2", "AcceptVpcPeeringConnection", "CreateVpcPeeringConnection", "DeleteVpcPeeringConnection"), s.ec2("vpc", "vpc-peering-connection"), s.ours()),
		allow("AcceptPeering", of("ec2", "AcceptVpcPeeringConnection"), s.each("ec2", "vpc/", s.Peers), nil),
	}
	if len(s.RouteTables) > 0 {
		out = append(out, allow("RouteBack", of("ec2", "CreateRoute", "DeleteRoute", "ReplaceRoute"), s.each("ec2", "route-table/", s.RouteTables), nil))
	}
	return out
}

// zones is the ARN of a hosted zone. Zones are of no region, and their ARNs of no account.
func (s scope) zones(id string) string { return "arn:" + s.Partition + ":route53:::hostedzone/" + id }

// names are the cluster's DNS names: in an existing zone only these can be changed. IAM knows no tags of zones, so the
// right to make one is a right to delete any that is empty.
func (s scope) names() []Statement {
	if len(s.Names) == 0 {
		return nil
	}
	only := condition{"ForAllValues:StringEquals": {"route53:ChangeResourceRecordSetsNormalizedRecordNames": s.Names}}
	if len(s.Zones) > 0 {
		var zones []string
		for _, id := range s.Zones {
			zones = append(zones, s.zones(id))
		}
		return []Statement{allow("ChangeNames", of("route53", "ChangeResourceRecordSets"), zones, only)}
	}
	return []Statement{
		allow("MakeZone", of("route53", "CreateHostedZone"), []string{"*"}, nil),
		allow("ChangeZones", of("route53", "AssociateVPCWithHostedZone", "ChangeTagsForResource", "DeleteHostedZone", "DisassociateVPCFromHostedZone",
			"UpdateHostedZoneComment"), []string{s.zones("*")}, nil),
		allow("ChangeNames", of("route53", "ChangeResourceRecordSets"), []string{s.zones("*")}, only),
	}
}

// machines are load balancers and auto scaling groups. A listener has no tags: its load balancer's name is in its ARN.
func (s scope) machines() []Statement {
	var listeners []string
	for _, name := range s.Balancers {
		listeners = append(listeners, s.arn("elasticloadbalancing", "listener/net/"+name+"/*"))
	}
	out := []Statement{
		allow("MakeBalancers", of("elasticloadbalancing", "AddTags", "CreateLoadBalancer", "CreateTargetGroup"), []string{s.arn("elasticloadbalancing", "*")}, s.made()),
		allow("ChangeBalancers", of("elasticloadbalancing", "AddTags", "CreateListener", "ModifyLoadBalancerAttributes", "ModifyTargetGroup", "ModifyTargetGroupAttributes", "RemoveTags", "SetSecurityGroups", "SetSubnets"),
			[]string{s.arn("elasticloadbalancing", "*")}, s.ours()),
		allow("ChangeGroups", of("autoscaling", "AttachLoadBalancerTargetGroups", "CreateAutoScalingGroup", "CreateOrUpdateTags", "DeleteAutoScalingGroup",
			"DeleteTags", "DetachLoadBalancerTargetGroups", "UpdateAutoScalingGroup"),
			[]string{s.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*."+s.Cluster)}, nil),
		allow("Wait", slices.Concat(of("autoscaling", "DescribeScalingActivities"), of("ec2", "DescribeInstances")), []string{"*"}, nil),
		// Auto Scaling launches for whoever made the group, so that one must be allowed to: the template, subnets and
		// groups must be the cluster's (statement Change).
		allow("Launch", of("ec2", "RunInstances"), append(s.ec2("instance", "key-pair", "network-interface", "volume"), "arn:"+s.Partition+":ec2:"+s.Region+"::image/*"),
			condition{"ArnLike": {"ec2:LaunchTemplate": {s.arn("ec2", "launch-template/*")}}}),
	}
	if s.WarmPools {
		out = append(out, allow("WarmPools", of("autoscaling", "DeleteWarmPool", "PutWarmPool"), []string{s.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*."+s.Cluster)}, nil))
	}
	if len(listeners) > 0 {
		out = append(out, allow("ChangeListeners", of("elasticloadbalancing", "DeleteListener", "ModifyListener"), listeners, nil))
	}
	return out
}

// identities are roles, profiles and the cluster's key.
func (s scope) identities() []Statement {
	return []Statement{
		allow("ChangeRoles", of("iam", "AddRoleToInstanceProfile", "CreateInstanceProfile", "CreateRole", "DeleteInstanceProfile", "DeleteRole",
			"DeleteRolePolicy", "DetachRolePolicy", "GetInstanceProfile", "PassRole", "PutRolePolicy", "RemoveRoleFromInstanceProfile", "TagRole", "UntagRole", "UpdateAssumeRolePolicy", "UpdateRole"),
			[]string{s.iam("role"), s.iam("instance-profile")}, nil),
		allow("MakeKey", of("kms", "CreateKey", "TagResource"), []string{"*"}, s.made()),
		allow("ChangeKey", of("kms", "CreateAlias", "DeleteAlias", "EnableKey", "EnableKeyRotation", "PutKeyPolicy", "TagResource",
			"UntagResource", "UpdateAlias", "UpdateKeyDescription"), []string{s.arn("kms", "key/*")}, s.ours()),
		// The cluster's tag comes off a key before its end is scheduled.
		allow("EndKey", of("kms", "ScheduleKeyDeletion"), []string{s.arn("kms", "key/*")}, equals("aws:ResourceTag/slipway.dev/former-cluster", s.Cluster)),
		allow("ChangeAlias", of("kms", "CreateAlias", "DeleteAlias", "UpdateAlias"), []string{s.arn("kms", s.KeyAlias)}, nil),
	}
}

// leftovers are what programs in the cluster made, by the tags that they use.
func (s scope) leftovers() []Statement {
	all := []string{s.arn("ec2", "*/*")}
	groups := of("ec2", "DeleteSecurityGroup", "RevokeSecurityGroupEgress", "RevokeSecurityGroupIngress")
	return []Statement{
		allow("FindLeftovers", of("ec2", "DescribeNetworkInterfaces", "DescribeSnapshots"), []string{"*"}, nil),
		// What we made bears this tag too.
		allow("EndOwned", append(of("ec2", "DeleteNetworkInterface", "DeleteSnapshot", "DeleteVolume", "TerminateInstances"), groups...), all,
			equals("aws:ResourceTag/kubernetes.io/cluster/"+s.Cluster, "owned")),
		allow("EndOwnedBalancers", of("elasticloadbalancing", "DeleteLoadBalancer", "DeleteTargetGroup"), []string{s.arn("elasticloadbalancing", "*")},
			equals("aws:ResourceTag/kubernetes.io/cluster/"+s.Cluster, "owned")),
		allow("EndControllers", append(of("elasticloadbalancing", "DeleteLoadBalancer", "DeleteTargetGroup"), groups...),
			append(slices.Clone(all), s.arn("elasticloadbalancing", "*")), equals("aws:ResourceTag/elbv2.k8s.aws/cluster", s.Cluster)),
		allow("EndInterfaces", of("ec2", "DeleteNetworkInterface"), all, equals("aws:ResourceTag/cluster.k8s.amazonaws.com/name", s.Cluster)),
	}
}

// objects are the ARNs of the cluster's objects, and of the two that describe a store.
func (s scope) objects() (buckets, all []string) {
	for _, st := range s.Stores {
		bucket := "arn:" + s.Partition + ":s3:::" + st.Bucket
		base := strings.TrimSuffix(bucket+"/"+st.Prefix, "/") + "/"
		buckets = append(buckets, bucket)
		all = append(all, base+s.Cluster+"/*", base+"_operations/"+s.Cluster+"/*") // the latter: lock and history
	}
	return buckets, all
}

// settings are the ARNs of what describes each store.
func (s scope) settings() []string {
	var out []string
	for _, st := range s.Stores {
		out = append(out, strings.TrimSuffix("arn:"+s.Partition+":s3:::"+st.Bucket+"/"+st.Prefix, "/")+"/slipway-state.json")
	}
	return out
}

// storeKeys asks that a key is that of one of the stores.
func (s scope) storeKeys() condition {
	var aliases []string
	for _, st := range s.Stores {
		aliases = append(aliases, "alias/slipway-"+st.Bucket)
	}
	return condition{"ForAnyValue:StringEquals": {"kms:ResourceAliases": aliases}}
}

func (s scope) storeReads() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}
	buckets, objects := s.objects()
	return []Statement{
		allow("ListState", of("s3", "ListBucket"), buckets, nil),
		allow("ReadState", of("s3", "GetObject"), append(objects, s.settings()...), nil),
		allow("OpenState", of("kms", "Decrypt"), []string{s.arn("kms", "key/*")}, s.storeKeys()),
	}
}

// store is the state and what machines read.
func (s scope) store() []Statement {
	if len(s.Stores) == 0 {
		return nil
	}
	_, objects := s.objects()
	return append(s.storeReads(),
		allow("WriteState", of("s3", "DeleteObject", "PutObject"), objects, nil),
		allow("SealState", of("kms", "GenerateDataKey"), []string{s.arn("kms", "key/*")}, s.storeKeys()))
}

// StateInit returns the policy for 'slipway state init' of the store of bucket: it is needed once.
func StateInit(in Input, st Store) Policy {
	s := scope{in}
	s.Stores = []Store{st}
	bucket, tagged := "arn:"+s.Partition+":s3:::"+st.Bucket, equals("aws:RequestTag/slipway.dev/state", st.Bucket)
	return Policy{Version: "2012-10-17", Statement: []Statement{
		allow("MakeBucket", of("s3", "CreateBucket", "GetBucketPolicy", "ListBucket", "PutBucketPolicy", "PutBucketPublicAccessBlock", "PutBucketVersioning",
			"PutEncryptionConfiguration"), []string{bucket}, nil),
		allow("MakeSettings", of("s3", "GetObject", "PutObject"), s.settings(), nil),
		allow("MakeStateKey", of("kms", "CreateKey", "TagResource"), []string{"*"}, tagged),
		allow("ChangeStateKey", of("kms", "CreateAlias", "EnableKeyRotation"), []string{s.arn("kms", "key/*")}, equals("aws:ResourceTag/slipway.dev/state", st.Bucket)),
		allow("NameStateKey", of("kms", "CreateAlias"), []string{s.arn("kms", "alias/slipway-"+st.Bucket)}, nil),
		allow("UseStateKey", of("kms", "Decrypt", "DescribeKey", "GenerateDataKey"), []string{s.arn("kms", "key/*")}, s.storeKeys()),
	}}
}
