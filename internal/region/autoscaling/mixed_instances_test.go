// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2client "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

// createMixedGroup creates a group with a policy of several instance types.
func (s *stack) createMixedGroup(tb testing.TB, g testNetwork, size int32, d types.InstancesDistribution, kinds ...string) error {
	tb.Helper()
	p := &types.MixedInstancesPolicy{InstancesDistribution: &d, LaunchTemplate: &types.LaunchTemplate{
		LaunchTemplateSpecification: &types.LaunchTemplateSpecification{LaunchTemplateId: &g.template, Version: aws.String("1")},
	}}
	for _, k := range kinds {
		p.LaunchTemplate.Overrides = append(p.LaunchTemplate.Overrides, types.LaunchTemplateOverrides{InstanceType: aws.String(k)})
	}
	_, err := s.as.CreateAutoScalingGroup(tb.Context(), &as.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("nodes"), MinSize: aws.Int32(0), MaxSize: aws.Int32(20), DesiredCapacity: aws.Int32(size),
		MixedInstancesPolicy: p, VPCZoneIdentifier: aws.String(strings.Join(g.subnets, ",")), CapacityRebalance: aws.Bool(true),
		Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("a"), PropagateAtLaunch: aws.Bool(true)}},
	})
	return err
}

// kinds returns the number of instances by purchasing option and type.
func (s *stack) kinds(tb testing.TB) map[string]int {
	tb.Helper()
	out := map[string]int{}
	list := must[*ec2client.DescribeInstancesOutput](tb)(s.ec2.DescribeInstances(tb.Context(), &ec2client.DescribeInstancesInput{}))
	for _, r := range list.Reservations {
		for _, i := range r.Instances {
			if i.State.Name != ec2types.InstanceStateNameTerminated {
				out[strings.TrimSpace(string(i.InstanceLifecycle)+" "+string(i.InstanceType))]++
			}
		}
	}
	return out
}

func TestSpotAboveTheBase(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	err := s.createMixedGroup(t, g, 7, types.InstancesDistribution{
		OnDemandBaseCapacity: aws.Int32(2), OnDemandPercentageAboveBaseCapacity: aws.Int32(40), SpotAllocationStrategy: aws.String("capacity-optimized"),
	}, "m6i.large", "m5.large")
	if err != nil {
		t.Fatal(err)
	}
	s.advanceClock(t)
	if diff := cmp.Diff(map[string]int{"m6i.large": 4, "spot m6i.large": 3}, s.kinds(t)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	shown := s.describeGroup(t)
	if !*shown.CapacityRebalance || shown.LaunchTemplate != nil || len(shown.MixedInstancesPolicy.LaunchTemplate.Overrides) != 2 {
		t.Errorf("described as %+v", shown)
	}
}

// TestFallback checks that a group launches the next type if the quota does not allow the first one.
func TestFallback(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	// The quota of vCPUs allows one instance of the first type.
	if err := s.createMixedGroup(t, g, 3, types.InstancesDistribution{OnDemandPercentageAboveBaseCapacity: aws.Int32(0)}, "m6i.32xlarge", "m5.large"); err != nil {
		t.Fatal(err)
	}
	s.advanceClock(t)
	got := s.kinds(t)
	if got["spot m5.large"] == 0 || got["spot m5.large"]+got["spot m6i.32xlarge"] != 3 {
		t.Errorf("instances: got %v", got)
	}
}

// TestNoCapacity checks that a group launches the next type if EC2 has no capacity for the first one, and says so if it has
// none for any.
func TestNoCapacity(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	s.fill("m6i.large")
	if err := s.createMixedGroup(t, g, 2, types.InstancesDistribution{OnDemandPercentageAboveBaseCapacity: aws.Int32(100)}, "m6i.large", "m5.large"); err != nil {
		t.Fatal(err)
	}
	s.advanceClock(t)
	if diff := cmp.Diff(map[string]int{"m5.large": 2}, s.kinds(t)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	s.fill("m6i.large", "m5.large")
	_, err := s.as.SetDesiredCapacity(t.Context(), &as.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("nodes"), DesiredCapacity: aws.Int32(3)})
	if err != nil {
		t.Fatal(err)
	}
	s.advanceClock(t)
	out := must[*as.DescribeScalingActivitiesOutput](t)(s.as.DescribeScalingActivities(t.Context(), &as.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String("nodes")}))
	if a := out.Activities[0]; a.StatusCode != types.ScalingActivityStatusCodeFailed || !strings.Contains(aws.ToString(a.StatusMessage), "do not have sufficient m5.large capacity") {
		t.Errorf("the newest activity is %+v", a)
	}
	_, err = s.ec2.RunInstances(t.Context(), &ec2client.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large", ImageId: aws.String("ami-0123456789abcdef0"), SubnetId: &g.subnets[0],
	}, func(o *ec2client.Options) { o.RetryMaxAttempts = 1 })
	if code(err) != "InsufficientInstanceCapacity" {
		t.Errorf("an instance of its own: %v", err)
	}
}

func TestPolicyIsChecked(t *testing.T) {
	for want, c := range map[string]struct {
		d     types.InstancesDistribution
		kinds []string
	}{
		"Invalid instance type: 'm5.huge'":      {kinds: []string{"m5.huge"}},
		"is given by two overrides":             {kinds: []string{"m5.large", "m5.large"}},
		"must be between 0 and 100":             {d: types.InstancesDistribution{OnDemandPercentageAboveBaseCapacity: aws.Int32(101)}},
		"must not be negative":                  {d: types.InstancesDistribution{OnDemandBaseCapacity: aws.Int32(-1)}},
		"Invalid SpotAllocationStrategy: 'any'": {d: types.InstancesDistribution{SpotAllocationStrategy: aws.String("any")}},
		"Invalid OnDemandAllocationStrategy":    {d: types.InstancesDistribution{OnDemandAllocationStrategy: aws.String("any")}},
		"Invalid Spot max price: 'cheap'":       {d: types.InstancesDistribution{SpotMaxPrice: aws.String("cheap")}},
		"only available with the lowest-price":  {d: types.InstancesDistribution{SpotAllocationStrategy: aws.String("capacity-optimized"), SpotInstancePools: aws.Int32(2)}},
	} {
		s := newStack(t)
		err := s.createMixedGroup(t, s.createTestNetwork(t.Context(), t), 1, c.d, c.kinds...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}
