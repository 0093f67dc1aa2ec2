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

// Image is a machine image (AMI).
type Image struct {
	// ID is its id, such as ami-0123456789abcdef0.
	ID string
	// RootDevice is the device name of its root volume, such as /dev/xvda.
	RootDevice string
	// Arch is amd64 or arm64.
	Arch string
	// Name is the name that its owner gave it.
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

// ssmPrefix precedes the name of an SSM parameter that contains the id of an image, such as
// ssm:/aws/service/debian/release/12/latest/amd64.
const ssmPrefix = "ssm:"

// ImageRequest is an image to find.
type ImageRequest struct {
	// Name is the image as a manifest names it: ssm:/PARAMETER, OWNER/NAME or ami-ID. NAME may
	// contain * and ?.
	Name string
	// Arch is the architecture of its instances: amd64 or arm64.
	Arch string
}

// ResolveImages finds the images of want, which has the path of each in its manifest as key. It
// makes one call for each parameter and each OWNER/NAME, and one for all images. An image that does
// not exist or cannot be booted is a finding of severity error at its path. An image that was
// deprecated before now is a warning.
func ResolveImages(
	ctx context.Context,
	cfg aws.Config,
	want map[string]ImageRequest,
	now time.Time,
) (map[string]Image, diag.Findings, error) {
	source := imageSource{images: ec2.NewFromConfig(cfg), parameters: ssm.NewFromConfig(cfg), now: now}

	return resolveImages(ctx, source, want)
}
