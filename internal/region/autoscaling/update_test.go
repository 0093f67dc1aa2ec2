// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2client "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	lb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/google/go-cmp/cmp"
)

func (s *stack) update(t *testing.T, change func(*as.UpdateAutoScalingGroupInput)) string {
	t.Helper()
	in := &as.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String("nodes")}
	change(in)
	_, err := s.as.UpdateAutoScalingGroup(t.Context(), in)
	return code(err)
}

func TestGroupIsUpdated(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 2)
	s.advanceClock(t)
	must[*ec2client.CreateLaunchTemplateVersionOutput](t)(s.ec2.CreateLaunchTemplateVersion(t.Context(), &ec2client.CreateLaunchTemplateVersionInput{
		LaunchTemplateId: &g.template, SourceVersion: aws.String("1"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "t3.large"},
	}))
	got := []string{
		s.update(t, func(in *as.UpdateAutoScalingGroupInput) { in.DesiredCapacity = aws.Int32(3) }),
		s.update(t, func(in *as.UpdateAutoScalingGroupInput) { in.MaxSize = aws.Int32(1); in.DesiredCapacity = aws.Int32(3) }),
		s.update(t, func(in *as.UpdateAutoScalingGroupInput) { in.VPCZoneIdentifier = aws.String("subnet-nowhere") }),
		s.update(t, func(in *as.UpdateAutoScalingGroupInput) {
			in.LaunchTemplate = &types.LaunchTemplateSpecification{LaunchTemplateId: &g.template, LaunchTemplateName: aws.String("nodes")}
		}),
	}
	if diff := cmp.Diff([]string{"", "ValidationError", "ValidationError", "ValidationError"}, got); diff != "" {
		t.Errorf("grow, too few, nowhere, two templates (-want +got):\n%s", diff)
	}
	s.advanceClock(t)
	var kinds []string
	for _, i := range s.describeGroup(t).Instances {
		kinds = append(kinds, *i.InstanceType+" of version "+*i.LaunchTemplate.Version)
	}
	slices.Sort(kinds)
	if diff := cmp.Diff([]string{"t3.large of version 2", "t3.medium of version 1", "t3.medium of version 1"}, kinds); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	// When the group shrinks within a zone, the instance of the oldest version is terminated first.
	if got := s.update(t, func(in *as.UpdateAutoScalingGroupInput) { in.MaxSize = aws.Int32(2) }); got != "" {
		t.Errorf("shrink by the maximum: %q", got)
	}
	s.advanceClock(t)
	if n := len(s.describeGroup(t).Instances); n != 2 {
		t.Errorf("%d instances after the maximum became 2", n)
	}
}

func TestAttachAndDetachTargetGroups(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 2)
	s.advanceClock(t)
	other := *must[*lb.CreateTargetGroupOutput](t)(s.lb.CreateTargetGroup(t.Context(), &lb.CreateTargetGroupInput{
		Name: aws.String("join"), Protocol: "TCP", Port: aws.Int32(3988), VpcId: &g.vpc,
	})).TargetGroups[0].TargetGroupArn
	must[*as.AttachLoadBalancerTargetGroupsOutput](t)(s.as.AttachLoadBalancerTargetGroups(t.Context(), &as.AttachLoadBalancerTargetGroupsInput{
		AutoScalingGroupName: aws.String("nodes"), TargetGroupARNs: []string{other},
	}))
	must[*as.DetachLoadBalancerTargetGroupsOutput](t)(s.as.DetachLoadBalancerTargetGroups(t.Context(), &as.DetachLoadBalancerTargetGroupsInput{
		AutoScalingGroupName: aws.String("nodes"), TargetGroupARNs: []string{g.targets},
	}))
	s.advanceClock(t)
	if diff := cmp.Diff(ids(s.describeGroup(t)), s.targets(t, other)); diff != "" {
		t.Errorf("the attached group's targets (-instances +targets):\n%s", diff)
	}
	if left := s.targets(t, g.targets); len(left) != 0 {
		t.Errorf("the detached group still has %v", left)
	}
}

