// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"slices"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
)

// listInventory lists all resources of the account, independent of their tags and creators. It does
// not use the drivers' calls.
func (d directJudge) listInventory(t *testing.T) []string {
	t.Helper()
	list := slices.Concat(d.listNetwork(t), d.listMachines(t), d.listOthers(t))
	slices.Sort(list)
	return list
}

// failOnError fails t if err is not nil.
func failOnError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d directJudge) listNetwork(t *testing.T) []string {
	t.Helper()
	api, ctx := ec2.NewFromConfig(d.cfg), t.Context()
	var out []string
	vpcs, err := api.DescribeVpcs(ctx, nil)
	failOnError(t, err)
	for _, x := range vpcs.Vpcs {
		out = append(out, *x.VpcId)
	}
	subnets, err := api.DescribeSubnets(ctx, nil)
	failOnError(t, err)
	for _, x := range subnets.Subnets {
		out = append(out, *x.SubnetId)
	}
	tables, err := api.DescribeRouteTables(ctx, nil)
	failOnError(t, err)
	for _, x := range tables.RouteTables {
		for _, r := range x.Routes {
			out = append(out, *x.RouteTableId+" "+sdk.ToString(r.DestinationCidrBlock))
		}
	}
	gateways, err := api.DescribeInternetGateways(ctx, nil)
	failOnError(t, err)
	for _, x := range gateways.InternetGateways {
		out = append(out, *x.InternetGatewayId)
	}
	nats, err := api.DescribeNatGateways(ctx, nil)
	failOnError(t, err)
	for _, x := range nats.NatGateways {
		if x.State != ec2types.NatGatewayStateDeleted {
			out = append(out, *x.NatGatewayId)
		}
	}
	addresses, err := api.DescribeAddresses(ctx, nil)
	failOnError(t, err)
	for _, x := range addresses.Addresses {
		out = append(out, *x.AllocationId)
	}
	groups, err := api.DescribeSecurityGroups(ctx, nil)
	failOnError(t, err)
	for _, x := range groups.SecurityGroups {
		out = append(out, *x.GroupId)
	}
	peerings, err := api.DescribeVpcPeeringConnections(ctx, nil)
	failOnError(t, err)
	for _, x := range peerings.VpcPeeringConnections {
		if x.Status.Code == ec2types.VpcPeeringConnectionStateReasonCodeActive {
			out = append(out, *x.VpcPeeringConnectionId)
		}
	}
	return out
}

func (d directJudge) listMachines(t *testing.T) []string {
	t.Helper()
	api, ctx := ec2.NewFromConfig(d.cfg), t.Context()
	var out []string
	instances, err := api.DescribeInstances(ctx, nil)
	failOnError(t, err)
	for _, r := range instances.Reservations {
		for _, x := range r.Instances {
			if x.State.Name != ec2types.InstanceStateNameTerminated {
				out = append(out, *x.InstanceId)
			}
		}
	}
	volumes, err := api.DescribeVolumes(ctx, nil)
	failOnError(t, err)
	for _, x := range volumes.Volumes {
		if x.State != ec2types.VolumeStateDeleting {
			out = append(out, *x.VolumeId)
		}
	}
	templates, err := api.DescribeLaunchTemplates(ctx, nil)
	failOnError(t, err)
	for _, x := range templates.LaunchTemplates {
		out = append(out, *x.LaunchTemplateId)
	}
	groups, err := autoscaling.NewFromConfig(d.cfg).DescribeAutoScalingGroups(ctx, nil)
	failOnError(t, err)
	for _, x := range groups.AutoScalingGroups {
		out = append(out, *x.AutoScalingGroupName)
	}
	return out
}

func (d directJudge) listOthers(t *testing.T) []string {
	t.Helper()
	ctx := t.Context()
	var out []string
	lb := elb.NewFromConfig(d.cfg)
	balancers, err := lb.DescribeLoadBalancers(ctx, nil)
	failOnError(t, err)
	for _, x := range balancers.LoadBalancers {
		out = append(out, *x.LoadBalancerArn)
	}
	targets, err := lb.DescribeTargetGroups(ctx, nil)
	failOnError(t, err)
	for _, x := range targets.TargetGroups {
		out = append(out, *x.TargetGroupArn)
	}
	id := iam.NewFromConfig(d.cfg)
	roles, err := id.ListRoles(ctx, nil)
	failOnError(t, err)
	for _, x := range roles.Roles {
		out = append(out, *x.Arn)
	}
	profiles, err := id.ListInstanceProfiles(ctx, nil)
	failOnError(t, err)
	for _, x := range profiles.InstanceProfiles {
		out = append(out, *x.Arn)
	}
	providers, err := id.ListOpenIDConnectProviders(ctx, nil)
	failOnError(t, err)
	for _, x := range providers.OpenIDConnectProviderList {
		out = append(out, *x.Arn)
	}
	names := route53.NewFromConfig(d.cfg)
	zones, err := names.ListHostedZones(ctx, nil)
	failOnError(t, err)
	for _, x := range zones.HostedZones {
		records, err := names.ListResourceRecordSets(ctx, &route53.ListResourceRecordSetsInput{HostedZoneId: x.Id})
		failOnError(t, err)
		for _, r := range records.ResourceRecordSets {
			out = append(out, *x.Id+" "+*r.Name+" "+string(r.Type))
		}
	}
	return append(out, d.listKeys(t)...)
}

// listKeys lists the KMS keys that are not scheduled for deletion. KMS keeps a deleted key for
// days.
func (d directJudge) listKeys(t *testing.T) []string {
	t.Helper()
	api, ctx := kms.NewFromConfig(d.cfg), t.Context()
	var out []string
	keys, err := api.ListKeys(ctx, nil)
	failOnError(t, err)
	for _, x := range keys.Keys {
		key, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: x.KeyId})
		failOnError(t, err)
		if key.KeyMetadata.KeyState != kmstypes.KeyStatePendingDeletion {
			out = append(out, *x.KeyId)
		}
	}
	aliases, err := api.ListAliases(ctx, nil)
	failOnError(t, err)
	for _, x := range aliases.Aliases {
		out = append(out, *x.AliasName)
	}
	return out
}
