// SPDX-License-Identifier: Apache-2.0

package unmanaged_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
)

// TestZone: each mismatch of an existing zone is reported at its field, and nothing else.
func TestZone(t *testing.T) {
	fits := unmanaged.HostedZone{Name: "example.org", Private: true, VPCs: []string{"vpc-1"}}
	for _, x := range []struct {
		kind, name, want string
		zone             unmanaged.HostedZone
	}{
		{"Private", "api.example.org", "", fits},
		{"Public", "api.example.org", "", unmanaged.HostedZone{Name: "example.org"}},
		{"Private", "example.org", "", fits},
		{"Private", "api.example.org", `dnsZone "Z0123456789": is not a hosted zone`, unmanaged.HostedZone{}},
		{"Public", "api.example.org", `dns.type "Public": does not match Z0123456789: the zone example.org is private`, fits},
		{"Private", "api.example.org", `dns.type "Private": does not match Z0123456789: the zone example.org is public`, unmanaged.HostedZone{Name: "example.org"}},
		{"Private", "api.example.org", `dnsZone "Z0123456789": is not associated with vpc-1`, unmanaged.HostedZone{Name: "example.org", Private: true, VPCs: []string{"vpc-2"}}},
		{"Public", "api.my-example.org", `publicName "api.my-example.org": is not in example.org`, unmanaged.HostedZone{Name: "example.org"}},
		{"Public", "api.example.org", `publicName "api.example.org": has a record`, unmanaged.HostedZone{Name: "example.org", RecordTaken: true}},
	} {
		c, f := cluster(), facts()
		c.Spec.DNSZone, c.Spec.Topology.DNS.Type, c.Spec.API.PublicName = "Z0123456789", x.kind, x.name
		f.HostedZone = x.zone
		got := unmanaged.Check(c, nil, f)
		if x.want == "" && len(got) > 0 || x.want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), x.want)) {
			t.Errorf("want %q, got: %v", x.want, got)
		}
	}
}