func TestSuspendedGroupDoesNotLaunch(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 0)
	must[*as.SuspendProcessesOutput](t)(s.as.SuspendProcesses(t.Context(), &as.SuspendProcessesInput{AutoScalingGroupName: aws.String("nodes"), ScalingProcesses: []string{"Launch"}}))
	s.resize(t, 1)
	s.advanceClock(t)
	if n := len(s.describeGroup(t).Instances); n != 0 {
		t.Errorf("%d instances though launching is suspended", n)
	}
	must[*as.ResumeProcessesOutput](t)(s.as.ResumeProcesses(t.Context(), &as.ResumeProcessesInput{AutoScalingGroupName: aws.String("nodes")}))
	s.advanceClock(t)
	if n := len(s.describeGroup(t).Instances); n != 1 {
		t.Errorf("%d instances after resuming, want 1", n)
	}
}

func TestFailedLaunchesAreRecordedAndDelayed(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 0)
	must[*ec2client.DeleteLaunchTemplateOutput](t)(s.ec2.DeleteLaunchTemplate(t.Context(), &ec2client.DeleteLaunchTemplateInput{LaunchTemplateId: &g.template}))
	s.resize(t, 1)
	for range 5 {
		s.advanceClock(t) // ten seconds: launches at 0, 2 and 6
	}
	out := must[*as.DescribeScalingActivitiesOutput](t)(s.as.DescribeScalingActivities(t.Context(), &as.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String("nodes")}))
	failed := 0
	for _, a := range out.Activities {
		if a.StatusCode == types.ScalingActivityStatusCodeFailed && *a.StatusMessage != "" {
			failed++
		}
	}
	if failed != 3 {
		t.Errorf("%d failed launches in ten seconds, want 3", failed)
	}
}

func TestGroupTags(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 0)
	tag := func(key, value, group string) []types.Tag {
		return []types.Tag{{Key: &key, Value: &value, ResourceId: &group, ResourceType: aws.String("auto-scaling-group"), PropagateAtLaunch: aws.Bool(true)}}
	}
	must[*as.CreateOrUpdateTagsOutput](t)(s.as.CreateOrUpdateTags(t.Context(), &as.CreateOrUpdateTagsInput{Tags: tag("mine", "c", "nodes")}))
	must[*as.DeleteTagsOutput](t)(s.as.DeleteTags(t.Context(), &as.DeleteTagsInput{Tags: tag("team", "", "nodes")}))
	if _, err := s.as.CreateOrUpdateTags(t.Context(), &as.CreateOrUpdateTagsInput{Tags: tag("x", "y", "nobody")}); code(err) != "ValidationError" {
		t.Errorf("tag a group that does not exist: %v", err)
	}
	out := must[*as.DescribeTagsOutput](t)(s.as.DescribeTags(t.Context(), &as.DescribeTagsInput{
		Filters: []types.Filter{{Name: aws.String("auto-scaling-group"), Values: []string{"nodes"}}},
	}))
	got := map[string]string{}
	for _, x := range out.Tags {
		got[*x.Key] = *x.Value
	}
	if diff := cmp.Diff(map[string]string{"mine": "c"}, got); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
}

func TestStandbyAndTerminationOfMembers(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 2)
	s.advanceClock(t)
	first := ids(s.describeGroup(t))[0]
	must[*as.EnterStandbyOutput](t)(s.as.EnterStandby(t.Context(), &as.EnterStandbyInput{
		AutoScalingGroupName: aws.String("nodes"), InstanceIds: []string{first}, ShouldDecrementDesiredCapacity: aws.Bool(true),
	}))
	s.advanceClock(t)
	if got := s.targets(t, g.targets); len(got) != 1 || got[0] == first {
		t.Errorf("targets with %s in standby: %v", first, got)
	}
	must[*as.ExitStandbyOutput](t)(s.as.ExitStandby(t.Context(), &as.ExitStandbyInput{AutoScalingGroupName: aws.String("nodes"), InstanceIds: []string{first}}))
	s.advanceClock(t)
	if got := s.targets(t, g.targets); !slices.Contains(got, first) {
		t.Errorf("targets after standby: %v, without %s", got, first)
	}
	must[*as.TerminateInstanceInAutoScalingGroupOutput](t)(s.as.TerminateInstanceInAutoScalingGroup(t.Context(), &as.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &first, ShouldDecrementDesiredCapacity: aws.Bool(true),
	}))
	s.advanceClock(t)
	if got := ids(s.describeGroup(t)); len(got) != 1 || got[0] == first {
		t.Errorf("remaining instances: %v", got)
	}
}
