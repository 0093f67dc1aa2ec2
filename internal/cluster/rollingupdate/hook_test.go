// SPDX-License-Identifier: Apache-2.0

package rollingupdate_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestHookNames checks that the agent completes the hook that the model creates: neither imports the other.
func TestHookNames(t *testing.T) {
	if node.TerminationHook != model.TerminationHook {
		t.Errorf("the agent completes hook %q, the model creates %q", node.TerminationHook, model.TerminationHook)
	}

	for slot, want := range map[string]string{
		"": model.GroupName("demo", "workers"), "a": model.SlotGroupName("demo", "workers", "a"),
	} {
		if got := node.ScalingGroupName("demo", "workers", slot); got != want {
			t.Errorf("the group of slot %q is %q, want %q", slot, got, want)
		}
	}
}
