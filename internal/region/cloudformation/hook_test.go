// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
)

// TestLifecycleHook: a stack puts the hook of a group, changes it and deletes it with the group.
func TestLifecycleHook(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	template := func(seconds string) string {
		return `
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}
  Net: {Type: AWS::EC2::Subnet, Properties: {VpcId: !Ref Vpc, CidrBlock: 10.0.1.0/24}}
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties: {LaunchTemplateData: {ImageId: ami-0123456789abcdef0, InstanceType: t3.medium}}
  Group:
    Type: AWS::AutoScaling::AutoScalingGroup
    Properties:
      MinSize: "0"
      MaxSize: "1"
      VPCZoneIdentifier: [!Ref Net]
      LaunchTemplate: {LaunchTemplateId: !Ref Template, Version: !GetAtt Template.LatestVersionNumber}
  Hook:
    Type: AWS::AutoScaling::LifecycleHook
    Properties:
      AutoScalingGroupName: !Ref Group
      LifecycleTransition: autoscaling:EC2_INSTANCE_TERMINATING
      HeartbeatTimeout: ` + seconds + `
Outputs:
  Group: {Value: !Ref Group}
`
	}

	st := l.create("s", template("60"))
	l.want(st, "CREATE_COMPLETE")
	heartbeat := func() []int32 {
		out := must[*autoscaling.DescribeLifecycleHooksOutput](l)(autoscaling.NewFromConfig(l.region.AWSConfig()).DescribeLifecycleHooks(l.ctx(), &autoscaling.DescribeLifecycleHooksInput{
			AutoScalingGroupName: aws.String(l.output(st, "Group")),
		}))
		var seconds []int32
		for _, hook := range out.LifecycleHooks {
			if *hook.LifecycleHookName == l.physical("s", "Hook") {
				seconds = append(seconds, *hook.HeartbeatTimeout)
			}
		}
		return seconds
	}
	if got := heartbeat(); len(got) != 1 || got[0] != 60 {
		t.Errorf("the heartbeats of the stack's hook are %v, want 60 s", got)
	}

	l.want(l.update("s", template("90")), "UPDATE_COMPLETE")
	if got := heartbeat(); len(got) != 1 || got[0] != 90 {
		t.Errorf("after the update the heartbeats are %v, want 90 s", got)
	}
	l.want(l.remove("s"), "DELETE_COMPLETE")
}
