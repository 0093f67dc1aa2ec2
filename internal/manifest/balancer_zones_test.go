// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func TestBalancersServeTheZonesOfTheirTargets(t *testing.T) {
	t.Parallel()

	// withoutEdges removes the Utility or Public subnets of zones.
	withoutEdges := func(zones ...string) func(*manifest.Set) {
		return func(s *manifest.Set) {
			s.Cluster.Spec.Networking.NATGateways = "Single"
			s.Cluster.Spec.Networking.Subnets = slices.DeleteFunc(
				s.Cluster.Spec.Networking.Subnets,
				func(n v1alpha1.Subnet) bool {
					return n.Type != v1alpha1.SubnetPrivate && slices.Contains(zones, n.Zone)
				},
			)
		}
	}
	for name, tc := range map[string]struct {
		change    func(*manifest.Set)
		want      string
		isWarning bool
	}{
		"all zones": {func(*manifest.Set) {}, "", false},
		"one of three": {
			withoutEdges("us-east-1b", "us-east-1c"),
			"are in zones without a subnet of the load balancer of the API: it sends no connections to machines in us-east-1b, us-east-1c",
			true,
		},
		"none": {
			func(s *manifest.Set) {
				withoutEdges("us-east-1b", "us-east-1c")(s)
				for i := range s.Groups {
					s.Groups[i].Spec.Subnets = []string{"private-c"}
				}
			},
			"it sends no connections to machines in us-east-1c",
			false,
		},
		"internal API": {
			func(s *manifest.Set) {
				withoutEdges("us-east-1b", "us-east-1c")(s)
				s.Cluster.Spec.API.LoadBalancer.Type = manifest.LoadBalancerInternal
			},
			"",
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			set, fs := manifest.NewSet("demo", threeZones(), manifest.NewSetOptions{})
			set = manifest.Default(set)
			tc.change(&set)
			fs = append(fs, manifest.Validate(set)...)
			found := ""
			for line := range strings.SplitSeq(render(fs), "\n") {
				if strings.Contains(line, "sends no connections") {
					found = line
				}
			}

			if (found == "") != (tc.want == "") || !strings.Contains(found, tc.want) {
				t.Errorf("findings: got\n%s\nwant %q", render(fs), tc.want)
			}

			if tc.want != "" && (fs.Err() == nil) != tc.isWarning {
				t.Errorf("warning: %v\n%s", fs.Err() == nil, render(fs))
			}
		})
	}
}
