// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// TestWarmPoolsAreAllowed: only the policies of a cluster with a warm pool allow changing one.
func TestWarmPoolsAreAllowed(t *testing.T) {
	for _, warm := range []bool{false, true} {
		in := iampolicy.Input{Partition: "aws", Region: "us-east-1", Account: "123456789012", Cluster: "demo", RolePath: "/r/", KeyAlias: "alias/a", WarmPools: warm}
		var found bool
		for _, p := range iampolicy.BuildPolicies(in) {
			for _, s := range p.Statement {
				found = found || slices.Contains(s.Action, "autoscaling:PutWarmPool") && slices.Contains(s.Action, "autoscaling:DeleteWarmPool")
			}
		}
		if found != warm {
			t.Errorf("with pools %v, allowed %v", warm, found)
		}
	}
}

// TestUnknownTypesAreAllowed: only the policies of a cluster with machine types that Slipway does not know allow asking for
// them, also those of readers.
func TestUnknownTypesAreAllowed(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		for _, reader := range []bool{false, true} {
			in := iampolicy.Input{Partition: "aws", Region: "us-east-1", Account: "123456789012", Cluster: "demo", RolePath: "/r/", UnknownTypes: unknown, ReadOnly: reader}
			found := slices.Contains(iampolicy.AllowedActions(iampolicy.BuildPolicies(in)), "ec2:DescribeInstanceTypes")
			if found != unknown {
				t.Errorf("with unknown types %v, reader %v: allowed %v", unknown, reader, found)
			}
		}
	}
}

// TestEndpointNamesAreAllowed: EC2 asks Route 53's rights for the private names of endpoints. A cluster whose zone Slipway
// creates has them already.
func TestEndpointNamesAreAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints    bool
		names, zones []string
		want         int
	}{
		"no endpoints":            {false, nil, nil, 0},
		"endpoints":               {true, nil, nil, 1},
		"endpoints, and a zone":   {true, []string{"api.example.com"}, nil, 1},
		"endpoints, another zone": {true, []string{"api.example.com"}, []string{"Z1"}, 1},
	} {
		in := iampolicy.Input{
			Partition: "aws", Region: "us-east-1", Account: "123456789012", Cluster: "demo", RolePath: "/r/", KeyAlias: "alias/a",
			InterfaceEndpoints: c.endpoints, DNSNames: c.names, HostedZones: c.zones, CreatesZones: len(c.names) > len(c.zones),
		}
		got := 0
		for _, p := range iampolicy.BuildPolicies(in) {
			for _, s := range p.Statement {
				if slices.Contains(s.Action, "route53:AssociateVPCWithHostedZone") {
					got++
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %d statements, want %d", name, got, c.want)
		}
	}
}
