// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	sdk "github.com/aws/aws-sdk-go/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// fleetLab is a region with a launch template like Karpenter's.
type fleetLab struct {
	region
	group, subnet, template string
	lacking                 map[string]bool // types and "spot" without capacity
}

func newFleetLab(t *testing.T) *fleetLab {
	t.Helper()
	l := &fleetLab{lacking: map[string]bool{}}
	l.region = newRegion(t, func(c *ec2.Config) {
		c.Profiles = profiles{}
		c.LacksCapacity = func(name string) bool { return l.lacking[name] }
		c.Quotas.VCPUs = 16
	})
	var vpc string
	vpc, l.subnet = l.createVPCWithSubnet(t)
	l.group = l.region.group(t, vpc, "nodes")
	out := must[*client.CreateLaunchTemplateOutput](t)(l.CreateLaunchTemplate(t.Context(), &client.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("karpenter.k8s.aws/1"), TagSpecifications: tags("launch-template", "team", "template"),
		LaunchTemplateData: &types.RequestLaunchTemplateData{
			ImageId: aws.String(image), EnclaveOptions: &types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(false)},
			NetworkInterfaces:  []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: aws.Int32(0), Groups: []string{l.group}}},
			IamInstanceProfile: &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("worker")},
			MetadataOptions:    &types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required"},
			TagSpecifications: []types.LaunchTemplateTagSpecificationRequest{
				{ResourceType: "network-interface", Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("interface")}}},
				{ResourceType: "spot-instances-request", Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("request")}}},
			},
		},
	}))
	l.template = *out.LaunchTemplate.LaunchTemplateId

	return l
}

// request returns a request for one instance of one of the types.
func (l *fleetLab) request(market types.DefaultTargetCapacityType, kinds ...types.InstanceType) *client.CreateFleetInput {
	var overrides []types.FleetLaunchTemplateOverridesRequest
	for i, k := range kinds {
		overrides = append(overrides, types.FleetLaunchTemplateOverridesRequest{
			InstanceType: k, SubnetId: &l.subnet, ImageId: aws.String(image), AvailabilityZone: aws.String("us-east-1b"), Priority: aws.Float64(float64(i)),
		})
	}

	return &client.CreateFleetInput{
		Type:                        types.FleetTypeInstant,
		TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{DefaultTargetCapacityType: market, TotalTargetCapacity: aws.Int32(1)},
		LaunchTemplateConfigs: []types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: aws.String("karpenter.k8s.aws/1"), Version: aws.String("$Latest")},
			Overrides:                   overrides,
		}},
		TagSpecifications: slices.Concat(tags("instance", "team", "instance"), tags("volume", "team", "volume"), tags("fleet", "team", "fleet")),
	}
}

// fleetSummary describes what a fleet has launched, and what it could not launch.
func fleetSummary(out *client.CreateFleetOutput) string {
	var lines []string
	for _, i := range out.Instances {
		lines = append(lines, fmt.Sprintf("%d %s %s", len(i.InstanceIds), i.InstanceType, i.Lifecycle))
	}
	for _, e := range out.Errors {
		o := e.LaunchTemplateAndOverrides.Overrides
		lines = append(lines, fmt.Sprintf("%s %s in %s: %s", e.Lifecycle, o.InstanceType, *o.AvailabilityZone, *e.ErrorCode))
	}

	return strings.Join(lines, "; ")
}

