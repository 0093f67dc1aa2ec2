// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// deniedScaling refuses the deletion of a group with a message that contains "not found".
type deniedScaling struct{ scalingAPI }

func (deniedScaling) DeleteAutoScalingGroup(
	context.Context, *autoscaling.DeleteAutoScalingGroupInput, ...func(*autoscaling.Options),
) (*autoscaling.DeleteAutoScalingGroupOutput, error) {
	return nil, accessDenied("no identity-based policy not found to allow it")
}

func (deniedScaling) DescribeAutoScalingGroups(
	context.Context, *autoscaling.DescribeAutoScalingGroupsInput, ...func(*autoscaling.Options),
) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
	return &autoscaling.DescribeAutoScalingGroupsOutput{}, nil
}

// noInstances finds no instance.
type noInstances struct{}

func (noInstances) DescribeInstances(
	context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	return &ec2.DescribeInstancesOutput{}, nil
}

// deniedZones refuses the deletion of a zone with a message that names another error.
type deniedZones struct{ zoneAPI }

func (deniedZones) DeleteHostedZone(
	context.Context, *route53.DeleteHostedZoneInput, ...func(*route53.Options),
) (*route53.DeleteHostedZoneOutput, error) {
	return nil, accessDenied("denied by the tag policy HostedZoneNotEmpty")
}

// deniedSnapshots refuses the deletion of a snapshot with a message that names another error.
type deniedSnapshots struct{}

func (deniedSnapshots) DeleteSnapshot(
	context.Context, *ec2.DeleteSnapshotInput, ...func(*ec2.Options),
) (*ec2.DeleteSnapshotOutput, error) {
	return nil, accessDenied("denied by policy InvalidSnapshot.InUse")
}

func accessDenied(message string) error {
	return &smithy.GenericAPIError{Code: "AccessDenied", Message: message}
}

// TestErrorsAreToldApartByCode checks that drivers decide by the code of an error and not by words
// in its message.
func TestErrorsAreToldApartByCode(t *testing.T) {
	c := &Cloud{kinds: map[string]untypedDriver{}}
	registerAutoScalingGroups(c, deniedScaling{}, noInstances{}, Scope{})
	registerHostedZones(c, deniedZones{}, Scope{})
	registerSnapshots(c, deniedSnapshots{})

	for _, r := range []graph.Resource{awskind.AutoScalingGroup{}, awskind.HostedZone{}, Snapshot{}} {
		err := c.Delete(t.Context(), plan.Task{
			Step:          plan.Step{Kind: r.Kind().Name},
			Actual:        plan.ActualResource{ID: "x", Resource: r},
			ReportWaiting: func(string) {},
		})
		if class := plan.ErrorClassOf(err); class != plan.AccessDenied {
			t.Errorf("%s: %v of class %q, want %q", r.Kind().Name, err, class, plan.AccessDenied)
		}
	}
}
