// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"net/netip"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

// dhcpOptions returns a request for DHCP options: keys and values in turn.
func dhcpOptions(kv ...string) *client.CreateDhcpOptionsInput {
	in := &client.CreateDhcpOptionsInput{}
	for i := 0; i < len(kv); i += 2 {
		in.DhcpConfigurations = append(in.DhcpConfigurations, types.NewDhcpConfiguration{Key: &kv[i], Values: []string{kv[i+1]}})
	}
	return in
}

// TestDomainNameOfDHCPOptions: the domain name of a VPC's DHCP options is in the metadata of its instances, and their
// private DNS names do not have it.
func TestDomainNameOfDHCPOptions(t *testing.T) {
	m := newMachines()
	r, ctx := newRegion(t, func(c *ec2.Config) { c.Machines = m }), t.Context()
	start(t, r.svc)
	vpc, subnet := r.createVPCWithSubnet(t)
	in := dhcpOptions("domain-name", "corp.example second.example", "domain-name-servers", "AmazonProvidedDNS")
	in.TagSpecifications = tags(types.ResourceTypeDhcpOptions, "Name", "corp")
	made := must[*client.CreateDhcpOptionsOutput](t)(r.CreateDhcpOptions(ctx, in)).DhcpOptions
	associate := func(id string) {
		t.Helper()
		must[*client.AssociateDhcpOptionsOutput](t)(r.AssociateDhcpOptions(ctx, &client.AssociateDhcpOptionsInput{VpcId: &vpc, DhcpOptionsId: &id}))
	}
	associate(*made.DhcpOptionsId)
	id := *r.runInstance(t, subnet).InstanceId
	r.waitForState(t, id, types.InstanceStateNameRunning)
	if spec := m.live[id]; spec.Hostname != "ip-10-0-1-4" || spec.Domain != "corp.example second.example" {
		t.Errorf("the machine was launched with host name %s and domain %s", spec.Hostname, spec.Domain)
	}
	check := func(want string) {
		t.Helper()
		if got := *r.instance(t, id).PrivateDnsName; got != "ip-10-0-1-4.ec2.internal" {
			t.Errorf("private DNS name %s", got)
		}
		metadata := r.svc.Metadata(nil)
		if got, ok := metadata.FindInstance(vpc, netip.MustParseAddr("10.0.1.4")); !ok || got != id {
			t.Fatalf("10.0.1.4 is %q, want %s", got, id)
		}
		for _, path := range []string{"meta-data/local-hostname", "meta-data/hostname"} {
			if got, found, err := metadata.GetValue(id, path); err != nil || !found || string(got) != want {
				t.Errorf("%s = %q, %v, %v; want %q", path, got, found, err, want)
			}
		}
	}
	check("ip-10-0-1-4.corp.example second.example")
	associate("default")
	check("ip-10-0-1-4")
	usual := must[*client.DescribeDhcpOptionsOutput](t)(r.DescribeDhcpOptions(ctx, &client.DescribeDhcpOptionsInput{
		Filters: []types.Filter{{Name: aws.String("value"), Values: []string{"ec2.internal"}}},
	})).DhcpOptions
	if len(usual) != 1 {
		t.Fatalf("DHCP options with ec2.internal: %v, want those of a new VPC", usual)
	}
	associate(*usual[0].DhcpOptionsId)
	check("ip-10-0-1-4.ec2.internal")
}

// TestDHCPOptionsFromCreationToDeletion creates, finds and deletes DHCP options, and requests what the region refuses.
func TestDHCPOptionsFromCreationToDeletion(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	vpc, _ := r.createVPCWithSubnet(t)
	in := dhcpOptions("domain-name", "corp.example", "domain-name-servers", "AmazonProvidedDNS")
	in.TagSpecifications = tags(types.ResourceTypeDhcpOptions, "Name", "corp")
	id := must[*client.CreateDhcpOptionsOutput](t)(r.CreateDhcpOptions(ctx, in)).DhcpOptions.DhcpOptionsId
	found := must[*client.DescribeDhcpOptionsOutput](t)(r.DescribeDhcpOptions(ctx, &client.DescribeDhcpOptionsInput{
		Filters: []types.Filter{{Name: aws.String("tag:Name"), Values: []string{"corp"}}},
	})).DhcpOptions
	if len(found) != 1 || *found[0].DhcpOptionsId != *id || *found[0].DhcpConfigurations[0].Values[0].Value != "corp.example" {
		t.Fatalf("found %+v", found)
	}
	must[*client.AssociateDhcpOptionsOutput](t)(r.AssociateDhcpOptions(ctx, &client.AssociateDhcpOptionsInput{VpcId: &vpc, DhcpOptionsId: id}))
	vpcs := must[*client.DescribeVpcsOutput](t)(r.DescribeVpcs(ctx, &client.DescribeVpcsInput{Filters: []types.Filter{{Name: aws.String("dhcp-options-id"), Values: []string{*id}}}}))
	if len(vpcs.Vpcs) != 1 || *vpcs.Vpcs[0].VpcId != vpc {
		t.Errorf("VPCs with the options: %v", vpcs.Vpcs)
	}
	remove := &client.DeleteDhcpOptionsInput{DhcpOptionsId: id}
	if _, err := r.DeleteDhcpOptions(ctx, remove); code(err) != "DependencyViolation" {
		t.Errorf("delete the options of a VPC: %v", err)
	}
	must[*client.AssociateDhcpOptionsOutput](t)(r.AssociateDhcpOptions(ctx, &client.AssociateDhcpOptionsInput{VpcId: &vpc, DhcpOptionsId: aws.String("default")}))
	must[*client.DeleteDhcpOptionsOutput](t)(r.DeleteDhcpOptions(ctx, remove))
	if _, err := r.AssociateDhcpOptions(ctx, &client.AssociateDhcpOptionsInput{VpcId: &vpc, DhcpOptionsId: id}); code(err) != "InvalidDhcpOptionsID.NotFound" {
		t.Errorf("associate deleted options: %v", err)
	}
	for want, in := range map[string]*client.CreateDhcpOptionsInput{
		"MissingParameter":      {DhcpConfigurations: []types.NewDhcpConfiguration{}},
		"InvalidParameterValue": dhcpOptions("domain-names", "corp.example"),
		"UnsupportedOperation":  dhcpOptions("domain-name", "corp.example", "domain-name-servers", "10.0.0.53"),
	} {
		if _, err := r.CreateDhcpOptions(ctx, in); code(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, in := range []*client.CreateDhcpOptionsInput{
		dhcpOptions("domain-name", "corp.example"),
		dhcpOptions("domain-name-servers", "AmazonProvidedDNS", "ntp-servers", "10.0.0.1"),
	} {
		if _, err := r.CreateDhcpOptions(ctx, in); code(err) != "UnsupportedOperation" {
			t.Errorf("options that machines would ignore: %v", err)
		}
	}
}
