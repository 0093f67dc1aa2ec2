// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strconv"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

func iamTags(key, value string) []iamtypes.Tag { return []iamtypes.Tag{{Key: &key, Value: &value}} }

// changeLaunchTemplate creates another version of the workers' launch template, and makes their
// group use it.
func changeLaunchTemplate(edit *ec2types.RequestLaunchTemplateData) func(awsClients) error {
	return func(h awsClients) error {
		made, err := h.ec2.CreateLaunchTemplateVersion(h, &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: h.resourceID("launch-template/workers"), SourceVersion: sdk.String("$Latest"), LaunchTemplateData: edit})
		if err != nil {
			return err
		}
		return h.updateWorkersGroup(&autoscaling.UpdateAutoScalingGroupInput{LaunchTemplate: &scalingtypes.LaunchTemplateSpecification{
			LaunchTemplateId: h.resourceID("launch-template/workers"), Version: sdk.String(strconv.FormatInt(*made.LaunchTemplateVersion.VersionNumber, 10)),
		}})
	}
}

// updateWorkersGroup changes the workers' Auto Scaling group.
func (h awsClients) updateWorkersGroup(in *autoscaling.UpdateAutoScalingGroupInput) error {
	in.AutoScalingGroupName = sdk.String("workers.demo")
	_, err := h.scaling.UpdateAutoScalingGroup(h, in)
	return err
}

func scaleWorkers(in *autoscaling.UpdateAutoScalingGroupInput) func(awsClients) error {
	return func(h awsClients) error { return h.updateWorkersGroup(in) }
}

func modifyEtcdVolume(in *ec2.ModifyVolumeInput) func(awsClients) error {
	return func(h awsClients) error {
		in.VolumeId = h.resourceID("volume/etcd-b")
		_, err := h.ec2.ModifyVolume(h, in)
		return err
	}
}

func machineDrifts() []drift {
	return []drift{
		{
			description: "the metadata service accepts requests without a token", leavesNewVersion: true, change: changeLaunchTemplate(&ec2types.RequestLaunchTemplateData{MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpEndpoint: ec2types.LaunchTemplateInstanceMetadataEndpointStateEnabled, HttpTokens: ec2types.LaunchTemplateHttpTokensStateOptional, HttpPutResponseHopLimit: sdk.Int32(2)}}),
			want: []string{"~ launch-template/workers", "  LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit: 2 → 1", `  LaunchTemplateData.MetadataOptions.HttpTokens: "optional" → "required"`},
		},
		{
			description: "the instance type of machines is changed", leavesNewVersion: true, change: changeLaunchTemplate(&ec2types.RequestLaunchTemplateData{InstanceType: ec2types.InstanceTypeT3Medium}),
			want: []string{"~ launch-template/workers", `  LaunchTemplateData.InstanceType: "t3.medium" → "t3.large"`},
		},
		{
			description: "the user data of machines is changed", leavesNewVersion: true, change: changeLaunchTemplate(&ec2types.RequestLaunchTemplateData{UserData: sdk.String("IyEvYmluL3NoCg==")}),
			want: []string{"~ launch-template/workers", "  LaunchTemplateData.UserData:"},
		},
		{description: "a group follows the newest version of its template", leavesNewVersion: true, change: func(h awsClients) error {
			return h.updateWorkersGroup(&autoscaling.UpdateAutoScalingGroupInput{LaunchTemplate: &scalingtypes.LaunchTemplateSpecification{LaunchTemplateId: h.resourceID("launch-template/workers"), Version: sdk.String("$Latest")}})
		}, want: []string{"~ autoscaling-group/workers", `  LaunchTemplate.Version: "$Latest" →`}},
		{
			description: "the SSH key pair of machines is deleted",
			change: func(h awsClients) error {
				_, err := h.ec2.DeleteKeyPair(h, &ec2.DeleteKeyPairInput{KeyName: h.resourceID("key-pair/main")})
				return err
			},
			want: []string{
				"+ key-pair/main",
				"~ launch-template/control-plane-a",
				`  LaunchTemplateData.KeyName: "slipway.demo" → (known after apply)`,
				"~ launch-template/control-plane-b",
				`  LaunchTemplateData.KeyName: "slipway.demo" → (known after apply)`,
				"~ launch-template/control-plane-c",
				`  LaunchTemplateData.KeyName: "slipway.demo" → (known after apply)`,
				"~ launch-template/workers",
				`  LaunchTemplateData.KeyName: "slipway.demo" → (known after apply)`,
			},
		},
		{description: "a group's maximum is raised", change: scaleWorkers(&autoscaling.UpdateAutoScalingGroupInput{MaxSize: sdk.Int32(9)}), want: []string{"~ autoscaling-group/workers", "  MaxSize: 9 → 2"}},
		{description: "a group's minimum is lowered", change: scaleWorkers(&autoscaling.UpdateAutoScalingGroupInput{MinSize: sdk.Int32(0)}), want: []string{"~ autoscaling-group/workers", "  MinSize: 0 → 2"}},
		{description: "a subnet is removed from a group", change: func(h awsClients) error {
			return h.updateWorkersGroup(&autoscaling.UpdateAutoScalingGroupInput{VPCZoneIdentifier: sdk.String(*h.resourceID("subnet/private-a") + "," + *h.resourceID("subnet/private-b"))})
		}, want: []string{"~ autoscaling-group/workers", "  VPCZoneIdentifier:"}},
		{
			description: "the health check type of a group is changed", change: scaleWorkers(&autoscaling.UpdateAutoScalingGroupInput{HealthCheckType: sdk.String("ELB")}),
			want: []string{"~ autoscaling-group/workers", `  HealthCheckType: "ELB" → "EC2"`},
		},
		{description: "a group is detached from a target group", change: func(h awsClients) error {
			_, err := h.scaling.DetachLoadBalancerTargetGroups(h, &autoscaling.DetachLoadBalancerTargetGroupsInput{
				AutoScalingGroupName: sdk.String("control-plane-a.demo"), TargetGroupARNs: []string{*h.resourceID("target-group/join")},
			})
			return err
		}, want: []string{"~ autoscaling-group/control-plane-a", "  TargetGroupARNs:"}},
		{description: "an etcd volume has more IOPS", change: modifyEtcdVolume(&ec2.ModifyVolumeInput{Iops: sdk.Int32(6000)}), want: []string{"~ volume/etcd-b", "  Iops: 6000 → 3000"}},
		{description: "an etcd volume has more throughput", change: modifyEtcdVolume(&ec2.ModifyVolumeInput{Throughput: sdk.Int32(250)}), want: []string{"~ volume/etcd-b", "  Throughput: 250 → 125"}},
		{description: "an auto scaling group is removed", leavesNewVersion: true, change: func(h awsClients) error {
			_, err := h.scaling.DeleteAutoScalingGroup(h, &autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: sdk.String("workers.demo"), ForceDelete: sdk.Bool(true)})
			time.Sleep(time.Minute) // its machines end
			return err
		}, want: []string{"+ autoscaling-group/workers", "+ lifecycle-hook/workers"}},
	}
}

