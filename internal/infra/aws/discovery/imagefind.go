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

// imageSource is where images are looked up, and when.
type imageSource struct {
	images     imageAPI
	parameters parameterAPI
	now        time.Time
}

func resolveImages(
	ctx context.Context,
	s imageSource,
	want map[string]ImageRequest,
) (map[string]Image, diag.Findings, error) {
	var fs diag.Findings
	ids := map[ImageRequest]string{} // empty where there is none
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
			fs.Errorf(path, name.Name, hint, "names nothing that is in this region")
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
				"images belong to one region; name one of this region",
				"there is no image %s in this region",
				id,
			)
		}

		s.checkBootable(&fs, path, want[path].Name, i)
		result[path] = fromImage(i)
	}

	return result, fs, nil
}

// resolveID returns the id of an image as a manifest names it; empty, and a hint, if there is none.
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

	return newest, "see: aws ec2 describe-images --owners " + owner + " --filters 'Name=name,Values=" + pattern + "'", err
}

// toEC2Architecture is what EC2 calls one.
func toEC2Architecture(arch string) string {
	if arch == "amd64" {
		return "x86_64"
	}

	return arch
}

// findNewest returns the id of the youngest of an owner's images of an architecture whose name fits a pattern with * and ?.
func (s imageSource) findNewest(ctx context.Context, owner, pattern, arch string) (string, error) {
	pages := ec2.NewDescribeImagesPaginator(s.images, &ec2.DescribeImagesInput{
		Owners: []string{
			owner,
		}, Filters: slices.Concat(driver.NewFilters("name", pattern), driver.NewFilters("state", "available"), driver.NewFilters("architecture", arch)),
	})

	var all []ec2types.Image
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", transport.Wrap(err, "look for images of %s", owner)
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

func (s imageSource) describeImages(ctx context.Context, ids []string) (map[string]ec2types.Image, error) {
	found := map[string]ec2types.Image{}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return found, nil
	}

	// With a filter an image that is not there is left out; by ImageIds it would fail the call for all.
	out, err := s.images.DescribeImages(
		ctx,
		&ec2.DescribeImagesInput{Filters: driver.NewFilters("image-id", ids...)},
	)
	if err != nil {
		return nil, transport.Wrap(err, "look images up")
	}

	for _, i := range out.Images {
		found[aws.ToString(i.ImageId)] = i
	}

	return found, nil
}

// checkBootable reports what keeps machines from booting an image: every type that is known today needs ENA, and the root volume
// is made with the size and the key of the manifest, which takes EBS. What EC2 does not tell is not held against it.
func (s imageSource) checkBootable(fs *diag.Findings, path, name string, i ec2types.Image) {
	if i.State != "" && i.State != ec2types.ImageStateAvailable {
		fs.Errorf(
			path,
			name,
			"wait, or name another image",
			"is %s: image %s cannot be booted",
			i.State,
			aws.ToString(i.ImageId),
		)
	}

	if i.RootDeviceType != "" && i.RootDeviceType != ec2types.DeviceTypeEbs {
		fs.Errorf(path, name, "name one whose root device is on EBS", "boots from %s", i.RootDeviceType)
	}

	if i.EnaSupport != nil && !*i.EnaSupport {
		fs.Errorf(
			path,
			name,
			"name one with ENA support",
			"has no driver for the network of today's instances (ENA)",
		)
	}

	if end, err := time.Parse(time.RFC3339, aws.ToString(i.DeprecationTime)); err == nil &&
		end.Before(s.now) {
		fs.Warnf(
			path,
			name,
			"name its successor",
			"is deprecated since %s: its owner does not mend it any more",
			end.Format(time.DateOnly),
		)
	}
}

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
