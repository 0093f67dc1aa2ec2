// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// pagedList is a list of a service, and how many entries its first page has if a request does not say.
type pagedList struct {
	name string
	want int
	// list returns the entries of the first page, and whether there is another one.
	list func() (entries int, more bool, err error)
}

// TestListsHavePages: a list that a client reads without a paginator ends where it ends at AWS.
func TestListsHavePages(t *testing.T) {
	t.Parallel()
	cfg := regiontest.Start(t).AWSConfig()
	for _, l := range []pagedList{
		newScalingGroups(t, cfg, 51), newRoles(t, cfg, 101), newKeys(t, cfg, 101), newAliases(t, cfg, 51),
		newTemplates(t, cfg, 201), newZones(t, cfg, 101),
	} {
		entries, more, err := l.list()
		if err != nil || entries != l.want || !more {
			t.Errorf("%s: %d entries, want %d and another page: %t %v", l.name, entries, l.want, more, err)
		}
	}
}

// repeat calls create with the numbers below n.
func repeat(t *testing.T, n int, create func(name string) error) {
	t.Helper()
	for i := range n {
		if err := create(fmt.Sprintf("paged-%04d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

func newScalingGroups(t *testing.T, cfg aws.Config, n int) pagedList {
	t.Helper()
	machines := ec2.NewFromConfig(cfg)
	template, err := machines.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("groups"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "t3.micro", ImageId: aws.String(regiontest.ImageID)},
	})
	if err != nil {
		t.Fatal(err)
	}
	subnets, err := machines.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	if err != nil || len(subnets.Subnets) == 0 {
		t.Fatalf("the default VPC has no subnets: %v", err)
	}
	api := autoscaling.NewFromConfig(cfg)
	repeat(t, n, func(name string) error {
		_, err := api.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
			AutoScalingGroupName: &name, MinSize: aws.Int32(0), MaxSize: aws.Int32(0), VPCZoneIdentifier: subnets.Subnets[0].SubnetId,
			LaunchTemplate: &autoscalingtypes.LaunchTemplateSpecification{LaunchTemplateId: template.LaunchTemplate.LaunchTemplateId},
		})
		return err
	})
	return pagedList{"Auto Scaling groups", 50, func() (int, bool, error) {
		out, err := api.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{})
		if err != nil {
			return 0, false, err
		}
		return len(out.AutoScalingGroups), out.NextToken != nil, nil
	}}
}

func newRoles(t *testing.T, cfg aws.Config, n int) pagedList {
	t.Helper()
	api := iam.NewFromConfig(cfg)
	repeat(t, n, func(name string) error {
		_, err := api.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: aws.String(trust)})
		return err
	})
	return pagedList{"roles", 100, func() (int, bool, error) {
		out, err := api.ListRoles(t.Context(), &iam.ListRolesInput{})
		if err != nil {
			return 0, false, err
		}
		return len(out.Roles), out.IsTruncated, nil
	}}
}

func newKeys(t *testing.T, cfg aws.Config, n int) pagedList {
	t.Helper()
	api := kms.NewFromConfig(cfg)
	repeat(t, n, func(string) error {
		_, err := api.CreateKey(t.Context(), &kms.CreateKeyInput{})
		return err
	})
	return pagedList{"keys", 100, func() (int, bool, error) {
		out, err := api.ListKeys(t.Context(), &kms.ListKeysInput{})
		if err != nil {
			return 0, false, err
		}
		return len(out.Keys), out.Truncated, nil
	}}
}

func newAliases(t *testing.T, cfg aws.Config, n int) pagedList {
	t.Helper()
	api := kms.NewFromConfig(cfg)
	key, err := api.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	repeat(t, n, func(name string) error {
		_, err := api.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: aws.String("alias/" + name), TargetKeyId: key.KeyMetadata.KeyId})
		return err
	})
	return pagedList{"aliases", 50, func() (int, bool, error) {
		out, err := api.ListAliases(t.Context(), &kms.ListAliasesInput{})
		if err != nil {
			return 0, false, err
		}
		return len(out.Aliases), out.Truncated, nil
	}}
}

func newTemplates(t *testing.T, cfg aws.Config, n int) pagedList {
	t.Helper()
	api := ec2.NewFromConfig(cfg)
	repeat(t, n, func(name string) error {
		_, err := api.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: &name, LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "t3.micro"},
		})
		return err
	})
	return pagedList{"launch templates", 200, func() (int, bool, error) {
		out, err := api.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{})
		if err != nil {
			return 0, false, err
		}
		return len(out.LaunchTemplates), out.NextToken != nil, nil
	}}
}

func newZones(t *testing.T, cfg aws.Config, n int) pagedList {
	t.Helper()
	api := route53.NewFromConfig(cfg)
	repeat(t, n, func(name string) error {
		_, err := api.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{Name: aws.String(name + ".example"), CallerReference: &name})
		return err
	})
	return pagedList{"hosted zones", 100, func() (int, bool, error) {
		out, err := api.ListHostedZones(t.Context(), &route53.ListHostedZonesInput{})
		if err != nil {
			return 0, false, err
		}
		return len(out.HostedZones), out.IsTruncated, nil
	}}
}
