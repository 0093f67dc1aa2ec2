// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestDNS checks the default of the API's DNS name, and that each error is reported at its field.
func TestDNS(t *testing.T) {
	for _, c := range []struct{ kind, zone, name, want string }{
		{"", "", "", ""},
		{"None", "", "", ""},
		{"Private", "k8s.example.com", "", ""},
		{"Public", "k8s.example.com", "k8s.example.com", ""},
		{"Public", "Z0123456789ABCDEFGHIJ", "api.example.com", ""},
		{"public", "", "", "topology.dns.type"},
		{"None", "k8s.example.com", "", "dnsZone"},
		{"", "", "api.example.com", "api.publicName"},
		{"Public", "", "api.example.com", "dnsZone"},
		{"Public", "example", "api.example", "dnsZone"},
		{"Public", "k8s.example.com", "api.my-k8s.example.com", "api.publicName"},
		{"Public", "Z0123456789ABCDEFGHIJ", "", "api.publicName"},
		{"Private", "Z0123456789ABCDEFGHIJ", "api.example.com", "dnsZone"},
		{"Private", "sub.cluster.local", "", "dnsZone"},
	} {
		set, _ := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{})
		s := &set.Cluster.Spec
		s.Topology.DNS.Type, s.DNSZone, s.API.PublicName = c.kind, c.zone, c.name
		set = manifest.Default(set)
		fs := manifest.Validate(set)
		if c.want == "" && len(fs) > 0 || c.want != "" && (len(fs) != 1 || !strings.Contains(fs[0].String(), "spec."+c.want)) {
			t.Errorf("%+v: %v", c, fs)
		}
		if got := set.Cluster.Spec.API.PublicName; c.zone == "k8s.example.com" && c.name == "" && c.kind == "Private" && got != "api.demo.k8s.example.com" {
			t.Errorf("the name of the API is %q", got)
		}
	}
}
