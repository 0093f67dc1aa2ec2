// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// template creates a launch template, and returns its id.
func (l *lateLab) template() *string {
	l.Helper()
	out, err := l.ec2.CreateLaunchTemplate(l.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("machines"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId: aws.String(regiontest.ImageID), InstanceType: ec2types.InstanceTypeT3Large,
		},
	})
	l.must(err)

	return out.LaunchTemplate.LaunchTemplateId
}

// runInstance launches an instance in the default subnet, and returns its id.
func (l *lateLab) runInstance() *string {
	l.Helper()
	out, err := l.ec2.RunInstances(l.Context(), &ec2.RunInstancesInput{
		ImageId: aws.String(regiontest.ImageID), InstanceType: ec2types.InstanceTypeT3Large,
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: l.defaultSubnet().SubnetId,
	})
	l.must(err)

	return out.Instances[0].InstanceId
}

// awaitRunning returns when an instance runs.
func (l *lateLab) awaitRunning(id string) {
	l.Helper()
	waiter := ec2.NewInstanceRunningWaiter(l.ec2, func(o *ec2.InstanceRunningWaiterOptions) {
		o.MinDelay = 10 * time.Millisecond
		o.MaxDelay = 100 * time.Millisecond
	})
	l.must(waiter.Wait(l.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}, time.Minute))
}

// seeInstance returns the error that describes an instance that is not seen yet, and a call that describes it.
func (l *lateLab) seeInstance(id *string) (string, func(context.Context) error) {
	return "InvalidInstanceID.NotFound", func(ctx context.Context) error {
		_, err := l.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{*id}})
		return err
	}
}

// computeCases are the cases of instances and what they are launched from.
func computeCases() map[string]lateCase {
	return map[string]lateCase{
		"ec2.RunInstances": func(l *lateLab) (string, func(context.Context) error) {
			return l.seeInstance(l.runInstance())
		},
		"ec2.CreateFleet": func(l *lateLab) (string, func(context.Context) error) {
			spec := &ec2types.FleetLaunchTemplateSpecificationRequest{Version: aws.String("1")}
			l.withoutDelay(func() { spec.LaunchTemplateId = l.template() })
			out, err := l.ec2.CreateFleet(l.Context(), &ec2.CreateFleetInput{
				Type: ec2types.FleetTypeInstant,
				TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
					TotalTargetCapacity: aws.Int32(1), DefaultTargetCapacityType: ec2types.DefaultTargetCapacityTypeOnDemand,
				},
				LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
					LaunchTemplateSpecification: spec,
					Overrides: []ec2types.FleetLaunchTemplateOverridesRequest{{
						InstanceType: ec2types.InstanceTypeT3Large, SubnetId: l.defaultSubnet().SubnetId,
					}},
				}},
			})
			l.must(err)
			if len(out.Instances) == 0 {
				l.Fatalf("the fleet launched nothing: %+v", out.Errors)
			}

			return l.seeInstance(&out.Instances[0].InstanceIds[0])
		},
		"ec2.CreateVolume": func(l *lateLab) (string, func(context.Context) error) {
			id := l.volume()

			return "InvalidVolume.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{*id}})
				return err
			}
		},
		"ec2.CopyImage": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.CopyImage(l.Context(), &ec2.CopyImageInput{
				Name: aws.String("copy"), SourceImageId: aws.String(regiontest.ImageID), SourceRegion: aws.String(regiontest.RegionName),
			})
			l.must(err)

			return "InvalidAMIID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{*out.ImageId}})
				return err
			}
		},
		"ec2.CreateLaunchTemplate": func(l *lateLab) (string, func(context.Context) error) {
			l.template()

			return "InvalidLaunchTemplateName.NotFoundException", func(ctx context.Context) error {
				_, err := l.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{
					LaunchTemplateNames: []string{"machines"},
				})

				return err
			}
		},
	}
}

// volume creates a volume in the zone of the default subnet, and returns its id.
func (l *lateLab) volume() *string {
	l.Helper()
	out, err := l.ec2.CreateVolume(l.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: l.defaultSubnet().AvailabilityZone, Size: aws.Int32(1), VolumeType: ec2types.VolumeTypeGp3,
	})
	l.must(err)

	return out.VolumeId
}
