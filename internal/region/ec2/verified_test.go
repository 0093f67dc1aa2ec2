// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestMessagesOfEC2 compares errors with those of moto's tests that are verified against AWS, and with EC2's
// documentation.
func TestMessagesOfEC2(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	missing := []string{"i-0123456789abcdef0", "i-0123456789abcdef1"}
	template := must[*client.CreateLaunchTemplateOutput](t)(r.CreateLaunchTemplate(ctx, &client.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("template"), LaunchTemplateData: &types.RequestLaunchTemplateData{InstanceType: types.InstanceTypeT2Micro},
	})).LaunchTemplate
	versions := func(in client.DescribeLaunchTemplateVersionsInput) error {
		_, err := r.DescribeLaunchTemplateVersions(ctx, &in)
		return err
	}
	const all = "To describe the launch template data for all your launch templates, for ‘--versions’ specify"

	_, image := r.DescribeImages(ctx, &client.DescribeImagesInput{ImageIds: []string{"ami-abcd1234"}})
	_, images := r.DescribeImages(ctx, &client.DescribeImagesInput{ImageIds: []string{"ami-abcd1234", "ami-abcd1235"}})
	_, malformed := r.DescribeImages(ctx, &client.DescribeImagesInput{ImageIds: []string{"not_an_ami_id"}})
	_, terminated := r.TerminateInstances(ctx, &client.TerminateInstancesInput{InstanceIds: missing})
	_, group := r.CreateSecurityGroup(ctx, &client.CreateSecurityGroupInput{GroupName: aws.String("g"), Description: aws.String("d")})
	_, modified := r.ModifyLaunchTemplate(ctx, &client.ModifyLaunchTemplateInput{
		LaunchTemplateId: template.LaunchTemplateId, LaunchTemplateName: template.LaunchTemplateName, DefaultVersion: aws.String("1"),
	})
	_, untagged := r.CreateVolume(ctx, &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1), TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeVolume}},
	})

	for name, x := range map[string]struct {
		err  error
		want string
	}{
		"an image":               {image, "InvalidAMIID.NotFound: The image id '[ami-abcd1234]' does not exist"},
		"several images":         {images, "InvalidAMIID.NotFound: The image ids '[ami-abcd1234, ami-abcd1235]' do not exist"},
		"no image's id":          {malformed, `InvalidAMIID.Malformed: Invalid id: "not_an_ami_id" (expecting "ami-...")`},
		"several instances":      {terminated, "InvalidInstanceID.NotFound: The instance IDs 'i-0123456789abcdef0, i-0123456789abcdef1' do not exist"},
		"a group without a VPC":  {group, "VPCIdNotSpecified: No default VPC for this user"},
		"a template twice":       {modified, "InvalidParameterCombination: Either provide launch template ID or launch template name to modify the template."},
		"no tags":                {untagged, "InvalidParameterValue: Tag specification must have at least one tag"},
		"no template":            {versions(client.DescribeLaunchTemplateVersionsInput{}), "MissingParameter: " + all},
		"a version of all":       {versions(client.DescribeLaunchTemplateVersionsInput{Versions: []string{"1"}}), "InvalidParameterValue: " + all},
		"the versions of a name": {versions(client.DescribeLaunchTemplateVersionsInput{LaunchTemplateName: aws.String("none")}), "The specified launch template, with template name none, does not exist."},
		"a version": {
			versions(client.DescribeLaunchTemplateVersionsInput{LaunchTemplateName: aws.String("template"), Versions: []string{"3"}}),
			"InvalidLaunchTemplateId.VersionNotFound: Could not find the specified version 3 for the launch template with ID " + *template.LaunchTemplateId + ".",
		},
	} {
		if x.err == nil || !strings.Contains(x.err.Error(), x.want) {
			t.Errorf("%s:\n got %v\nwant %s", name, x.err, x.want)
		}
	}
}

