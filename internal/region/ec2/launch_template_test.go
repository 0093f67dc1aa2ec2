// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"encoding/json"
	"math/rand"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

func TestTemplateVersionsAndLaunch(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	vpc, subnet := r.createVPCWithSubnet(t)
	group := r.group(t, vpc, "nodes")
	data := func(kind types.InstanceType) *types.RequestLaunchTemplateData {
		return &types.RequestLaunchTemplateData{
			ImageId: aws.String(image), InstanceType: kind,
			MetadataOptions:   &types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required", HttpPutResponseHopLimit: aws.Int32(2)},
			NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: aws.Int32(0), Groups: []string{group}, AssociatePublicIpAddress: aws.Bool(false)}},
			BlockDeviceMappings: []types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{
				VolumeSize: aws.Int32(20), VolumeType: "gp3", Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true),
			}}},
		}
	}
	made := must[*client.CreateLaunchTemplateOutput](t)(r.CreateLaunchTemplate(ctx, &client.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("nodes"), LaunchTemplateData: data("t3.medium")}))
	id := made.LaunchTemplate.LaunchTemplateId
	_, err := r.CreateLaunchTemplate(ctx, &client.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("nodes"), LaunchTemplateData: data("t3.medium")})
	if code(err) != "InvalidLaunchTemplateName.AlreadyExistsException" {
		t.Errorf("create a template with the same name: %v", err)
	}
	v := must[*client.CreateLaunchTemplateVersionOutput](t)(r.CreateLaunchTemplateVersion(ctx, &client.CreateLaunchTemplateVersionInput{
		LaunchTemplateId: id, SourceVersion: aws.String("1"), LaunchTemplateData: &types.RequestLaunchTemplateData{InstanceType: "t3.large"},
	}))
	if got := v.LaunchTemplateVersion; *got.VersionNumber != 2 || *got.DefaultVersion || *got.LaunchTemplateData.ImageId != image {
		t.Errorf("second version: got %+v", got)
	}
	all := must[*client.DescribeLaunchTemplateVersionsOutput](t)(r.DescribeLaunchTemplateVersions(ctx, &client.DescribeLaunchTemplateVersionsInput{Versions: []string{"$Latest", "$Default"}}))
	if n := len(all.LaunchTemplateVersions); n != 2 {
		t.Errorf("the latest and default versions of all templates are %d, want 2", n)
	}
	out := must[*client.RunInstancesOutput](t)(r.RunInstances(ctx, &client.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &subnet,
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: id, Version: aws.String("$Latest")},
	}))
	i := out.Instances[0]
	got := []string{string(i.InstanceType), string(i.MetadataOptions.HttpTokens), *i.SecurityGroups[0].GroupId, *i.SubnetId}
	if diff := cmp.Diff([]string{"t3.large", "required", group, subnet}, got); diff != "" {
		t.Errorf("launched (-want +got):\n%s", diff)
	}
	volumes := must[*client.DescribeVolumesOutput](t)(r.DescribeVolumes(ctx, &client.DescribeVolumesInput{
		Filters: []types.Filter{{Name: aws.String("attachment.instance-id"), Values: []string{*i.InstanceId}}},
	}))
	if len(volumes.Volumes) != 1 || *volumes.Volumes[0].Size != 20 || !*volumes.Volumes[0].Encrypted {
		t.Errorf("its volumes are %+v", volumes.Volumes)
	}
	must[*client.ModifyLaunchTemplateOutput](t)(r.ModifyLaunchTemplate(ctx, &client.ModifyLaunchTemplateInput{LaunchTemplateId: id, DefaultVersion: aws.String("2")}))
	must[*client.DeleteLaunchTemplateOutput](t)(r.DeleteLaunchTemplate(ctx, &client.DeleteLaunchTemplateInput{LaunchTemplateId: id}))
	_, err = r.DescribeLaunchTemplates(ctx, &client.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"nodes"}})
	if code(err) != "InvalidLaunchTemplateName.NotFoundException" {
		t.Errorf("describe a deleted template: %v", err)
	}
}

// memory is a backend that stores the last saved state as JSON.
type memory struct{ saved []byte }

func (m *memory) Save(_ string, v any) error {
	b, err := json.Marshal(v)
	m.saved = b
	return err
}

func (m *memory) Load(_ string, v any) error {
	if m.saved == nil {
		return nil
	}
	return json.Unmarshal(m.saved, v)
}

func TestRestartResumesJobs(t *testing.T) {
	mem, mach := &memory{}, newMachines()
	r := newRegion(t, func(c *ec2.Config) { c.Machines, c.State = mach, mem })
	_, subnet := r.createVPCWithSubnet(t)
	id := *r.runInstance(t, subnet).InstanceId // Run is not called: the instance stays pending
	if got := r.instance(t, id).State.Name; got != types.InstanceStateNamePending {
		t.Fatalf("the instance is %s", got)
	}
	again := newRegion(t, func(c *ec2.Config) { c.Machines, c.State, c.Rand = mach, mem, rand.New(rand.NewSource(2)) })
	start(t, again.svc)
	again.waitForState(t, id, types.InstanceStateNameRunning)
	if !mach.Alive(id) {
		t.Error("the machine was not launched after the restart")
	}
	if got := again.instance(t, id); len(got.Tags) != 1 || *got.PrivateIpAddress != "10.0.1.4" || got.MetadataOptions.HttpTokens != "required" {
		t.Errorf("after the restart the instance is %+v", got)
	}
	before := must[*client.DescribeSubnetsOutput](t)(r.DescribeSubnets(t.Context(), &client.DescribeSubnetsInput{}))
	after := must[*client.DescribeSubnetsOutput](t)(again.DescribeSubnets(t.Context(), &client.DescribeSubnetsInput{}))
	if *before.Subnets[0].AvailableIpAddressCount != 250 || *after.Subnets[0].AvailableIpAddressCount != 250 {
		t.Errorf("free addresses: %d, then %d; want 250 twice", *before.Subnets[0].AvailableIpAddressCount, *after.Subnets[0].AvailableIpAddressCount)
	}
}

