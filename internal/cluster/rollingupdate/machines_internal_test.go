// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// createGroup creates a group of workers of two machines in a region, with two versions of its launch template, and
// returns after the machines run.
func createGroup(t *testing.T, r regiontest.Region, mixed bool) *awsMachines {
	t.Helper()
	ctx := t.Context()
	e := ec2.NewFromConfig(r.AWSConfig())
	a := autoscaling.NewFromConfig(r.AWSConfig())
	vpc, err := e.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}

	subnet, err := e.CreateSubnet(ctx, &ec2.CreateSubnetInput{
		VpcId: vpc.Vpc.VpcId, CidrBlock: aws.String("10.0.0.0/20"), AvailabilityZone: aws.String("us-east-1a"),
	})
	if err != nil {
		t.Fatal(err)
	}

	images, err := e.DescribeImages(ctx, &ec2.DescribeImagesInput{})
	if err != nil || len(images.Images) == 0 {
		t.Fatalf("%v, %v", images, err)
	}

	data := &ec2types.RequestLaunchTemplateData{ImageId: images.Images[0].ImageId, InstanceType: "t3.large"}
	template, err := e.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("workers"), LaunchTemplateData: data,
		TagSpecifications: []ec2types.TagSpecification{{
			ResourceType: ec2types.ResourceTypeLaunchTemplate,
			Tags:         []ec2types.Tag{{Key: aws.String(awskind.TagCluster), Value: aws.String("demo")}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}

	id := template.LaunchTemplate.LaunchTemplateId
	data.UserData = aws.String("bmV3")
	if _, err := e.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: id, LaunchTemplateData: data}); err != nil {
		t.Fatal(err)
	}

	spec := &astypes.LaunchTemplateSpecification{LaunchTemplateId: id, Version: aws.String("1")}
	in := &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("workers.demo"), MinSize: aws.Int32(2), MaxSize: aws.Int32(2), VPCZoneIdentifier: subnet.Subnet.SubnetId,
		Tags: []astypes.Tag{
			{Key: aws.String(awskind.TagCluster), Value: aws.String("demo"), PropagateAtLaunch: aws.Bool(true)},
			{Key: aws.String(awskind.TagGroup), Value: aws.String("workers"), PropagateAtLaunch: aws.Bool(true)},
		},
	}
	if mixed {
		in.MixedInstancesPolicy = &astypes.MixedInstancesPolicy{LaunchTemplate: &astypes.LaunchTemplate{LaunchTemplateSpecification: spec}}
	} else {
		in.LaunchTemplate = spec
	}

	if _, err := a.CreateAutoScalingGroup(ctx, in); err != nil {
		t.Fatal(err)
	}

	m := newAWSMachines(r.AWSConfig(), "demo", clusterstate.Ownership{}, time.Now)
	waitForMachines(t, m, func(machines []rollout.Machine) bool { return countIn(machines) == 2 })

	return m
}

// countIn counts the machines of the group that are neither detached nor being terminated.
func countIn(machines []rollout.Machine) int {
	n := 0
	for _, m := range machines {
		if !m.Detached && m.State != rollout.StateTerminating {
			n++
		}
	}

	return n
}

// waitForMachines lists the machines until they are as they should be.
func waitForMachines(t *testing.T, m *awsMachines, ok func([]rollout.Machine) bool) []rollout.Machine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		_, machines, err := m.List(ctx)
		if err != nil {
			t.Fatal(err)
		}

		if ok(machines) {
			return machines
		}

		time.Sleep(50 * time.Millisecond)
	}
}

// The region is as strict as AWS: these are the calls of an update with a surge and of a rollback.
func TestMachinesOfRegion(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		r := regiontest.Start(t)
		m := createGroup(t, r, mixed)
		groups, machines, err := m.List(t.Context())
		if err != nil || len(groups) != 1 || groups[0].Version != "2" || groups[0].Launches != "1" || groups[0].Size != 2 {
			t.Fatalf("%+v, %v", groups, err)
		}

		for version, want := range map[string][]string{"1": nil, "2": {"workers"}} {
			m.Avoid(map[string]string{"workers/": version})
			if returned, err := m.rolledBack(t.Context()); err != nil || !slices.Equal(returned, want) {
				t.Errorf("version %s is avoided: rolled back are %v, %v", version, returned, err)
			}
		}
		m.Avoid(nil)

		first := machines[0]
		if err := m.Detach(t.Context(), first); err != nil {
			t.Fatal(err)
		}

		after := waitForMachines(t, m, func(x []rollout.Machine) bool { return countIn(x) == 2 && len(x) == 3 })
		at := slices.IndexFunc(after, func(x rollout.Machine) bool { return x.ID == first.ID })
		if !after[at].Detached || after[at].Version != "1" || after[at].Group != "workers" || after[at].Launched.IsZero() || after[at].Zone == "" {
			t.Errorf("the detached machine is %+v", after[at])
		}

		if err := m.Terminate(t.Context(), after[at]); err != nil {
			t.Fatal(err)
		}

		waitForMachines(t, m, func(x []rollout.Machine) bool { return countIn(x) == 2 && len(x) == 2 })
		if err := m.SetVersion(t.Context(), groups[0], "2"); err != nil {
			t.Fatal(err)
		}

		for _, gone := range []rollout.Machine{after[at], {ID: after[at].ID, Group: "workers"}, {ID: "i-00000000000000000", Group: "workers", Detached: true}} {
			err := m.Terminate(t.Context(), gone)
			if err != nil && !errors.Is(err, errGone) {
				t.Errorf("terminate %s again: %v", gone.ID, err)
			}
		}

		if err := m.Detach(t.Context(), rollout.Machine{ID: "i-00000000000000000", Group: "workers"}); !errors.Is(err, errGone) {
			t.Errorf("detach a machine that is gone: %v", err)
		}

		if groups, _, err = m.List(t.Context()); err != nil || groups[0].IsBehind() {
			t.Errorf("behind the newest version: %+v, %v", groups, err)
		}

		if err := m.Terminate(t.Context(), machines[1]); err != nil {
			t.Fatal(err)
		}

		waitForMachines(t, m, func(x []rollout.Machine) bool {
			return countIn(x) == 2 && slices.ContainsFunc(x, func(y rollout.Machine) bool { return y.Version == "2" })
		})
	}
}
