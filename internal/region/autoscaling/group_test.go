// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2client "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	lb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	lbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/google/go-cmp/cmp"
)

func (s *stack) createGroup(tb testing.TB, g testNetwork, size int32) {
	tb.Helper()
	must[*as.CreateAutoScalingGroupOutput](tb)(s.as.CreateAutoScalingGroup(tb.Context(), &as.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("nodes"), MinSize: aws.Int32(0), MaxSize: aws.Int32(10), DesiredCapacity: aws.Int32(size),
		LaunchTemplate:    &types.LaunchTemplateSpecification{LaunchTemplateId: &g.template, Version: aws.String("$Latest")},
		VPCZoneIdentifier: aws.String(strings.Join(g.subnets, ",")), TargetGroupARNs: []string{g.targets},
		Tags: []types.Tag{
			{Key: aws.String("team"), Value: aws.String("a"), PropagateAtLaunch: aws.Bool(true)},
			{Key: aws.String("mine"), Value: aws.String("b"), PropagateAtLaunch: aws.Bool(false)},
		},
	}))
}

func (s *stack) describeGroup(tb testing.TB) types.AutoScalingGroup {
	tb.Helper()
	out := must[*as.DescribeAutoScalingGroupsOutput](tb)(s.as.DescribeAutoScalingGroups(tb.Context(), &as.DescribeAutoScalingGroupsInput{
		Filters: []types.Filter{{Name: aws.String("tag:team"), Values: []string{"a"}}},
	}))
	if len(out.AutoScalingGroups) != 1 {
		tb.Fatalf("found %d groups, want 1", len(out.AutoScalingGroups))
	}
	return out.AutoScalingGroups[0]
}

// zones returns the number of instances in service by zone.
func zones(g types.AutoScalingGroup) map[string]int {
	out := map[string]int{}
	for _, i := range g.Instances {
		if i.LifecycleState == types.LifecycleStateInService {
			out[*i.AvailabilityZone]++
		}
	}
	return out
}

func (s *stack) targets(tb testing.TB, arn string) []string {
	tb.Helper()
	out := must[*lb.DescribeTargetHealthOutput](tb)(s.lb.DescribeTargetHealth(tb.Context(), &lb.DescribeTargetHealthInput{TargetGroupArn: &arn}))
	var ids []string
	for _, d := range out.TargetHealthDescriptions {
		if d.TargetHealth.State != lbtypes.TargetHealthStateEnumDraining {
			ids = append(ids, *d.Target.Id)
		}
	}
	slices.Sort(ids)
	return ids
}

func ids(g types.AutoScalingGroup) []string {
	var out []string
	for _, i := range g.Instances {
		out = append(out, *i.InstanceId)
	}
	slices.Sort(out)
	return out
}

func TestGroupBalancesZonesTagsAndTargets(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 4)
	s.advanceClock(t)
	got := s.describeGroup(t)
	if diff := cmp.Diff(map[string]int{"eu-west-1a": 2, "eu-west-1b": 2}, zones(got)); diff != "" {
		t.Errorf("instances by zone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ids(got), s.targets(t, g.targets)); diff != "" {
		t.Errorf("targets (-instances +targets):\n%s", diff)
	}
	out := must[*ec2client.DescribeInstancesOutput](t)(s.ec2.DescribeInstances(t.Context(), &ec2client.DescribeInstancesInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:aws:autoscaling:groupName"), Values: []string{"nodes"}}},
	}))
	if len(out.Reservations) != 4 {
		t.Fatalf("%d reservations, want 4", len(out.Reservations))
	}
	tags := map[string]string{}
	for _, tag := range out.Reservations[0].Instances[0].Tags {
		if !strings.HasPrefix(*tag.Key, "aws:") {
			tags[*tag.Key] = *tag.Value
		}
	}
	if diff := cmp.Diff(map[string]string{"team": "a", "from": "template"}, tags); diff != "" {
		t.Errorf("an instance's tags (-want +got):\n%s", diff)
	}
}

