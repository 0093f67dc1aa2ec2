// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// must ends the test if the lab itself failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const sharedRole = "demo.control-plane.us-east-1" // what an older slipway called it

// addSharedRole gives the cluster the role that an older slipway gave all control-plane machines.
func (h hand) addSharedRole(t *testing.T) {
	t.Helper()
	own, err := h.iam.GetRole(h.ctx, &iam.GetRoleInput{RoleName: h.find("iam-role/control-plane-a")})
	must(t, err)

	tags := []iamtypes.Tag{{Key: new("slipway.dev/address"), Value: new("iam-role/control-plane")}}
	for _, tag := range own.Role.Tags {
		if *tag.Key != "slipway.dev/address" && *tag.Key != "slipway.dev/etcd-slot" {
			tags = append(tags, tag)
		}
	}

	_, err = h.iam.CreateRole(h.ctx, &iam.CreateRoleInput{
		RoleName: new(sharedRole), Path: own.Role.Path, Tags: tags,
		AssumeRolePolicyDocument: new(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"Service":"ec2.amazonaws.com"}}]}`),
	})
	must(t, err)
	_, err = h.iam.CreateInstanceProfile(h.ctx, &iam.CreateInstanceProfileInput{
		InstanceProfileName: new(sharedRole), Path: own.Role.Path,
	})
	must(t, err)
	_, err = h.iam.AddRoleToInstanceProfile(h.ctx, &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: new(sharedRole), RoleName: new(sharedRole),
	})
	must(t, err)
}

// launchWith makes a version of slot b's launch template with an instance profile, lets the group launch it, and
// replaces the machine.
func (h hand) launchWith(t *testing.T, profile string) {
	t.Helper()
	template := h.find("launch-template/control-plane-b")
	made, err := h.ec2.CreateLaunchTemplateVersion(h.ctx, &ec2.CreateLaunchTemplateVersionInput{
		LaunchTemplateId: template, SourceVersion: new("$Latest"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: &profile},
		},
	})
	must(t, err)
	h.setVersion(t, template, strconv.FormatInt(*made.LaunchTemplateVersion.VersionNumber, 10))
	h.replaceMachine(t)
}

func (h hand) setVersion(t *testing.T, template *string, version string) {
	t.Helper()
	_, err := h.scale.UpdateAutoScalingGroup(h.ctx, &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: new("control-plane-b.demo"),
		LaunchTemplate:       &astypes.LaunchTemplateSpecification{LaunchTemplateId: template, Version: &version},
	})
	must(t, err)
}

// replaceMachine terminates the machine of slot b and waits for another one.
func (h hand) replaceMachine(t *testing.T) {
	t.Helper()
	old := h.machineOfB(t, "")
	_, err := h.ec2.TerminateInstances(h.ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{old}})
	must(t, err)
	h.machineOfB(t, old)
}

// machineOfB returns the running machine of slot b, once it is another one than old.
func (h hand) machineOfB(t *testing.T, old string) string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		out, err := h.ec2.DescribeInstances(h.ctx, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
			{Name: new("tag:slipway.dev/etcd-slot"), Values: []string{"b"}},
			{Name: new("instance-state-name"), Values: []string{"pending", "running", "shutting-down"}},
		}})
		must(t, err)
		if len(out.Reservations) == 1 && *out.Reservations[0].Instances[0].InstanceId != old {
			return *out.Reservations[0].Instances[0].InstanceId
		}
	}

	t.Fatal("slot b has no new machine")

	return ""
}

// TestSharedRoleStaysWhileItIsUsed: an older slipway gave all slots one role. An apply gives the slots roles of their own.
// It leaves the old one, with its profile, until no machine has it and no group launches machines with it; then it
// deletes it. Deleting it at once would take all permissions from running control planes.
func TestSharedRoleStaysWhileItIsUsed(t *testing.T) {
	r := regiontest.StartWith(t, regiontest.Options{})
	s := newShell(t, r)
	s.must("state", "init", "--yes")
	s.must("create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	s.must("apply", "demo", "--yes")
	h := newHand(t.Context(), r)
	h.addSharedRole(t)
	h.launchWith(t, sharedRole)
	expect := func(when string, isKept bool) {
		t.Helper()
		_, out, errs := s.run("plan", "demo")
		if strings.Contains(out, "- iam-role/control-plane ") == isKept {
			t.Errorf("%s: the plan should keep the shared role: %v\n%s%s", when, isKept, out, errs)
		}

		configuration := s.must("render", "terraform", "demo")
		if strings.Contains(configuration, `"`+sharedRole+`"`) != isKept {
			t.Errorf("%s: the Terraform configuration should keep the shared role: %v", when, isKept)
		}
	}

	expect("the newest version has it", true)
	s.must("apply", "demo", "--yes")
	expect("the machine has it", true)
	s.must("apply", "demo", "--yes")
	h.setVersion(t, h.find("launch-template/control-plane-b"), "$Latest")
	s.must("apply", "demo", "--yes")
	expect("the group has the newest version, and the machine the role", true)
	h.replaceMachine(t)
	expect("nobody has it", false)
	s.must("apply", "demo", "--yes")
	if _, err := h.iam.GetRole(h.ctx, &iam.GetRoleInput{RoleName: new(sharedRole)}); err == nil {
		t.Error("the shared role still exists")
	}
}
