// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

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

// TestUpgradeUsesManifests: the limit of drains is that of the manifests unless the flag is set, and the commands of gates run.
func TestUpgradeUsesManifests(t *testing.T) {
	for args, want := range map[string]time.Duration{"": 0, "--drain-timeout=0": -1, "--drain-timeout=5m": 5 * time.Minute} {
		for name, cmd := range map[string]*cobra.Command{
			"upgrade":        newUpgradeClusterCommand(&app{}),
			"rolling-update": newRollingUpdateClusterCommand(&app{}),
		} {
			if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
				t.Fatal(err)
			}

			limit, err := cmd.Flags().GetDuration(drainTimeoutFlag)
			if got := drainTimeout(cmd.Flags(), limit); err != nil || got != want {
				t.Errorf("%s %s: %s, %v, want %s", name, args, got, err, want)
			}
		}
	}

	env := Env{Getenv: func(string) string { return "" }}
	req := upgradeCommand{app: &app{Env: env}}.withTerminal(upgrade.Request{})
	if output, err := req.RunCommand(t.Context(), []string{"echo", "passed"}); err != nil || output != "passed\n" {
		t.Errorf("%q, %v", output, err)
	}
}
