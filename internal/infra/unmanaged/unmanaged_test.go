// SPDX-License-Identifier: Apache-2.0

package unmanaged_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
)

func cluster() v1alpha1.Cluster {
	var c v1alpha1.Cluster
	c.Metadata.Name = "demo"
	c.Spec.Networking = v1alpha1.Networking{
		NetworkID: "vpc-1", InternetGatewayID: "igw-1", NetworkCIDR: "10.90.0.0/16", PodCIDR: "10.244.0.0/16", ServiceClusterIPRange: "10.96.0.0/16",
		Subnets: []v1alpha1.Subnet{
			{Name: "public-a", Type: v1alpha1.SubnetPublic, Zone: "us-east-1a", ID: "subnet-1", CIDR: "10.90.0.0/24"},
			{Name: "private-a", Type: v1alpha1.SubnetPrivate, Zone: "us-east-1a", CIDR: "10.90.16.0/20", Egress: "nat-01"},
			{Name: "private-b", Type: v1alpha1.SubnetPrivate, Zone: "us-east-1b", CIDR: "10.90.32.0/20", Egress: "eipalloc-01"},
		},
	}
	c.Spec.CloudProvider.AWS = v1alpha1.AWSProvider{
		KMSKeyARN: "arn:key", InstanceProfiles: v1alpha1.Existing{Worker: "w"}, SecurityGroups: v1alpha1.Existing{ControlPlane: "sg-1"},
	}
	return c
}

func facts() unmanaged.Facts {
	return unmanaged.Facts{
		CIDRs: []string{"10.90.0.0/16"}, DNSHostnames: true, DNSSupport: true, InternetGateways: []string{"igw-1"},
		Subnets: map[string]unmanaged.Subnet{
			"subnet-1": {VPC: "vpc-1", Zone: "us-east-1a", CIDR: "10.90.0.0/24", PublicAddresses: true},
			"subnet-2": {VPC: "vpc-1", Zone: "us-east-1a", CIDR: "10.90.16.0/20", Cluster: "demo"}, // the cluster's own, of an earlier apply
			"subnet-3": {VPC: "vpc-2", Zone: "us-east-1a", CIDR: "10.90.32.0/20"},                  // of another VPC
		},
		VPCByResource: map[string]string{"nat-01": "vpc-1", "sg-1": "vpc-1"}, AddressAssociations: map[string]string{"eipalloc-01": ""},
		ProfileRoles: map[string]string{"w": "role"}, KeyStates: map[string]string{"arn:key": "Enabled"},
		Routes: []unmanaged.OwnedRange{{CIDR: "10.1.0.0/16", Owner: "pcx-1"}},
	}
}

