// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"net/netip"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

// launchNamed launches an instance with a template that names its instances, or as the subnet does for nil.
func (r region) launchNamed(t *testing.T, subnet string, named *types.LaunchTemplatePrivateDnsNameOptionsRequest) types.Instance {
	t.Helper()
	made := must[*client.CreateLaunchTemplateOutput](t)(r.CreateLaunchTemplate(t.Context(), &client.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String(t.Name()),
		LaunchTemplateData: &types.RequestLaunchTemplateData{
			ImageId:               aws.String(image),
			InstanceType:          types.InstanceTypeT3Medium,
			PrivateDnsNameOptions: named,
		},
	})).LaunchTemplate
	out := must[*client.RunInstancesOutput](t)(r.RunInstances(t.Context(), &client.RunInstancesInput{
		MinCount:       aws.Int32(1),
		MaxCount:       aws.Int32(1),
		SubnetId:       &subnet,
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: made.LaunchTemplateId},
	}))

	return out.Instances[0]
}

// TestResourceNames: an instance is named by its id if its launch template says so, or its subnet where the template says
// nothing. Its host name is that name, in the domain of the VPC's DHCP options. The name of its interface stays that of the
// address.
func TestResourceNames(t *testing.T) {
	byResource := &types.LaunchTemplatePrivateDnsNameOptionsRequest{
		HostnameType:                 types.HostnameTypeResourceName,
		EnableResourceNameDnsARecord: aws.Bool(true),
	}
	byAddress := &types.LaunchTemplatePrivateDnsNameOptionsRequest{HostnameType: types.HostnameTypeIpName}
	for name, c := range map[string]struct {
		template *types.LaunchTemplatePrivateDnsNameOptionsRequest
		subnet   bool // names instances by their ids
		want     types.PrivateDnsNameOptionsResponse
	}{
		"nothing said":            {nil, false, options(types.HostnameTypeIpName, false)},
		"the template":            {byResource, false, options(types.HostnameTypeResourceName, true)},
		"the subnet":              {nil, true, options(types.HostnameTypeResourceName, true)},
		"the template comes last": {byAddress, true, options(types.HostnameTypeIpName, true)},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachines()
			r, ctx := newRegion(t, func(c *ec2.Config) { c.Machines = m }), t.Context()
			start(t, r.svc)
			vpc, subnet := r.createVPCWithSubnet(t)
			in := dhcpOptions("domain-name", "corp.example", "domain-name-servers", "AmazonProvidedDNS")
			made := must[*client.CreateDhcpOptionsOutput](t)(r.CreateDhcpOptions(ctx, in)).DhcpOptions
			must[*client.AssociateDhcpOptionsOutput](t)(r.AssociateDhcpOptions(ctx, &client.AssociateDhcpOptionsInput{
				VpcId:         &vpc,
				DhcpOptionsId: made.DhcpOptionsId,
			}))
			if c.subnet {
				r.nameByResource(t, subnet)
			}
			i := r.launchNamed(t, subnet, c.template)
			id := *i.InstanceId
			r.waitForState(t, id, types.InstanceStateNameRunning)
			host := "ip-10-0-1-4"
			if c.want.HostnameType == types.HostnameTypeResourceName {
				host = id
			}
			if got := *r.instance(t, id).PrivateDnsName; got != host+".ec2.internal" {
				t.Errorf("private DNS name %s, want that of %s", got, host)
			}
			if got := *r.instance(t, id).NetworkInterfaces[0].PrivateDnsName; got != "ip-10-0-1-4.ec2.internal" {
				t.Errorf("the name of the interface is %s", got)
			}
			if diff := cmp.Diff(c.want, *r.instance(t, id).PrivateDnsNameOptions, cmp.AllowUnexported(types.PrivateDnsNameOptionsResponse{})); diff != "" {
				t.Error(diff)
			}
			if got := m.live[id].Hostname; got != host {
				t.Errorf("the machine was launched as %s, want %s", got, host)
			}
			metadata := r.svc.Metadata(nil)
			if got, ok := metadata.FindInstance(vpc, netip.MustParseAddr("10.0.1.4")); !ok || got != id {
				t.Fatalf("10.0.1.4 is %q, want %s", got, id)
			}
			for _, path := range []string{"meta-data/local-hostname", "meta-data/hostname"} {
				if got, found, err := metadata.GetValue(id, path); err != nil || !found || string(got) != host+".corp.example" {
					t.Errorf("%s = %q, %v, %v", path, got, found, err)
				}
			}
		})
	}
}

func options(t types.HostnameType, answers bool) types.PrivateDnsNameOptionsResponse {
	return types.PrivateDnsNameOptionsResponse{
		HostnameType:                    t,
		EnableResourceNameDnsARecord:    &answers,
		EnableResourceNameDnsAAAARecord: aws.Bool(false),
	}
}

// nameByResource makes a subnet name its instances by their ids. AWS changes one attribute a request.
func (r region) nameByResource(t *testing.T, subnet string) {
	t.Helper()
	for _, in := range []*client.ModifySubnetAttributeInput{
		{SubnetId: &subnet, PrivateDnsHostnameTypeOnLaunch: types.HostnameTypeResourceName},
		{SubnetId: &subnet, EnableResourceNameDnsARecordOnLaunch: &types.AttributeBooleanValue{Value: aws.Bool(true)}},
	} {
		must[*client.ModifySubnetAttributeOutput](t)(r.ModifySubnetAttribute(t.Context(), in))
	}
}

// TestHostnameTypes: EC2 knows two types of host names.
func TestHostnameTypes(t *testing.T) {
	r := newRegion(t)
	_, err := r.CreateLaunchTemplate(t.Context(), &client.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("nodes"),
		LaunchTemplateData: &types.RequestLaunchTemplateData{
			PrivateDnsNameOptions: &types.LaunchTemplatePrivateDnsNameOptionsRequest{HostnameType: "id-name"},
		},
	})
	if code(err) != "InvalidParameterValue" {
		t.Errorf("a template with the type id-name: %v", err)
	}
}
