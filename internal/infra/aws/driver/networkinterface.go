// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// NetworkInterface is an interface that belongs to nothing any more. We make none: it is only removed.
type NetworkInterface struct {
	Subnet         graph.Ref[awskind.Subnet]          `aws:"SubnetId"`
	SecurityGroups []graph.Ref[awskind.SecurityGroup] `aws:"GroupSet,set"`
	Tags           awskind.Tags                       `aws:"Tags,tags"`
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

// registerNetworkInterfaces deletes network interfaces.
func registerNetworkInterfaces(c *Cloud, api interfaceDeleteAPI) {
	registerDriver(
		c,
		driver[NetworkInterface]{remove: func(ctx context.Context, t task[NetworkInterface]) error {
			_, err := api.DeleteNetworkInterface(
				ctx,
				&ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &t.id},
			)

			return transport.Wrap(err, "delete %s", t.id)
		}},
	)
}
