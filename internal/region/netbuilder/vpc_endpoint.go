// SPDX-License-Identifier: Apache-2.0

package netbuilder

import (
	"strings"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// buildEndpoints returns the VPC's usable endpoints: available, and with private DNS if they are
// interfaces.
func (b *builder) buildEndpoints(vpc string) []netspec.VPCEndpoint {
	var out []netspec.VPCEndpoint
	for _, id := range sortedKeys(b.in.VPCEndpoints) {
		e := b.in.VPCEndpoints[id]
		if stringValue(e.VpcId) != vpc || stringValue(e.State) != "available" {
			continue
		}

		// The third dot ends com.amazonaws.REGION.
		f := netspec.VPCEndpoint{Service: strings.SplitN(stringValue(e.ServiceName), ".", 4)[3]}

		switch {
		case stringValue(e.VpcEndpointType) == ec2.VpcEndpointTypeGateway:
			f.Subnets = b.gatewaySubnets(vpc, e)
		case aws.BoolValue(e.PrivateDnsEnabled) && len(e.NetworkInterfaceIds) > 0:
			var groups []string
			for _, g := range e.Groups {
				groups = append(groups, stringValue(g.GroupId))
			}

			f.Ingress, _ = b.groupRules(groups)

		default:
			continue // without private DNS, the service's name does not resolve to it
		}

		out = append(out, f)
	}

	return out
}

// gatewaySubnets returns the subnets whose route table contains a gateway endpoint. The result is
// never nil.
func (b *builder) gatewaySubnets(vpc string, e *ec2.VpcEndpoint) []string {
	out := []string{}
	for _, id := range sortedKeys(b.in.Subnets) {
		if stringValue(b.in.Subnets[id].VpcId) != vpc {
			continue
		}

		t := b.routeTables[id]
		if t == nil {
			t = b.routeTables[vpc]
		}

		for _, r := range e.RouteTableIds {
			if t != nil && stringValue(t.RouteTableId) == stringValue(r) {
				out = append(out, id)
			}
		}
	}

	return out
}