// TestCIDRBlocksAreAssociating: an additional block of a VPC is associated a moment after its request.
func TestCIDRBlocksAreAssociating(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	vpc := must[*client.CreateVpcOutput](t)(r.CreateVpc(ctx, &client.CreateVpcInput{CidrBlock: aws.String("10.10.42.0/24")})).Vpc.VpcId
	added := must[*client.AssociateVpcCidrBlockOutput](t)(r.AssociateVpcCidrBlock(ctx, &client.AssociateVpcCidrBlockInput{VpcId: vpc, CidrBlock: aws.String("10.10.43.0/24")}))
	if got := added.CidrBlockAssociation.CidrBlockState.State; got != types.VpcCidrBlockStateCodeAssociating {
		t.Errorf("the answer says %s", got)
	}

	state := func() types.VpcCidrBlockStateCode {
		out := must[*client.DescribeVpcsOutput](t)(r.DescribeVpcs(ctx, &client.DescribeVpcsInput{VpcIds: []string{*vpc}}))
		return out.Vpcs[0].CidrBlockAssociationSet[1].CidrBlockState.State
	}
	if got := state(); got != types.VpcCidrBlockStateCodeAssociating {
		t.Errorf("at once: %s", got)
	}

	r.clock.Add(time.Minute)
	if got := state(); got != types.VpcCidrBlockStateCodeAssociated {
		t.Errorf("a minute later: %s", got)
	}

	for i, want := range []string{"", "", "", "CidrLimitExceeded"} {
		block := fmt.Sprintf("10.10.%d.0/24", 44+i)
		if _, err := r.AssociateVpcCidrBlock(ctx, &client.AssociateVpcCidrBlockInput{VpcId: vpc, CidrBlock: &block}); err != nil && code(err) != want || err == nil && want != "" {
			t.Errorf("%s: %v, want %q", block, err, want)
		}
	}

	gone := must[*client.DisassociateVpcCidrBlockOutput](t)(r.DisassociateVpcCidrBlock(ctx, &client.DisassociateVpcCidrBlockInput{
		AssociationId: added.CidrBlockAssociation.AssociationId,
	}))
	if got := gone.CidrBlockAssociation.CidrBlockState.State; got != types.VpcCidrBlockStateCodeDisassociating {
		t.Errorf("the answer to the removal says %s", got)
	}
}

// TestZonesAreInAGroup: all zones of a region are in one group, whose name is not that of the region.
func TestZonesAreInAGroup(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	out := must[*client.DescribeAvailabilityZonesOutput](t)(r.DescribeAvailabilityZones(t.Context(), &client.DescribeAvailabilityZonesInput{
		Filters: filters("group-name", "us-east-1-zg-1"),
	}))
	if len(out.AvailabilityZones) < 3 {
		t.Errorf("zones of the group: %+v", out.AvailabilityZones)
	}
}

// TestBlocksKeepToTheRangeOfTheirVPC: EC2 restricts the additional blocks of a VPC.
func TestBlocksKeepToTheRangeOfTheirVPC(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	const restricted = "InvalidVpc.Range"
	for primary, blocks := range map[string]map[string]string{
		"10.10.0.0/16": {
			"192.168.0.0/16": restricted, "172.20.0.0/16": restricted, "198.19.1.0/24": restricted, "169.254.0.0/20": restricted,
			"10.0.0.0/16": "", "100.64.0.0/16": "", "203.0.113.0/24": "",
		},
		"10.1.0.0/16":   {"10.0.1.0/24": restricted, "10.2.0.0/16": ""},
		"172.16.0.0/16": {"172.31.0.0/20": restricted, "10.2.0.0/16": restricted, "172.17.0.0/16": ""},
		"100.64.0.0/16": {"192.168.1.0/24": restricted, "100.65.0.0/16": ""},
	} {
		vpc := must[*client.CreateVpcOutput](t)(r.CreateVpc(ctx, &client.CreateVpcInput{CidrBlock: &primary})).Vpc.VpcId
		for block, want := range blocks {
			_, err := r.AssociateVpcCidrBlock(ctx, &client.AssociateVpcCidrBlockInput{VpcId: vpc, CidrBlock: &block})
			if err != nil && code(err) != want || err == nil && want != "" {
				t.Errorf("%s in addition to %s: %v, want %q", block, primary, err, want)
			}
		}
	}
}

