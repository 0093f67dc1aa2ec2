// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"path"
	"slices"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
)

type fakeImages []ec2types.Image

func (f fakeImages) DescribeImages(_ context.Context, in *ec2.DescribeImagesInput, _ ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error) {
	out := &ec2.DescribeImagesOutput{}
	for _, i := range f {
		if i.DeprecationTime != nil && !sdk.ToBool(in.IncludeDeprecated) {
			continue // EC2 leaves out deprecated images of other owners
		}

		byID := *in.Filters[0].Name == "image-id" && slices.Contains(in.Filters[0].Values, *i.ImageId)
		fits, err := path.Match(in.Filters[0].Values[0], sdk.ToString(i.Name))
		if err != nil {
			return nil, err
		}
		arch := len(in.Filters) < 3 || in.Filters[2].Values[0] == string(i.Architecture)
		if byID || fits && arch && slices.Contains(in.Owners, sdk.ToString(i.OwnerId)) {
			out.Images = append(out.Images, i)
		}
	}
	return out, nil
}

type fakeParameters map[string]string

func (f fakeParameters) GetParameter(_ context.Context, in *ssm.GetParameterInput, _ ...func(*ssm.Options)) (*ssm.GetParameterOutput, error) {
	v, ok := f[*in.Name]
	if !ok {
		return nil, &smithy.GenericAPIError{Code: "ParameterNotFound"}
	}
	return &ssm.GetParameterOutput{Parameter: &ssmtypes.Parameter{Value: &v}}, nil
}

func TestImages(t *testing.T) {
	image := func(id string, arch ec2types.ArchitectureValues, name, created string) ec2types.Image {
		return ec2types.Image{
			ImageId: &id, Architecture: arch, RootDeviceName: sdk.String("/dev/xvda"), Name: &name, CreationDate: &created, OwnerId: sdk.String("136693071363"),
		}
	}
	deprecated, bare, store := image("ami-3", "x86_64", "old", ""), image("ami-4", "x86_64", "bare", ""), image("ami-5", "x86_64", "store", "")
	deprecated.DeprecationTime = sdk.String("2025-01-01T00:00:00.000Z")
	bare.EnaSupport = sdk.Bool(false)
	store.RootDeviceType = ec2types.DeviceTypeInstanceStore
	s := imageSource{
		images: fakeImages{
			image("ami-1", "x86_64", "debian-12-amd64-1", "2026-01-01T00:00:00.000Z"), image("ami-2", "arm64", "debian-12-arm64-1", "2026-01-01T00:00:00.000Z"),
			image("ami-6", "x86_64", "debian-12-amd64-3", "2026-03-01T00:00:00.000Z"), image("ami-7", "x86_64", "debian-12-amd64-2", "2026-02-01T00:00:00.000Z"),
			deprecated, bare, store,
		},
		parameters: fakeParameters{"/debian": "ami-1", "/old": "ami-9"}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	got, fs, err := resolveImages(t.Context(), s, map[string]ImageRequest{
		"a": {"ssm:/debian", "amd64"}, "b": {"ami-2", "arm64"}, "c": {"ssm:/none", "amd64"}, "d": {"ssm:/old", "amd64"}, "e": {"ami-8", "amd64"}, "f": {"136693071363/debian-12-amd64-*", "amd64"},
		"g": {"136693071363/nothing-*", "amd64"}, "h": {"ami-3", "amd64"}, "i": {"ami-4", "amd64"}, "j": {"ami-5", "amd64"}, "k": {"136693071363/debian-12-*", "arm64"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for at, i := range got {
		ids[at] = i.ID + " " + i.Arch
	}
	if diff := cmp.Diff(map[string]string{
		"a": "ami-1 amd64", "b": "ami-2 arm64", "c": " ", "d": " ", "e": " ", "f": "ami-6 amd64", "g": " ", "h": "ami-3 amd64", "i": "ami-4 amd64", "j": "ami-5 amd64", "k": "ami-2 arm64",
	}, ids); diff != "" {
		t.Error(diff)
	}
	var paths []string
	for _, f := range fs {
		paths = append(paths, string(f.Severity)+" "+f.Path)
	}
	if diff := cmp.Diff([]string{"error c", "error g", "error d", "error e", "warning h", "error i", "error j"}, paths); diff != "" {
		t.Errorf("findings (-want +got): %s", diff)
	}
}