// lossDrifts delete whole resources, as a cleanup by hand might do.
func lossDrifts() []drift {
	return []drift{
		{description: "a NAT gateway is deleted", change: func(h awsClients) error {
			_, err := h.ec2.DeleteNatGateway(h, &ec2.DeleteNatGatewayInput{NatGatewayId: h.resourceID("nat-gateway/nat-us-east-1a")})
			return err
		}, want: []string{"+ nat-gateway/nat-us-east-1a", "~ route/private-a", `  NatGatewayId: "ID" → (known after apply)`}},
		{description: "a NAT gateway is deleted and its address released", change: func(h awsClients) error {
			if _, err := h.ec2.DeleteNatGateway(h, &ec2.DeleteNatGatewayInput{NatGatewayId: h.resourceID("nat-gateway/nat-us-east-1b")}); err != nil {
				return err
			}
			time.Sleep(time.Second)
			_, err := h.ec2.ReleaseAddress(h, &ec2.ReleaseAddressInput{AllocationId: h.resourceID("eip/nat-us-east-1b")})
			return err
		}, want: []string{"+ eip/nat-us-east-1b", "+ nat-gateway/nat-us-east-1b", "~ route/private-b", `  NatGatewayId: "ID" → (known after apply)`}},
		{description: "an internet gateway is detached, after the NAT gateways and the public load balancer were deleted", leavesNewVersion: true, change: func(h awsClients) error {
			if _, err := h.elb.DeleteLoadBalancer(h, &elb.DeleteLoadBalancerInput{LoadBalancerArn: h.resourceID("load-balancer/api")}); err != nil {
				return err
			}
			for _, zone := range []string{"a", "b", "c"} {
				if _, err := h.ec2.DeleteNatGateway(h, &ec2.DeleteNatGatewayInput{NatGatewayId: h.resourceID(graph.Addr("nat-gateway/nat-us-east-1" + zone))}); err != nil {
					return err
				}
			}
			time.Sleep(time.Second)
			_, err := h.ec2.DetachInternetGateway(h, &ec2.DetachInternetGatewayInput{InternetGatewayId: h.resourceID("internet-gateway/main"), VpcId: h.resourceID("vpc/main")})
			return err
		}, want: []string{
			`+ gateway-attachment/main`,
			`+ nat-gateway/nat-us-east-1a`,
			`+ nat-gateway/nat-us-east-1b`,
			`+ nat-gateway/nat-us-east-1c`,
			`~ route/private-a`,
			`  NatGatewayId: "ID" → (known after apply)`,
			`~ route/private-b`,
			`  NatGatewayId: "ID" → (known after apply)`,
			`~ route/private-c`,
			`  NatGatewayId: "ID" → (known after apply)`,
			`+ load-balancer/api`,
			`+ listener/api`,
			`~ launch-template/control-plane-a`,
			`  LaunchTemplateData.UserData:`,
			`~ launch-template/control-plane-b`,
			`  LaunchTemplateData.UserData:`,
			`~ launch-template/control-plane-c`,
			`  LaunchTemplateData.UserData:`,
			`~ launch-template/workers`,
			`  LaunchTemplateData.UserData:`,
		}},
		{description: "a target group is deleted with its listener", change: func(h awsClients) error {
			if _, err := h.elb.DeleteListener(h, &elb.DeleteListenerInput{ListenerArn: h.resourceID("listener/join")}); err != nil {
				return err
			}
			_, err := h.elb.DeleteTargetGroup(h, &elb.DeleteTargetGroupInput{TargetGroupArn: h.resourceID("target-group/join")})
			return err
		}, want: []string{
			"+ target-group/join", "+ listener/join",
			"~ autoscaling-group/control-plane-a", "  TargetGroupARNs:", "~ autoscaling-group/control-plane-b", "  TargetGroupARNs:", "~ autoscaling-group/control-plane-c", "  TargetGroupARNs:",
		}},
	}
}
