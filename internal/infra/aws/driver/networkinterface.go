// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// NetworkInterface is a network interface that is no longer attached. Slipway creates none and only
// deletes them.
type NetworkInterface struct {
	// Subnet is the subnet of the interface.
	Subnet graph.Ref[awskind.Subnet] `aws:"SubnetId"`
	// SecurityGroups are the security groups of the interface.
	SecurityGroups []graph.Ref[awskind.SecurityGroup] `aws:"GroupSet,set"`
	// Tags are all tags of the interface.
	Tags awskind.Tags `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (NetworkInterface) Kind() graph.Kind { return graph.Kind{Name: "network-interface"} }

type interfaceDeleteAPI interface {
	DeleteNetworkInterface(
		context.Context,
		*ec2.DeleteNetworkInterfaceInput,
		...func(*ec2.Options),
	) (*ec2.DeleteNetworkInterfaceOutput, error)
}

// registerNetworkInterfaces registers the driver of network interfaces.
func registerNetworkInterfaces(c *Cloud, api interfaceDeleteAPI) {
	remove := func(ctx context.Context, t task[NetworkInterface]) error {
		_, err := api.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &t.id})
		return transport.Wrap(err, "delete %s", t.id)
	}

	registerDriver(c, driver[NetworkInterface]{remove: remove})
}