// TestFleetChoosesAPool: an instant fleet launches the cheapest type that has capacity, or the first by priority. It reports
// the others, and does not go from spot to on-demand by itself.
func TestFleetChoosesAPool(t *testing.T) {
	lowest := func(*client.CreateFleetInput) {}
	for name, c := range map[string]struct {
		lacking string
		market  types.DefaultTargetCapacityType
		change  func(*client.CreateFleetInput)
		want    string
	}{
		"on-demand": {"", "on-demand", lowest, "1 t3.medium on-demand"},
		"spot":      {"", "spot", lowest, "1 t3.medium spot"},
		"priority": {"", "on-demand", func(in *client.CreateFleetInput) {
			in.OnDemandOptions = &types.OnDemandOptionsRequest{AllocationStrategy: "prioritized"}
		}, "1 m5.xlarge on-demand"},
		"no capacity for the cheapest": {
			"t3.medium", "on-demand", lowest,
			"1 m5.xlarge on-demand; on-demand t3.medium in us-east-1b: InsufficientInstanceCapacity",
		},
		"no capacity on spot": {
			"spot", "spot", lowest,
			"spot t3.medium in us-east-1b: InsufficientInstanceCapacity; spot m5.xlarge in us-east-1b: InsufficientInstanceCapacity",
		},
		"no capacity on spot, on-demand": {"spot", "on-demand", lowest, "1 t3.medium on-demand"},
		"more than the quota": {"", "on-demand", func(in *client.CreateFleetInput) {
			in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(9)
		}, "8 t3.medium on-demand; on-demand t3.medium in us-east-1b: VcpuLimitExceeded; on-demand m5.xlarge in us-east-1b: VcpuLimitExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFleetLab(t)
			l.lacking[c.lacking] = true
			in := l.request(c.market, "m5.xlarge", "t3.medium")
			c.change(in)
			out := must[*client.CreateFleetOutput](t)(l.CreateFleet(t.Context(), in))
			if got := fleetSummary(out); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestInstancesOfFleets: the instances have what their launch template says, the tags of the request, and those of AWS.
func TestInstancesOfFleets(t *testing.T) {
	l := newFleetLab(t)
	out := must[*client.CreateFleetOutput](t)(l.CreateFleet(t.Context(), l.request("spot", "t3.medium")))
	id := out.Instances[0].InstanceIds[0]
	got := must[*client.DescribeInstancesOutput](t)(l.DescribeInstances(t.Context(), &client.DescribeInstancesInput{InstanceIds: []string{id}}))
	i := got.Reservations[0].Instances[0]
	has := map[string]string{}
	for _, tag := range i.Tags {
		has[*tag.Key] = *tag.Value
	}
	want := map[string]string{
		"team": "instance", "aws:ec2:fleet-id": *out.FleetId, "aws:ec2launchtemplate:id": l.template, "aws:ec2launchtemplate:version": "1",
	}
	if diff := cmp.Diff(want, has); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	facts := []string{string(i.InstanceLifecycle), *i.SubnetId, *i.SecurityGroups[0].GroupId, *i.IamInstanceProfile.Arn, string(i.MetadataOptions.HttpTokens)}
	if diff := cmp.Diff([]string{"spot", l.subnet, l.group, "arn:aws:iam::000000000000:instance-profile/worker", "required"}, facts); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
	volumes := must[*client.DescribeVolumesOutput](t)(l.DescribeVolumes(t.Context(), &client.DescribeVolumesInput{Filters: filters("tag:team", "volume")}))
	interfaces := must[*client.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(t.Context(), &client.DescribeNetworkInterfacesInput{Filters: filters("tag:team", "interface")}))
	if len(volumes.Volumes) != 1 || len(interfaces.NetworkInterfaces) != 1 {
		t.Errorf("%d volumes and %d interfaces have their tags, want 1 and 1", len(volumes.Volumes), len(interfaces.NetworkInterfaces))
	}
}

// TestFleetTokenIsIdempotent: a repeated request has the answer of the first one, and launches nothing.
func TestFleetTokenIsIdempotent(t *testing.T) {
	l := newFleetLab(t)
	in := l.request("on-demand", "m5.xlarge", "t3.medium")
	in.ClientToken = aws.String("one")
	first := must[*client.CreateFleetOutput](t)(l.CreateFleet(t.Context(), in))
	again := must[*client.CreateFleetOutput](t)(l.CreateFleet(t.Context(), in))
	if *first.FleetId != *again.FleetId || first.Instances[0].InstanceIds[0] != again.Instances[0].InstanceIds[0] || fleetSummary(first) != fleetSummary(again) {
		t.Errorf("the first answer is %s, the second %s", fleetSummary(first), fleetSummary(again))
	}
	in.TagSpecifications = nil
	if _, err := l.CreateFleet(t.Context(), in); code(err) != "IdempotentParameterMismatch" {
		t.Errorf("the token with other parameters: %v", err)
	}
}

// TestFleetRefuses: requests that EC2 refuses, or that the region does not implement.
func TestFleetRefuses(t *testing.T) {
	l := newFleetLab(t)
	for name, c := range map[string]struct {
		change func(*client.CreateFleetInput)
		want   string
	}{
		"maintain":    {func(in *client.CreateFleetInput) { in.Type = types.FleetTypeMaintain }, "NotImplemented"},
		"no type":     {func(in *client.CreateFleetInput) { in.Type = "" }, "NotImplemented"},
		"no capacity": {func(in *client.CreateFleetInput) { in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(0) }, "InvalidParameterValue"},
		"capacity block": {func(in *client.CreateFleetInput) {
			in.TargetCapacitySpecification.DefaultTargetCapacityType = "capacity-block"
		}, "NotImplemented"},
		"tags of interfaces": {func(in *client.CreateFleetInput) { in.TagSpecifications = tags("network-interface", "team", "x") }, "InvalidParameterValue"},
		"unknown type":       {func(in *client.CreateFleetInput) { in.LaunchTemplateConfigs[0].Overrides[0].InstanceType = "t9.huge" }, "InvalidParameterValue"},
		"no version": {func(in *client.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.Version = nil
		}, "MissingParameter"},
		"unknown template": {func(in *client.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.LaunchTemplateName = aws.String("gone")
		}, "InvalidLaunchTemplateName.NotFoundException"},
		"too many overrides": {func(in *client.CreateFleetInput) {
			o := &in.LaunchTemplateConfigs[0].Overrides
			*o = slices.Repeat(*o, 301)
		}, "InvalidParameterValue"},
		"dry run": {func(in *client.CreateFleetInput) { in.DryRun = aws.Bool(true) }, "DryRunOperation"},
	} {
		t.Run(name, func(t *testing.T) {
			in := l.request("on-demand", "t3.medium")
			c.change(in)
			if _, err := l.CreateFleet(t.Context(), in); code(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	all := must[*client.DescribeInstancesOutput](t)(l.DescribeInstances(t.Context(), &client.DescribeInstancesInput{}))
	if len(all.Reservations) != 0 {
		t.Errorf("refused fleets left %d reservations", len(all.Reservations))
	}
	enclave := &types.RequestLaunchTemplateData{EnclaveOptions: &types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(true)}}
	_, err := l.CreateLaunchTemplate(t.Context(), &client.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("enclave"), LaunchTemplateData: enclave})
	if code(err) != "NotImplemented" {
		t.Errorf("a template with enclaves: %v", err)
	}
}

// TestFleetReportsWhatItCannotLaunch: a zone that is not the subnet's fails the launch, not the request.
func TestFleetReportsWhatItCannotLaunch(t *testing.T) {
	l := newFleetLab(t)
	in := l.request("on-demand", "t3.medium")
	in.LaunchTemplateConfigs[0].Overrides[0].AvailabilityZone = aws.String("us-east-1c")
	out := must[*client.CreateFleetOutput](t)(l.CreateFleet(t.Context(), in))
	if got, want := fleetSummary(out), "on-demand t3.medium in us-east-1c: InvalidParameterValue"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestIAMIsAskedAboutLaunches: a fleet, and instances from a launch template, need the rights to use what the template
// names, to tag what is created, and to pass the role.
func TestIAMIsAskedAboutLaunches(t *testing.T) {
	l := newFleetLab(t)
	fleetTags := func(kind, value string) *sdk.TagSpecification {
		return &sdk.TagSpecification{ResourceType: &kind, Tags: []*sdk.Tag{{Key: new("team"), Value: &value}}}
	}
	fleet := &sdk.CreateFleetInput{
		TargetCapacitySpecification: &sdk.TargetCapacitySpecificationRequest{DefaultTargetCapacityType: new("spot")},
		TagSpecifications:           []*sdk.TagSpecification{fleetTags("fleet", "fleet"), fleetTags("instance", "instance")},
		LaunchTemplateConfigs: []*sdk.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &sdk.FleetLaunchTemplateSpecificationRequest{LaunchTemplateId: &l.template, Version: new("$Latest")},
			Overrides:                   []*sdk.FleetLaunchTemplateOverridesRequest{{SubnetId: &l.subnet, ImageId: new(image)}},
		}},
	}
	run := &sdk.RunInstancesInput{
		SubnetId: &l.subnet, LaunchTemplate: &sdk.LaunchTemplateSpecification{LaunchTemplateId: &l.template, Version: new("$Latest")},
		TagSpecifications: []*sdk.TagSpecification{fleetTags("instance", "instance")},
	}
	launches := []string{
		"ec2:RunInstances arn:aws:ec2:us-east-1::image/" + image + " of template",
		"ec2:RunInstances launch-template/" + l.template + " aws:ResourceTag/team=template of template",
		"ec2:RunInstances security-group/" + l.group + " of template",
		"ec2:RunInstances subnet/" + l.subnet + " of template",
		"ec2:CreateTags instance/* aws:RequestTag/team=instance ec2:CreateAction=RunInstances",
		"ec2:RunInstances instance/* aws:RequestTag/team=instance ec2:MetadataHttpTokens=required ec2:InstanceProfile=arn:aws:iam::000000000000:instance-profile/worker of template",
		"ec2:RunInstances volume/* of template",
		"ec2:CreateTags network-interface/* aws:RequestTag/team=interface ec2:CreateAction=RunInstances",
		"ec2:RunInstances network-interface/* aws:RequestTag/team=interface of template",
	}
	role := "iam:PassRole arn:aws:iam::000000000000:role/worker-role"
	for _, c := range []struct {
		op   string
		in   any
		want []string
	}{
		{"CreateFleet", fleet, slices.Concat([]string{
			"ec2:CreateFleet fleet/* aws:RequestTag/team=fleet",
			"ec2:CreateTags fleet/* aws:RequestTag/team=fleet ec2:CreateAction=CreateFleet",
			"ec2:CreateFleet launch-template/" + l.template + " aws:ResourceTag/team=template",
			"ec2:CreateFleet arn:aws:ec2:us-east-1::image/" + image,
			"ec2:CreateFleet subnet/" + l.subnet,
		}, launches, []string{
			"ec2:CreateTags spot-instances-request/* aws:RequestTag/team=request ec2:CreateAction=RunInstances",
			"ec2:RunInstances spot-instances-request/* aws:RequestTag/team=request of template",
			role,
		})},
		{"RunInstances", run, append(slices.Clone(launches), role)},
	} {
		a := &recordingAuthorizer{}
		ctx := wire.WithAuthorizer(wire.WithCaller(t.Context(), wire.Caller{Account: "000000000000", Role: "karpenter", ARN: "arn"}), a)
		if err := l.svc.Wire().Authorize(ctx, c.op, c.in); err != nil {
			t.Errorf("%s: %v", c.op, err)
		}
		if diff := cmp.Diff(c.want, a.lines); diff != "" {
			t.Errorf("%s asks (-want +got):\n%s", c.op, diff)
		}
	}
}

// TestSpotPrices: each type has one price in each zone, lower than on-demand, in pages.
func TestSpotPrices(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	prices := map[string]float64{}
	pages := client.NewDescribeSpotPriceHistoryPaginator(r, &client.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"}, StartTime: aws.Time(r.clock.Now()),
	})
	for pages.HasMorePages() {
		page := must[*client.DescribeSpotPriceHistoryOutput](t)(pages.NextPage(ctx))
		if n := len(page.SpotPriceHistory); n > 1000 {
			t.Errorf("a page has %d prices", n)
		}
		for _, p := range page.SpotPriceHistory {
			if p.Timestamp.After(r.clock.Now()) {
				t.Errorf("a price is of %s, in the future", p.Timestamp)
			}
			price := must[float64](t)(strconv.ParseFloat(*p.SpotPrice, 64))
			prices[string(p.InstanceType)+" "+*p.AvailabilityZone] = price
		}
	}
	if small, large := prices["t3.medium us-east-1a"], prices["m5.xlarge us-east-1a"]; small <= 0 || small >= large {
		t.Errorf("t3.medium costs %f, m5.xlarge %f", small, large)
	}
	for name, c := range map[string]struct {
		in   client.DescribeSpotPriceHistoryInput
		want int
	}{
		"type":    {client.DescribeSpotPriceHistoryInput{InstanceTypes: resourceKinds("t3.medium")}, 6},
		"zone":    {client.DescribeSpotPriceHistoryInput{InstanceTypes: resourceKinds("t3.medium"), AvailabilityZone: aws.String("us-east-1b")}, 1},
		"filter":  {client.DescribeSpotPriceHistoryInput{InstanceTypes: resourceKinds("t3.medium"), Filters: filters("availability-zone", "us-east-1b")}, 1},
		"product": {client.DescribeSpotPriceHistoryInput{ProductDescriptions: []string{"Windows"}}, 0},
	} {
		out := must[*client.DescribeSpotPriceHistoryOutput](t)(r.DescribeSpotPriceHistory(ctx, &c.in))
		if n := len(out.SpotPriceHistory); n != c.want {
			t.Errorf("%s: %d prices, want %d", name, n, c.want)
		}
	}
	backwards := &client.DescribeSpotPriceHistoryInput{StartTime: aws.Time(r.clock.Now()), EndTime: aws.Time(r.clock.Now().Add(-time.Hour))}
	if _, err := r.DescribeSpotPriceHistory(ctx, backwards); code(err) != "InvalidParameterValue" {
		t.Errorf("a time that ends before it starts: %v", err)
	}
}
