// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Image is a machine image.
type Image struct {
	ID string
	// RootDevice such as /dev/xvda.
	RootDevice string
	// Arch as Go and Kubernetes spell it: amd64 or arm64.
	Arch string
	// Name that its owner gave it.
	Name string
}

type imageAPI interface {
	ec2.DescribeImagesAPIClient
}

type parameterAPI interface {
	GetParameter(
		context.Context,
		*ssm.GetParameterInput,
		...func(*ssm.Options),
	) (*ssm.GetParameterOutput, error)
}

// ssmPrefix marks an image that a parameter names, such as ssm:/aws/service/debian/release/12/latest/amd64.
const ssmPrefix = "ssm:"

// ImageRequest is an image as a manifest names it: ssm:/PARAMETER, OWNER/NAME or ami-ID; and the architecture of its machines.
type ImageRequest struct{ Name, Arch string }

// ResolveImages finds what manifests name. One call a parameter and an owner's name, and one for all images. What cannot be
// found or booted is a finding at the path that want gives for it, and what its owner has deprecated before now is a
// warning; want is image by path.
func ResolveImages(
	ctx context.Context,
	cfg aws.Config,
	want map[string]ImageRequest,
	now time.Time,
) (map[string]Image, diag.Findings, error) {
	e := ec2.NewFromConfig(cfg)
	p := ssm.NewFromConfig(cfg)
	return resolveImages(ctx, imageSource{images: e, parameters: p, now: now}, want)
}
