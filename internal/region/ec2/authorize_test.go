// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	sdk "github.com/aws/aws-sdk-go/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// recordingAuthorizer records the checks and allows everything.
type recordingAuthorizer struct{ lines []string }

func (a *recordingAuthorizer) Authorize(_ context.Context, c wire.AccessCheck) error {
	var keys []string
	for _, k := range []string{"aws:ResourceTag/team", "aws:RequestTag/team", "ec2:CreateAction", "ec2:Encrypted", "ec2:VolumeSize", "ec2:VolumeType", "ec2:MetadataHttpTokens", "ec2:InstanceProfile"} {
		if v := c.Context[k]; len(v) > 0 {
			keys = append(keys, k+"="+v[0])
		}
	}
	if len(c.Context["ec2:LaunchTemplate"]) > 0 {
		keys = append(keys, "of template")
	}
	line := strings.Join(append([]string{c.Action, c.Resource}, keys...), " ")
	a.lines = append(a.lines, strings.ReplaceAll(line, "arn:aws:ec2:us-east-1:000000000000:", ""))
	return nil
}

func TestIAMIsAskedAboutEachResource(t *testing.T) {
	r := newRegion(t)
	_, subnet := r.createVPCWithSubnet(t)
	instance := *r.runInstance(t, subnet).InstanceId
	volume := *must[*client.CreateVolumeOutput](t)(r.CreateVolume(t.Context(), &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1b"), Size: aws.Int32(1), VolumeType: "gp3", TagSpecifications: tags("volume", "team", "a"),
	})).VolumeId
	_, err := r.ImportKeyPair(t.Context(), &client.ImportKeyPairInput{
		KeyName: aws.String("ours"), TagSpecifications: tags("key-pair", "team", "a"),
		PublicKeyMaterial: []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGVXZ8nTT4a6Wb0MmJxQtuWgtCFCWRx8xFcZ2u0yqj2F"),
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := []*sdk.TagSpecification{{ResourceType: new("volume"), Tags: []*sdk.Tag{{Key: new("team"), Value: new("b")}}}}
	for _, c := range []struct {
		op   string
		in   any
		want []string
	}{
		{"DescribeInstances", &sdk.DescribeInstancesInput{InstanceIds: []*string{&instance}}, []string{"ec2:DescribeInstances *"}},
		{"DescribeInstanceAttribute", &sdk.DescribeInstanceAttributeInput{InstanceId: &instance, Attribute: new("userData")}, []string{
			"ec2:DescribeInstanceAttribute instance/" + instance,
		}},
		{"AttachVolume", &sdk.AttachVolumeInput{InstanceId: &instance, VolumeId: &volume, Device: new("/dev/sdf")}, []string{
			"ec2:AttachVolume instance/" + instance, "ec2:AttachVolume volume/" + volume + " aws:ResourceTag/team=a",
		}},
		{"CreateVolume", &sdk.CreateVolumeInput{TagSpecifications: spec, Size: new(int64(20)), VolumeType: new("gp3")}, []string{
			"ec2:CreateVolume volume/* aws:RequestTag/team=b ec2:Encrypted=false ec2:VolumeSize=20 ec2:VolumeType=gp3",
			"ec2:CreateTags volume/* aws:RequestTag/team=b ec2:CreateAction=CreateVolume",
		}},
		{"CreateTags", &sdk.CreateTagsInput{Resources: []*string{&volume}, Tags: spec[0].Tags}, []string{
			"ec2:CreateTags volume/" + volume + " aws:ResourceTag/team=a aws:RequestTag/team=b",
		}},
		{"AuthorizeSecurityGroupIngress", &sdk.AuthorizeSecurityGroupIngressInput{
			GroupId:       new("sg-0123456789abcdef0"),
			IpPermissions: []*sdk.IpPermission{{UserIdGroupPairs: []*sdk.UserIdGroupPair{{GroupId: new("sg-0fffffffffffffff0")}}}},
		}, []string{"ec2:AuthorizeSecurityGroupIngress security-group/sg-0123456789abcdef0"}},
		{"CreateRoute", &sdk.CreateRouteInput{
			RouteTableId: new("rtb-0123456789abcdef0"), GatewayId: new("igw-0123456789abcdef0"), DestinationCidrBlock: new("0.0.0.0/0"),
		}, []string{"ec2:CreateRoute route-table/rtb-0123456789abcdef0"}},
		{"DeleteKeyPair", &sdk.DeleteKeyPairInput{KeyName: new("ours")}, []string{"ec2:DeleteKeyPair key-pair/ours aws:ResourceTag/team=a"}},
	} {
		a := &recordingAuthorizer{}
		ctx := wire.WithAuthorizer(wire.WithCaller(t.Context(), wire.Caller{Account: "000000000000", Role: "worker", ARN: "arn"}), a)
		if err := r.svc.Wire().Authorize(ctx, c.op, c.in); err != nil {
			t.Errorf("%s: %v", c.op, err)
		}
		if diff := cmp.Diff(c.want, a.lines); diff != "" {
			t.Errorf("%s asks (-want +got):\n%s", c.op, diff)
		}
	}
}

func TestFiltersMatchAsAtAWS(t *testing.T) {
	r := newRegion(t)
	vpc, _ := r.createVPCWithSubnet(t)
	for i, v := range []string{"red", "dark red", "re*d", "blue"} {
		must[*client.CreateRouteTableOutput](t)(r.CreateRouteTable(t.Context(), &client.CreateRouteTableInput{
			VpcId: &vpc, TagSpecifications: tags("route-table", "colour", v, fmt.Sprint("n", i), "x"),
		}))
	}
	for name, c := range map[string]struct {
		filter, value string
		want          int
	}{
		"exact":    {"tag:colour", "red", 1},
		"any":      {"tag:colour", "*red", 2},
		"one":      {"tag:colour", "re?d", 1},
		"escaped":  {"tag:colour", `re\*d`, 1},
		"key":      {"tag-key", "n?", 4},
		"value":    {"tag-value", "blue", 1},
		"no match": {"tag:size", "*", 0},
	} {
		out := must[*client.DescribeRouteTablesOutput](t)(r.DescribeRouteTables(t.Context(), &client.DescribeRouteTablesInput{Filters: filters(c.filter, c.value)}))
		if len(out.RouteTables) != c.want {
			t.Errorf("%s: %s=%s finds %d, want %d", name, c.filter, c.value, len(out.RouteTables), c.want)
		}
	}
}

func TestCatalogues(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	zones := must[*client.DescribeAvailabilityZonesOutput](t)(r.DescribeAvailabilityZones(ctx, &client.DescribeAvailabilityZonesInput{}))
	if n := len(zones.AvailabilityZones); n != 6 || *zones.AvailabilityZones[0].ZoneId != "use1-az1" {
		t.Errorf("%d zones, the first %s; want 6, use1-az1", n, *zones.AvailabilityZones[0].ZoneId)
	}
	types := must[*client.DescribeInstanceTypesOutput](t)(r.DescribeInstanceTypes(ctx, &client.DescribeInstanceTypesInput{InstanceTypes: resourceKinds("t3.medium")}))
	if got := types.InstanceTypes[0]; *got.VCpuInfo.DefaultVCpus != 2 || *got.MemoryInfo.SizeInMiB != 4096 {
		t.Errorf("t3.medium: got %+v", got)
	}
	if cards := types.InstanceTypes[0].NetworkInfo.NetworkCards; len(cards) != 1 || *cards[0].MaximumNetworkInterfaces != 3 {
		t.Errorf("the network cards of t3.medium are %+v, want one with 3 interfaces", cards)
	}
	if _, err := r.DescribeInstanceTypes(ctx, &client.DescribeInstanceTypesInput{InstanceTypes: resourceKinds("t9.huge")}); code(err) != "InvalidInstanceType" {
		t.Errorf("an unknown type: %v", err)
	}
	offers := must[*client.DescribeInstanceTypeOfferingsOutput](t)(r.DescribeInstanceTypeOfferings(ctx, &client.DescribeInstanceTypeOfferingsInput{
		LocationType: "availability-zone", Filters: filters("instance-type", "t3.medium"),
	}))
	if n := len(offers.InstanceTypeOfferings); n != 6 {
		t.Errorf("t3.medium is offered in %d zones, want 6", n)
	}
	images := must[*client.DescribeImagesOutput](t)(r.DescribeImages(ctx, &client.DescribeImagesInput{Owners: []string{"136693071363"}, Filters: filters("name", "debian-12-*")}))
	if n := len(images.Images); n != 1 {
		t.Errorf("%d images, want 1", n)
	}
}
