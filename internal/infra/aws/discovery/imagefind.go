// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// imageSource finds images.
type imageSource struct {
	images     imageAPI
	parameters parameterAPI
	now        time.Time // images that are deprecated before it are reported
}

// resolveImages is ResolveImages with its clients in s.
func resolveImages(
	ctx context.Context,
	s imageSource,
	want map[string]ImageRequest,
) (map[string]Image, diag.Findings, error) {
	var fs diag.Findings
	ids := map[ImageRequest]string{} // empty if no image is found
	for _, path := range slices.Sorted(maps.Keys(want)) {
		name := want[path]
		if _, done := ids[name]; done {
			continue
		}

		id, hint, err := s.resolveID(ctx, name)
		if err != nil {
			return nil, nil, err
		}

		ids[name] = id
		if id == "" {
			fs.Errorf(path, name.Name, hint, "matches no image in this region")
		}
	}

	found, err := s.describeImages(ctx, slices.Compact(slices.Sorted(maps.Values(ids))))
	if err != nil {
		return nil, nil, err
	}

	result := map[string]Image{}

	for _, path := range slices.Sorted(maps.Keys(want)) {
		id := ids[want[path]]
		i, ok := found[id]
		if id != "" && !ok {
			fs.Errorf(
				path,
				want[path].Name,
				"an image exists in one region only; choose one of this region",
				"there is no image %s in this region",
				id,
			)
		}

		s.checkBootable(&fs, path, want[path].Name, i)
		result[path] = fromImage(i)
	}

	return result, fs, nil
}

// resolveID returns the id of the image that a manifest names, without checking that it exists. If
// a parameter or a name matches nothing, the id is empty and hint is for the operator.
func (s imageSource) resolveID(ctx context.Context, want ImageRequest) (id, hint string, err error) {
	name := want.Name
	if parameter, ok := strings.CutPrefix(name, ssmPrefix); ok {
		out, err := s.parameters.GetParameter(ctx, &ssm.GetParameterInput{Name: &parameter})
		if err = transport.Wrap(err, "read parameter %s", parameter); err != nil {
			if transport.ErrorCode(err) != "ParameterNotFound" {
				return "", "", err
			}

			return "", "see: aws ssm get-parameter --name " + parameter, nil
		}

		return aws.ToString(out.Parameter.Value), "", nil
	}

	owner, pattern, ok := strings.Cut(name, "/")
	if !ok {
		return name, "", nil
	}

	newest, err := s.findNewest(ctx, owner, pattern, toEC2Architecture(want.Arch))

	hint = "see: aws ec2 describe-images --owners " + owner + " --filters 'Name=name,Values=" + pattern + "'"

	return newest, hint, err
}

// toEC2Architecture returns EC2's name of an architecture.
func toEC2Architecture(arch string) string {
	if arch == "amd64" {
		return "x86_64"
	}

	return arch
}

// findNewest returns the id of the newest image of an owner and architecture whose name matches
// pattern, which may contain * and ?. It is empty if there is none.
func (s imageSource) findNewest(ctx context.Context, owner, pattern, arch string) (string, error) {
	pages := ec2.NewDescribeImagesPaginator(s.images, &ec2.DescribeImagesInput{
		Owners: []string{owner},
		Filters: slices.Concat(
			driver.NewFilters("name", pattern),
			driver.NewFilters("state", "available"),
			driver.NewFilters("architecture", arch),
		),
	})

	var all []ec2types.Image
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", transport.Wrap(err, "list the images of %s", owner)
		}

		all = append(all, page.Images...)
	}

	if len(all) == 0 {
		return "", nil
	}

	i := slices.MaxFunc(all, func(a, b ec2types.Image) int {
		return cmp.Or(
			cmp.Compare(aws.ToString(a.CreationDate), aws.ToString(b.CreationDate)),
			cmp.Compare(aws.ToString(a.ImageId), aws.ToString(b.ImageId)),
		)
	})

	return aws.ToString(i.ImageId), nil
}

// describeImages returns the images with ids that exist.
func (s imageSource) describeImages(ctx context.Context, ids []string) (map[string]ec2types.Image, error) {
	found := map[string]ec2types.Image{}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return found, nil
	}

	// A filter leaves out images that do not exist. In ImageIds, one of them would fail the call
	// for all.
	pages := ec2.NewDescribeImagesPaginator(
		s.images,
		&ec2.DescribeImagesInput{
			Filters:           driver.NewFilters("image-id", ids...),
			IncludeDeprecated: aws.Bool(true), // instances still boot them, and checkBootable warns
		},
	)
	images, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeImagesOutput) []ec2types.Image { return p.Images })
	if err != nil {
		return nil, transport.Wrap(err, "describe images")
	}

	for _, i := range images {
		found[aws.ToString(i.ImageId)] = i
	}

	return found, nil
}

// checkBootable adds findings about what prevents instances from booting an image. All current
// instance types need ENA. The root volume has to be on EBS, because the manifest sets its size and
// its key. Facts that EC2 does not return pass.
func (s imageSource) checkBootable(fs *diag.Findings, path, name string, i ec2types.Image) {
	if i.State != "" && i.State != ec2types.ImageStateAvailable {
		fs.Errorf(
			path,
			name,
			"wait until it is available, or choose another image",
			"image %s cannot be booted: its state is %s",
			aws.ToString(i.ImageId),
			i.State,
		)
	}

	if i.RootDeviceType != "" && i.RootDeviceType != ec2types.DeviceTypeEbs {
		fs.Errorf(
			path,
			name,
			"choose an image with an EBS root device",
			"the root device of the image is of type %s",
			i.RootDeviceType,
		)
	}

	if i.EnaSupport != nil && !*i.EnaSupport {
		fs.Errorf(
			path,
			name,
			"choose an image with ENA support",
			"the image does not support ENA, the network adapter of current instance types",
		)
	}

	end, err := time.Parse(time.RFC3339, aws.ToString(i.DeprecationTime))
	if err == nil && end.Before(s.now) {
		fs.Warnf(
			path,
			name,
			"choose its successor",
			"the image is deprecated since %s: its owner no longer updates it",
			end.Format(time.DateOnly),
		)
	}
}

// fromImage returns an image that EC2 lists.
func fromImage(i ec2types.Image) Image {
	arch := string(i.Architecture)
	if arch == "x86_64" {
		arch = "amd64"
	}

	return Image{
		ID:         aws.ToString(i.ImageId),
		RootDevice: aws.ToString(i.RootDeviceName),
		Arch:       arch,
		Name:       aws.ToString(i.Name),
	}
}
