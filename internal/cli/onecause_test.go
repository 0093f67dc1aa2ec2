// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestPlanHasOneFindingForOneCause: a manifest with one breaking edit, which a slipway without the check has written,
// gives one finding in a plan, whatever else depends on the field.
func TestPlanHasOneFindingForOneCause(t *testing.T) {
	r := regiontest.Start(t)
	s := newShell(t, r)
	s.must("state", "init", "--yes")
	s.must("create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes", "-q")
	s.must("apply", "demo", "--yes", "-q")
	applied := s.edited("spec:", "spec:")
	for _, tt := range []struct{ name, old, now, want string }{
		{"the VPC's range", "networkCIDR: 10.80.0.0/16", "networkCIDR: 10.90.0.0/16", "contains none of the 6 subnets"},
		{"the range of pods", "podCIDR: 10.244.0.0/16", "podCIDR: 10.200.0.0/16", `spec.networking.podCIDR "10.200.0.0/16": cannot change`},
		{"the range of Services", "serviceClusterIPRange: 10.96.0.0/16", "serviceClusterIPRange: 10.97.0.0/16", `spec.networking.serviceClusterIPRange "10.97.0.0/16": cannot change`},
		{"the DNS domain", "dnsDomain: cluster.local", "dnsDomain: example.internal", `spec.networking.dnsDomain "example.internal": cannot change`},
		{"a smaller etcd volume", "size: 20", "size: 10", `spec.etcd.volume.size "10": cannot shrink`},
		{"a zone that does not exist", "zone: us-east-1c", "zone: us-east-1z", "spec.networking.subnets[5].zone"},
	} {
		text := s.edited(tt.old, tt.now)
		putManifest(t, r, text)
		s.must("state", "sign", "demo", "--yes", "-q")
		code, out, errs := s.run("plan", "demo")
		findings := strings.Count(errs, "error: ") - 1 // the last one counts them
		if code != 1 || findings != 1 || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: exit %d, %d findings, want one with %q:\n%s%s", tt.name, code, findings, tt.want, out, errs)
		}
		putManifest(t, r, applied)
		s.must("state", "sign", "demo", "--yes", "-q")
	}
}
