// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

func TestTagChanges(t *testing.T) {
	set, remove := diffTags(
		awskind.Tags{"Name": "a", "slipway.dev/cluster": "demo", "new": "1"},
		awskind.Tags{"Name": "b", "slipway.dev/cluster": "demo", "slipway.dev/old": "x", "cost-centre": "7"},
	)
	if diff := cmp.Diff(awskind.Tags{"Name": "a", "new": "1"}, set); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"slipway.dev/old"}, remove); diff != "" {
		t.Errorf("only tags of slipway are removed (-want +got): %s", diff)
	}
}