func TestGroupReplacesTerminatedAndShrinks(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 2)
	s.advanceClock(t)
	before := ids(s.describeGroup(t))
	must[*ec2client.TerminateInstancesOutput](t)(s.ec2.TerminateInstances(t.Context(), &ec2client.TerminateInstancesInput{InstanceIds: before[:1]}))
	s.advanceClock(t)
	after := s.describeGroup(t)
	if diff := cmp.Diff(map[string]int{"eu-west-1a": 1, "eu-west-1b": 1}, zones(after)); diff != "" {
		t.Errorf("after a termination (-want +got):\n%s", diff)
	}
	if slices.Contains(ids(after), before[0]) || !slices.Contains(ids(after), before[1]) {
		t.Errorf("instances were %v, now %v: want the first replaced", before, ids(after))
	}
	if diff := cmp.Diff(ids(after), s.targets(t, g.targets)); diff != "" {
		t.Errorf("targets (-instances +targets):\n%s", diff)
	}
	must[*as.SetInstanceProtectionOutput](t)(s.as.SetInstanceProtection(t.Context(), &as.SetInstanceProtectionInput{
		AutoScalingGroupName: aws.String("nodes"), InstanceIds: before[1:], ProtectedFromScaleIn: aws.Bool(true),
	}))
	s.resize(t, 1)
	s.advanceClock(t)
	if diff := cmp.Diff(before[1:], ids(s.describeGroup(t))); diff != "" {
		t.Errorf("after shrinking, want the protected instance left (-want +got):\n%s", diff)
	}
}

func TestGroupIsDeletedOnlyWhenEmptyOrForced(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 2)
	s.advanceClock(t)
	remove := func(force bool) string {
		_, err := s.as.DeleteAutoScalingGroup(t.Context(), &as.DeleteAutoScalingGroupInput{AutoScalingGroupName: aws.String("nodes"), ForceDelete: &force})
		return code(err)
	}
	if got := remove(false); got != "ResourceInUse" {
		t.Errorf("delete a group with instances: %q, want ResourceInUse", got)
	}
	if _, err := s.lb.DeleteTargetGroup(t.Context(), &lb.DeleteTargetGroupInput{TargetGroupArn: &g.targets}); err != nil {
		t.Errorf("delete a target group that no listener uses: %v", err)
	}
	if got := remove(true); got != "" {
		t.Errorf("delete by force: %q", got)
	}
	s.advanceClock(t)
	out := must[*as.DescribeAutoScalingGroupsOutput](t)(s.as.DescribeAutoScalingGroups(t.Context(), &as.DescribeAutoScalingGroupsInput{}))
	if len(out.AutoScalingGroups) != 0 {
		t.Errorf("the group still exists: %v", ids(out.AutoScalingGroups[0]))
	}
}

func TestGroupErrors(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 0)
	good := func() *as.CreateAutoScalingGroupInput {
		return &as.CreateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String("other"), MinSize: aws.Int32(0), MaxSize: aws.Int32(1), VPCZoneIdentifier: &g.subnets[0],
			LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: &g.template},
		}
	}
	for name, c := range map[string]struct {
		change func(*as.CreateAutoScalingGroupInput)
		want   string
	}{
		"good":            {func(*as.CreateAutoScalingGroupInput) {}, ""},
		"twice":           {func(in *as.CreateAutoScalingGroupInput) { in.AutoScalingGroupName = aws.String("nodes") }, "AlreadyExists"},
		"desired too big": {func(in *as.CreateAutoScalingGroupInput) { in.DesiredCapacity = aws.Int32(2) }, "ValidationError"},
		"no subnet":       {func(in *as.CreateAutoScalingGroupInput) { in.VPCZoneIdentifier = nil }, "ValidationError"},
		"unknown subnet":  {func(in *as.CreateAutoScalingGroupInput) { in.VPCZoneIdentifier = aws.String("subnet-1") }, "ValidationError"},
		"no template":     {func(in *as.CreateAutoScalingGroupInput) { in.LaunchTemplate = nil }, "ValidationError"},
		"unknown version": {func(in *as.CreateAutoScalingGroupInput) { in.LaunchTemplate.Version = aws.String("7") }, "ValidationError"},
		"unknown targets": {func(in *as.CreateAutoScalingGroupInput) { in.TargetGroupARNs = []string{"arn:x"} }, "ValidationError"},
	} {
		t.Run(name, func(t *testing.T) {
			in := good()
			in.AutoScalingGroupName = aws.String(strings.ReplaceAll(name, " ", "-"))
			c.change(in)
			if _, err := s.as.CreateAutoScalingGroup(t.Context(), in); code(err) != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestNamesOfGroupsAreFew: a request names as many groups as it may get records, 50 by default.
func TestNamesOfGroupsAreFew(t *testing.T) {
	s := newStack(t)
	describe := func(names int, records *int32) string {
		in := &as.DescribeAutoScalingGroupsInput{MaxRecords: records}
		for n := range names {
			in.AutoScalingGroupNames = append(in.AutoScalingGroupNames, fmt.Sprintf("group-%d", n))
		}
		_, err := s.as.DescribeAutoScalingGroups(t.Context(), in)
		return code(err)
	}
	got := []string{describe(50, nil), describe(51, nil), describe(100, aws.Int32(100)), describe(101, aws.Int32(100))}
	if diff := cmp.Diff([]string{"", "ValidationError", "", "ValidationError"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
