// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// TestLostQuorumWhileBooting: a cluster that has worked has lost its quorum, also while the new machines boot. Its volumes
// have its data, which nobody must delete.
func TestLostQuorumWhileBooting(t *testing.T) {
	for _, c := range []struct {
		name    string
		backups *health.Backups
		cause   string
		hint    string
	}{
		{"new", &health.Backups{}, "no quorum yet: 3 of 3", "wait (--wait 10m): members start"},
		{"unread", nil, "no quorum yet: 3 of 3", "wait (--wait 10m): members start"},
		{"had a backup", &health.Backups{Newest: &backup.Backup{}}, "quorum lost: 3 of 3", "do not delete any"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthyCluster()
			for i := range 3 {
				f.Instances[i].State = "pending"
			}

			withoutAPI(&f, "https://demo-api.example.com:443 does not answer: connection refused")
			f.Targets = nil
			f.Backups = c.backups
			for _, check := range health.Evaluate(f).Checks {
				if check.Name != "quorum" {
					continue
				}

				if !strings.HasPrefix(check.Cause, c.cause) || !strings.Contains(check.Hint, c.hint) {
					t.Errorf("got %q (%s), want %q (%s)", check.Cause, check.Hint, c.cause, c.hint)
				}

				return
			}

			t.Error("the quorum is not checked")
		})
	}
}
