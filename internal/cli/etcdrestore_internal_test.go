// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/etcdadmin"
)

// TestReplacedDataIsAnnounced: a second restoration deletes the data that the first one has set aside, which may be the newest that
// there is.
func TestReplacedDataIsAnnounced(t *testing.T) {
	if got := describeReplaced(etcdadmin.RestorePlan{Generation: 2}); got != "" {
		t.Errorf("the first restoration: %q", got)
	}

	if got := describeReplaced(etcdadmin.RestorePlan{Generation: 3}); !strings.Contains(got, "is deleted") {
		t.Errorf("the second restoration: %q", got)
	}
}