// TestCheck: each mismatch is reported at its field, and nothing else.
func TestCheck(t *testing.T) {
	groups := []v1alpha1.InstanceGroup{{Spec: v1alpha1.InstanceGroupSpec{Subnets: []string{"public-a"}}}}
	change := func(f func(*unmanaged.Facts)) unmanaged.Facts {
		x := facts()
		f(&x)
		return x
	}
	subnet := func(f func(*unmanaged.Subnet)) unmanaged.Facts {
		return change(func(x *unmanaged.Facts) {
			s := x.Subnets["subnet-1"]
			f(&s)
			x.Subnets["subnet-1"] = s
		})
	}
	for want, f := range map[string]unmanaged.Facts{
		"":                                facts(),
		`networkID "vpc-1": is not a VPC`: change(func(x *unmanaged.Facts) { x.CIDRs = nil }),
		`networkCIDR "10.90.0.0/16": is not a range of vpc-1`:          change(func(x *unmanaged.Facts) { x.CIDRs = []string{"10.90.0.0/15"} }),
		`networkID "vpc-1": has DNS support or DNS hostnames disabled`: change(func(x *unmanaged.Facts) { x.DNSHostnames = false }),
		`internetGatewayID "igw-1": is not attached`:                   change(func(x *unmanaged.Facts) { x.InternetGateways = nil }),
		`subnets[0].id "subnet-1": is not a subnet`:                    change(func(x *unmanaged.Facts) { delete(x.Subnets, "subnet-1") }),
		`subnets[0].id "subnet-1": is in vpc-2`:                        subnet(func(s *unmanaged.Subnet) { s.VPC = "vpc-2" }),
		`subnets[0].zone "us-east-1a": is not the zone`:                subnet(func(s *unmanaged.Subnet) { s.Zone = "us-east-1b" }),
		`subnets[0].cidr "10.90.0.0/24": is not the range`:             subnet(func(s *unmanaged.Subnet) { s.CIDR = "10.90.1.0/24" }),
		`subnets[0].id "subnet-1": assigns no public`:                  subnet(func(s *unmanaged.Subnet) { s.PublicAddresses = false }),
		`subnets[2].cidr "10.90.32.0/20": overlaps`:                    change(func(x *unmanaged.Facts) { x.Subnets["x"] = unmanaged.Subnet{VPC: "vpc-1", CIDR: "10.90.47.0/24"} }),
		`subnets[1].egress "nat-01": is not an available`:              change(func(x *unmanaged.Facts) { delete(x.VPCByResource, "nat-01") }),
		`subnets[2].egress "eipalloc-01": is not an Elastic IP`:        change(func(x *unmanaged.Facts) { x.AddressAssociations = nil }),
		`podCIDR "10.244.0.0/16": overlaps 10.244.8.0/24`:              change(func(x *unmanaged.Facts) { x.Routes = []unmanaged.OwnedRange{{CIDR: "10.244.8.0/24", Owner: "tgw-1"}} }),
		`serviceClusterIPRange "10.96.0.0/16": overlaps 10.0.0`:        change(func(x *unmanaged.Facts) { x.Routes = []unmanaged.OwnedRange{{CIDR: "10.0.0.0/9", Owner: "vgw-1"}} }),
		`securityGroups.controlPlane "sg-1": is not a security`:        change(func(x *unmanaged.Facts) { x.VPCByResource["sg-1"] = "vpc-2" }),
		`instanceProfiles.worker "w": does not exist`:                  change(func(x *unmanaged.Facts) { x.ProfileRoles = nil }),
		`instanceProfiles.worker "w": has role role, which others than EC2 can assume: arn:aws:iam::123456789012:user/eve, ssm.amazonaws.com; they could pass for machines`: change(func(x *unmanaged.Facts) {
			x.ProfileTrust = map[string][]string{"w": {"arn:aws:iam::123456789012:user/eve", "ssm.amazonaws.com"}}
		}),
		`kmsKeyARN "arn:key": is PendingDeletion`: change(func(x *unmanaged.Facts) { x.KeyStates["arn:key"] = "PendingDeletion" }),
		`kmsKeyARN "arn:key": does not exist`:     change(func(x *unmanaged.Facts) { x.KeyStates = nil }),
	} {
		var got []string
		for _, finding := range unmanaged.Check(cluster(), groups, f) {
			got = append(got, finding.String())
		}
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("want %q, got:\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestAllAtOnce: in an empty account everything is missing, and all of it is reported.
func TestAllAtOnce(t *testing.T) {
	c := cluster()
	c.Spec.Networking.NetworkID = "vpc-1"
	c.Spec.MachineAccess.InstanceConnectSecurityGroup = "sg-1"
	f := unmanaged.Facts{CIDRs: []string{"10.0.0.0/16"}}
	if n := len(unmanaged.Check(c, nil, f)); n != 10 {
		t.Errorf("%d findings, want 10: %v", n, unmanaged.Check(c, nil, f))
	}
}

func TestOverlapping(t *testing.T) {
	ranges := []unmanaged.OwnedRange{{CIDR: "10.0.0.0/8", Owner: "a"}, {CIDR: "10.1.2.0/24", Owner: "b"}, {CIDR: "172.16.0.0/12", Owner: "c"}, {CIDR: "none", Owner: "d"}}
	of := func(cidr string) string {
		found := map[string]bool{}
		for _, r := range unmanaged.FindOverlaps(cidr, ranges) {
			found[r.Owner] = true
		}
		return strings.Join(slices.Sorted(maps.Keys(found)), "")
	}
	got := []string{of("10.1.0.0/16"), of("10.2.0.0/16"), of("172.17.0.0/16"), of("192.168.0.0/16"), of("nonsense")}
	if diff := cmp.Diff([]string{"ab", "a", "c", "", ""}, got); diff != "" {
		t.Error(diff)
	}
}
