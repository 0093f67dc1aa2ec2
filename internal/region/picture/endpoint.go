// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"strings"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/fabric"
)

// endpoints are those of a VPC that machines can use: available ones, interfaces with the service's own name.
func (b *builder) endpoints(vpc string) []fabric.Endpoint {
	var out []fabric.Endpoint
	for _, id := range keys(b.in.Endpoints) {
		e := b.in.Endpoints[id]
		if str(e.VpcId) != vpc || str(e.State) != "available" {
			continue
		}
		// The third dot ends com.amazonaws.REGION.
		f := fabric.Endpoint{Service: strings.SplitN(str(e.ServiceName), ".", 4)[3]}
		switch {
		case str(e.VpcEndpointType) == ec2.VpcEndpointTypeGateway:
			f.Subnets = b.subnetsWith(vpc, e)
		case aws.BoolValue(e.PrivateDnsEnabled) && len(e.NetworkInterfaceIds) > 0:
			var groups []string
			for _, g := range e.Groups {
				groups = append(groups, str(g.GroupId))
			}
			f.Ingress, _ = b.admit(groups)
		default:
			continue // nobody finds it under the service's name
		}
		out = append(out, f)
	}
	return out
}

// subnetsWith are a VPC's subnets whose route table leads to a gateway endpoint; never nil.
func (b *builder) subnetsWith(vpc string, e *ec2.VpcEndpoint) []string {
	out := []string{}
	for _, id := range keys(b.in.Subnets) {
		if str(b.in.Subnets[id].VpcId) != vpc {
			continue
		}
		t := b.tables[id]
		if t == nil {
			t = b.tables[vpc]
		}
		for _, r := range e.RouteTableIds {
			if t != nil && str(t.RouteTableId) == str(r) {
				out = append(out, id)
			}
		}
	}
	return out
}
