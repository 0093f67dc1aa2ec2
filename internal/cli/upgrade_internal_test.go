// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/upgrade"
)

// TestDescribeUpgrade: an upgrade that was interrupted after the control plane is not one from a version to itself.
func TestDescribeUpgrade(t *testing.T) {
	for _, c := range []struct{ from, want string }{
		{"1.35.4", "Upgrade of cluster demo from Kubernetes 1.35.4 to 1.36.3"},
		{"1.36.3", "Upgrade of cluster demo to Kubernetes 1.36.3, which its control plane has"},
	} {
		from, err := upgrade.ParseVersion(c.from)
		if err != nil {
			t.Fatal(err)
		}
		to, err := upgrade.ParseVersion("1.36.3")
		if err != nil {
			t.Fatal(err)
		}
		p := upgrade.Proposal{Cluster: "demo", From: from, To: to}
		if got := describeUpgrade(p); got != c.want {
			t.Errorf("from %s: %q, want %q", c.from, got, c.want)
		}
	}
}
