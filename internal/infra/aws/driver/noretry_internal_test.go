// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

func throttling() error {
	return &smithy.GenericAPIError{Code: "ThrottlingException", Message: "slow down"}
}

// throttledKeys creates keys and throttles all other calls.
type throttledKeys struct {
	keyAPI
	made int
}

func (k *throttledKeys) CreateKey(context.Context, *kms.CreateKeyInput, ...func(*kms.Options)) (*kms.CreateKeyOutput, error) {
	k.made++
	return &kms.CreateKeyOutput{KeyMetadata: &kmstypes.KeyMetadata{KeyId: sdk.String("k"), Arn: sdk.String("arn")}}, nil
}

func (*throttledKeys) EnableKeyRotation(context.Context, *kms.EnableKeyRotationInput, ...func(*kms.Options)) (*kms.EnableKeyRotationOutput, error) {
	return nil, throttling()
}

// throttledNATs creates gateways and throttles the calls that describe them.
type throttledNATs struct{ natAPI }

func (throttledNATs) CreateNatGateway(context.Context, *ec2.CreateNatGatewayInput, ...func(*ec2.Options)) (*ec2.CreateNatGatewayOutput, error) {
	return &ec2.CreateNatGatewayOutput{NatGateway: &ec2types.NatGateway{NatGatewayId: sdk.String("nat-1")}}, nil
}

func (throttledNATs) DescribeNatGateways(context.Context, *ec2.DescribeNatGatewaysInput, ...func(*ec2.Options)) (*ec2.DescribeNatGatewaysOutput, error) {
	return nil, throttling()
}

// TestNothingIsCreatedTwice checks that a creation whose first call succeeded is not retried when a
// later call is throttled: a retry would create a second key or gateway. The next plan finds the
// first one by its tag.
func TestNothingIsCreatedTwice(t *testing.T) {
	c := &Cloud{kinds: map[string]untypedDriver{}}
	registerKeys(c, &throttledKeys{}, Scope{})
	registerNATGateways(c, throttledNATs{}, Scope{})
	for _, want := range []graph.Resource{awskind.KMSKey{Rotation: true}, awskind.NATGateway{}} {
		kind := want.Kind().Name
		_, err := c.Create(t.Context(), plan.Task{Step: plan.Step{Kind: kind}, Desired: want, ReportWaiting: func(string) {}})
		if class := plan.ErrorClassOf(err); err == nil || class == plan.Throttled || class == plan.NotReady {
			t.Errorf("%s: %v, of class %q, would be retried", kind, err, class)
		}
	}
}