// TestUpdatesOfRulesNameOnePeer: EC2 reads names of protocols without their case, and refuses the update of a rule
// to no peer or to several.
func TestUpdatesOfRulesNameOnePeer(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	vpc := must[*client.CreateVpcOutput](t)(r.CreateVpc(ctx, &client.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	group := must[*client.CreateSecurityGroupOutput](t)(r.CreateSecurityGroup(ctx, &client.CreateSecurityGroupInput{
		GroupName: aws.String("g"), Description: aws.String("d"), VpcId: vpc,
	})).GroupId
	rule := must[*client.AuthorizeSecurityGroupIngressOutput](t)(r.AuthorizeSecurityGroupIngress(ctx, &client.AuthorizeSecurityGroupIngressInput{
		GroupId: group, IpProtocol: aws.String("TCP"), FromPort: aws.Int32(80), ToPort: aws.Int32(80), CidrIp: aws.String("10.0.0.1/32"),
	})).SecurityGroupRules[0]
	if *rule.IpProtocol != "tcp" {
		t.Errorf("protocol %s, want tcp", *rule.IpProtocol)
	}

	for want, change := range map[string]types.SecurityGroupRuleRequest{
		"MissingParameter":            {},
		"InvalidParameterCombination": {CidrIpv4: aws.String("10.0.0.2/32"), CidrIpv6: aws.String("2001:db8::/32")},
		"":                            {CidrIpv4: aws.String("10.0.0.2/32")},
	} {
		change.IpProtocol = aws.String("udp")
		change.FromPort = aws.Int32(53)
		change.ToPort = aws.Int32(53)
		_, err := r.ModifySecurityGroupRules(ctx, &client.ModifySecurityGroupRulesInput{
			GroupId: group, SecurityGroupRules: []types.SecurityGroupRuleUpdate{{SecurityGroupRuleId: rule.SecurityGroupRuleId, SecurityGroupRule: &change}},
		})
		if (err == nil) != (want == "") || err != nil && code(err) != want {
			t.Errorf("%+v: %v, want %q", change, err, want)
		}
	}
}

// TestVolumesOfSnapshotsAreRefused: the region does not copy the data of snapshots, and says so for one that exists.
func TestVolumesOfSnapshotsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	volume := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(8)}))
	r.clock.Add(time.Minute)
	snapshot := must[*client.CreateSnapshotOutput](t)(r.CreateSnapshot(ctx, &client.CreateSnapshotInput{VolumeId: volume.VolumeId}))

	for id, want := range map[string]string{*snapshot.SnapshotId: "UnsupportedOperation", "snap-0123456789abcdef0": "InvalidSnapshot.NotFound"} {
		_, err := r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), SnapshotId: &id})
		if code(err) != want {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
}

// TestDetachNamesTheGateway: a gateway that is not attached to a network is refused for that reason, also if the
// network does not exist.
func TestDetachNamesTheGateway(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	gateway := must[*client.CreateInternetGatewayOutput](t)(r.CreateInternetGateway(t.Context(), &client.CreateInternetGatewayInput{})).InternetGateway
	_, err := r.DetachInternetGateway(t.Context(), &client.DetachInternetGatewayInput{
		InternetGatewayId: gateway.InternetGatewayId, VpcId: aws.String("vpc-0123456789abcdef0"),
	})
	if code(err) != "Gateway.NotAttached" {
		t.Errorf("got %v", err)
	}
}
