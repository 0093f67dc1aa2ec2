// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/diag"
)

// Image is a machine image.
type Image struct {
	ID string
	// RootDevice such as /dev/xvda.
	RootDevice string
	// Arch as Go and Kubernetes spell it: amd64 or arm64.
	Arch string
}

type imageAPI interface {
	DescribeImages(context.Context, *ec2.DescribeImagesInput, ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error)
}

type parameterAPI interface {
	GetParameter(context.Context, *ssm.GetParameterInput, ...func(*ssm.Options)) (*ssm.GetParameterOutput, error)
}

// ssmPrefix marks an image that a parameter names, such as ssm:/aws/service/debian/release/12/latest/amd64.
const ssmPrefix = "ssm:"

// Images finds what manifests name: ssm:/PARAMETER or ami-ID. One call a parameter, and one for all images. What cannot
// be found is a finding at the path that want gives for it; want is image by path.
func Images(ctx context.Context, cfg aws.Config, want map[string]string) (map[string]Image, diag.Findings, error) {
	e := ec2.NewFromConfig(cfg)
	p := ssm.NewFromConfig(cfg)
	return images(ctx, e, p, want)
}

func images(ctx context.Context, e imageAPI, p parameterAPI, want map[string]string) (map[string]Image, diag.Findings, error) {
	var fs diag.Findings
	ids := map[string]string{} // by image as named
	for _, path := range slices.Sorted(maps.Keys(want)) {
		name := want[path]
		if _, done := ids[name]; done {
			continue
		}
		parameter, isSSM := strings.CutPrefix(name, ssmPrefix)
		if !isSSM {
			ids[name] = name
			continue
		}
		out, err := p.GetParameter(ctx, &ssm.GetParameterInput{Name: &parameter})
		if err = wrap(err, "read parameter %s", parameter); err != nil {
			if e, ok := errors.AsType[Error](err); !ok || !strings.Contains(e.Error(), "ParameterNotFound") {
				return nil, nil, err
			}
			fs.Errorf(path, name, "see: aws ssm get-parameter --name "+parameter, "there is no such parameter in this region")
			continue
		}
		ids[name] = aws.ToString(out.Parameter.Value)
	}
	found, err := describeImages(ctx, e, slices.Compact(slices.Sorted(maps.Values(ids))))
	if err != nil {
		return nil, nil, err
	}
	result := map[string]Image{}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		id, named := ids[want[path]]
		image, ok := found[id]
		if named && !ok {
			fs.Errorf(path, want[path], "images belong to one region; name one of this region", "there is no image %s in this region", id)
		}
		result[path] = image
	}
	return result, fs, nil
}

func describeImages(ctx context.Context, e imageAPI, ids []string) (map[string]Image, error) {
	found := map[string]Image{}
	if len(ids) == 0 {
		return found, nil
	}
	// With a filter an image that is not there is left out; by ImageIds it would fail the call for all.
	out, err := e.DescribeImages(ctx, &ec2.DescribeImagesInput{Filters: filter("image-id", ids...)})
	if err != nil {
		return nil, wrap(err, "look images up")
	}
	for _, i := range out.Images {
		arch := string(i.Architecture)
		if arch == "x86_64" {
			arch = "amd64"
		}
		found[aws.ToString(i.ImageId)] = Image{ID: aws.ToString(i.ImageId), RootDevice: aws.ToString(i.RootDeviceName), Arch: arch}
	}
	return found, nil
}

// Identity is whose account we are in.
type Identity struct {
	Account, Partition string
	// ARN of the caller.
	ARN string
}

// WhoAmI asks AWS whose credentials cfg has.
func WhoAmI(ctx context.Context, cfg aws.Config) (Identity, error) {
	api := sts.NewFromConfig(cfg)
	out, err := api.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return Identity{}, wrap(err, "ask AWS who we are")
	}
	arn, err := awsarn.Parse(aws.ToString(out.Arn))
	if err != nil {
		return Identity{}, fmt.Errorf("parse the caller's ARN: %w", err)
	}
	return Identity{Account: aws.ToString(out.Account), Partition: arn.Partition, ARN: arn.String()}, nil
}
