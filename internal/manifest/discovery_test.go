// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestDiscovery checks the default, and that each error is reported at its field with a fix.
func TestDiscovery(t *testing.T) {
	for _, c := range []struct{ name, discovery, topology, zone, want string }{
		{"demo", "", "", "", ""},
		{"demo", "Tags", "Private", "demo.internal", ""},
		{"ec2", "Tags", "", "", ""},
		{"demo", "DNS", "", "", ""},
		{"demo", "DNS", "Private", "k8s.example.com", ""},
		{"demo", "DNS", "Private", "k8s.demo.internal", ""},
		{"demo", "DNS", "Public", "k8s.demo.internal", ""},
		{"demo", "Tags", "Public", "demo.internal", ""},
		{"demo", "dns", "", "", `spec.etcd.discovery "dns"`},
		{"demo", "DNS", "Private", "demo.internal", `spec.dnsZone "demo.internal": is the zone in which etcd's members find each other`},
		{"demo", "DNS", "Public", "demo.internal", `spec.dnsZone "demo.internal": is the zone in which etcd's members find each other: in the VPC, that private zone would hide the public one`},
		{"ec2", "DNS", "", "", `spec.etcd.discovery "DNS": needs a private zone ec2.internal, which would hide names of AWS (use Tags`},
		{"compute", "DNS", "", "", `spec.etcd.discovery "DNS": needs a private zone compute.internal`},
	} {
		set, _ := manifest.NewSet(c.name, []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{})
		s := &set.Cluster.Spec
		s.Etcd.Discovery = c.discovery
		s.Topology.DNS.Type = c.topology
		s.DNSZone = c.zone
		set = manifest.Default(set)
		fs := manifest.Validate(set)
		if c.want == "" && len(fs) > 0 || c.want != "" && (len(fs) != 1 || !strings.Contains(fs[0].String(), c.want)) {
			t.Errorf("%+v: %v", c, fs)
		}

		if have := set.Cluster.Spec.Etcd.Discovery; c.discovery == "" && have != "Tags" {
			t.Errorf("the default is %q", have)
		}
	}
}

// TestDiscoveryEvents checks what may trigger the function that keeps the records.
func TestDiscoveryEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		discovery string
		events    []string
		set       string // with defaults
		want      string
	}{
		{"DNS", nil, "EventBridge", ""},
		{"Tags", nil, "", ""},
		{"DNS", []string{"SNS"}, "SNS", ""},
		{"DNS", []string{"EventBridge", "SNS"}, "EventBridge SNS", ""},
		{"DNS", []string{"sns"}, "sns", `spec.etcd.discoveryEvents[0] "sns": is not one of EventBridge, SNS`},
		{"DNS", []string{"SNS", "SNS"}, "SNS SNS", `spec.etcd.discoveryEvents[1] "SNS": duplicates discoveryEvents[0]`},
		{"Tags", []string{"SNS"}, "SNS", `spec.etcd.discoveryEvents "SNS": is only for discovery by DNS`},
		{"", []string{"SNS"}, "SNS", `spec.etcd.discoveryEvents "SNS": is only for discovery by DNS`},
	} {
		set, _ := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{})
		set.Cluster.Spec.Etcd.Discovery = c.discovery
		set.Cluster.Spec.Etcd.DiscoveryEvents = c.events
		set = manifest.Default(set)
		fs := manifest.Validate(set)
		if c.want == "" && len(fs) > 0 || c.want != "" && (len(fs) != 1 || !strings.Contains(fs[0].String(), c.want)) {
			t.Errorf("%+v: %v", c, fs)
		}

		if have := strings.Join(set.Cluster.Spec.Etcd.DiscoveryEvents, " "); have != c.set {
			t.Errorf("%+v: with defaults the events are %q", c, have)
		}
	}
}