func TestVolumeTransitionsWithoutMachines(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	_, subnet := r.createVPCWithSubnet(t)
	id := *r.runInstance(t, subnet).InstanceId
	r.clock.Add(time.Second)
	far := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1), VolumeType: "gp3"}))
	near := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1b"), Size: aws.Int32(1), VolumeType: "gp3"}))
	attach := func(v *string, device string) string {
		_, err := r.AttachVolume(ctx, &client.AttachVolumeInput{VolumeId: v, InstanceId: &id, Device: &device})
		return code(err)
	}
	if got := attach(near.VolumeId, "/dev/sdf"); got != "IncorrectState" {
		t.Errorf("attach a volume that is being created: %q", got)
	}
	r.clock.Add(time.Second)
	for _, c := range []struct{ volume, device, want string }{
		{*far.VolumeId, "/dev/sdf", "InvalidVolume.ZoneMismatch"},
		{*near.VolumeId, "/dev/xvda", "InvalidParameterValue"},
		{*near.VolumeId, "/dev/foo", "InvalidParameterValue"},
		{*near.VolumeId, "/dev/sdf", ""},
		{*near.VolumeId, "/dev/sdg", "VolumeInUse"},
		{"vol-00000000000000000", "/dev/sdg", "InvalidVolume.NotFound"},
	} {
		if got := attach(&c.volume, c.device); got != c.want {
			t.Errorf("attach %s as %s: got %q, want %q", c.volume, c.device, got, c.want)
		}
	}
	r.clock.Add(time.Second)
	must[*client.DetachVolumeOutput](t)(r.DetachVolume(ctx, &client.DetachVolumeInput{VolumeId: near.VolumeId}))
	r.clock.Add(time.Second)
	must[*client.DeleteVolumeOutput](t)(r.DeleteVolume(ctx, &client.DeleteVolumeInput{VolumeId: near.VolumeId}))
	r.clock.Add(time.Second)
	if _, err := r.DescribeVolumes(ctx, &client.DescribeVolumesInput{VolumeIds: []string{*near.VolumeId}}); code(err) != "InvalidVolume.NotFound" {
		t.Errorf("describe a deleted volume: %v", err)
	}
	_, err := r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1b"), Size: aws.Int32(1), VolumeType: "gp3", Iops: aws.Int32(99)})
	if code(err) != "InvalidParameterValue" {
		t.Errorf("too few IOPS: %v", err)
	}
}

// TestTemplateQuotas: a region has 5,000 launch templates and a template 10,000 versions, here fewer. Deleted versions do not
// count, and one request deletes 200 at most.
func TestTemplateQuotas(t *testing.T) {
	r, ctx := newRegion(t, func(c *ec2.Config) { c.Quotas.Templates, c.Quotas.TemplateVersions = 1, 3 }), t.Context()
	create := func(name string) (*client.CreateLaunchTemplateOutput, error) {
		return r.CreateLaunchTemplate(ctx, &client.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: &types.RequestLaunchTemplateData{InstanceType: "t3.micro"}})
	}
	id := must[*client.CreateLaunchTemplateOutput](t)(create("nodes")).LaunchTemplate.LaunchTemplateId
	if _, err := create("more"); code(err) != "MaxTemplateLimitExceeded" {
		t.Errorf("one template more than the quota: %v", err)
	}
	version := func() error {
		_, err := r.CreateLaunchTemplateVersion(ctx, &client.CreateLaunchTemplateVersionInput{LaunchTemplateId: id, LaunchTemplateData: &types.RequestLaunchTemplateData{InstanceType: "t3.large"}})
		return err
	}
	for range 2 {
		if err := version(); err != nil {
			t.Fatal(err)
		}
	}
	if err := version(); code(err) != "MaxTemplateVersionLimitExceeded" {
		t.Errorf("one version more than the quota: %v", err)
	}
	out := must[*client.DeleteLaunchTemplateVersionsOutput](t)(r.DeleteLaunchTemplateVersions(ctx, &client.DeleteLaunchTemplateVersionsInput{
		LaunchTemplateId: id, Versions: []string{"1", "2", "9"},
	}))
	if len(out.SuccessfullyDeletedLaunchTemplateVersions) != 1 || len(out.UnsuccessfullyDeletedLaunchTemplateVersions) != 2 {
		t.Errorf("the default version and a missing one are not deleted: %+v", out)
	}
	if err := version(); err != nil {
		t.Errorf("a version in place of a deleted one: %v", err)
	}
	_, err := r.DeleteLaunchTemplateVersions(ctx, &client.DeleteLaunchTemplateVersionsInput{LaunchTemplateId: id, Versions: make([]string, 201)})
	if code(err) != "InvalidParameterValue" {
		t.Errorf("201 versions in a request: %v", err)
	}
}
