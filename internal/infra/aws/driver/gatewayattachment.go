// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type attachmentAPI interface {
	AttachInternetGateway(
		context.Context,
		*ec2.AttachInternetGatewayInput,
		...func(*ec2.Options),
	) (*ec2.AttachInternetGatewayOutput, error)
	DetachInternetGateway(
		context.Context,
		*ec2.DetachInternetGatewayInput,
		...func(*ec2.Options),
	) (*ec2.DetachInternetGatewayOutput, error)
}

// registerGatewayAttachments registers the driver of the attachments of internet gateways to VPCs.
// They are read with their gateways.
func registerGatewayAttachments(c *Cloud, api attachmentAPI) {
	registerDriver(c, driver[awskind.GatewayAttachment]{
		create: func(ctx context.Context, t task[awskind.GatewayAttachment]) (plan.StepResult, error) {
			vpc := t.want.VPC.Literal()
			gateway := t.want.Gateway.Literal()
			_, err := api.AttachInternetGateway(
				ctx,
				&ec2.AttachInternetGatewayInput{VpcId: &vpc, InternetGatewayId: &gateway},
			)

			return plan.StepResult{ID: gateway + "/" + vpc}, transport.Wrap(err, "attach %s to %s", gateway, vpc)
		},
		remove: func(ctx context.Context, t task[awskind.GatewayAttachment]) error {
			vpc := t.have.VPC.Literal()
			gateway := t.have.Gateway.Literal()
			_, err := api.DetachInternetGateway(
				ctx,
				&ec2.DetachInternetGatewayInput{VpcId: &vpc, InternetGatewayId: &gateway},
			)

			return c.explainInUse(ctx, transport.Wrap(err, "detach %s", gateway), "public-in", vpc)
		},
	})
}
