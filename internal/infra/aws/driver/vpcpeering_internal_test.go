// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// fakePeering is one peering that goes through states, one at each look. Calls that the tests do not expect panic.
type fakePeering struct {
	peeringAPI

	states   []ec2types.VpcPeeringConnectionStateReasonCode
	accepted bool
}

func (f *fakePeering) DescribeVpcPeeringConnections(
	context.Context, *ec2.DescribeVpcPeeringConnectionsInput, ...func(*ec2.Options),
) (*ec2.DescribeVpcPeeringConnectionsOutput, error) {
	now := f.states[0]
	if len(f.states) > 1 && now != ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance {
		f.states = f.states[1:]
	}
	return &ec2.DescribeVpcPeeringConnectionsOutput{VpcPeeringConnections: []ec2types.VpcPeeringConnection{{
		VpcPeeringConnectionId: new("pcx-1"),
		Status:                 &ec2types.VpcPeeringConnectionStateReason{Code: now, Message: new("because")},
	}}}, nil
}

func (f *fakePeering) AcceptVpcPeeringConnection(
	context.Context, *ec2.AcceptVpcPeeringConnectionInput, ...func(*ec2.Options),
) (*ec2.AcceptVpcPeeringConnectionOutput, error) {
	if f.states[0] != ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance {
		return nil, &smithy.GenericAPIError{Code: "InvalidStateTransition"}
	}
	f.accepted = true
	f.states = f.states[1:]
	return &ec2.AcceptVpcPeeringConnectionOutput{}, nil
}

// TestPeeringIsAcceptedInTime: EC2 refuses to accept a peering that it is still creating, so that the first apply failed.
func TestPeeringIsAcceptedInTime(t *testing.T) {
	const (
		initiating   = ec2types.VpcPeeringConnectionStateReasonCodeInitiatingRequest
		pending      = ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance
		provisioning = ec2types.VpcPeeringConnectionStateReasonCodeProvisioning
		active       = ec2types.VpcPeeringConnectionStateReasonCodeActive
		failed       = ec2types.VpcPeeringConnectionStateReasonCodeFailed
	)
	for name, c := range map[string]struct {
		states   []ec2types.VpcPeeringConnectionStateReasonCode
		accepted bool
		problem  string
	}{
		"slow":             {[]ec2types.VpcPeeringConnectionStateReasonCode{initiating, initiating, pending, provisioning, active}, true, ""},
		"quick":            {[]ec2types.VpcPeeringConnectionStateReasonCode{pending, active}, true, ""},
		"accepted already": {[]ec2types.VpcPeeringConnectionStateReasonCode{active}, false, ""},
		"refused":          {[]ec2types.VpcPeeringConnectionStateReasonCode{initiating, failed}, false, "pcx-1 is failed: because"},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &fakePeering{states: c.states}
			err := newPeeringDriver(api).acceptPeering(t.Context(), task[awskind.VPCPeering]{reportWaiting: func(string) {}}, "pcx-1")
			if api.accepted != c.accepted || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: accepted %v, %v", name, api.accepted, err)
			}
		})
	}
}
