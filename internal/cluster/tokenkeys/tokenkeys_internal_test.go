// SPDX-License-Identifier: Apache-2.0

package tokenkeys

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// TestCheckStatus: the next step needs all machines of the control plane; workers have none of the keys.
func TestCheckStatus(t *testing.T) {
	machine := func(slot string, step rollout.Step) rollingupdate.MachineStatus {
		return rollingupdate.MachineStatus{Machine: "i-" + slot, Slot: slot, Step: step}
	}
	for want, machines := range map[string][]rollingupdate.MachineStatus{
		"": {machine("a", rollout.StepUpdated), machine("b", rollout.StepUpdated), machine("", rollout.StepPending)},
		"machine i-b of slot b does not have the keys": {machine("a", rollout.StepUpdated), machine("b", rollout.StepPending)},
		"machine i-a of slot a does not have the keys": {machine("a", rollout.StepStarting)},
		"no machines of the control plane":             {machine("", rollout.StepUpdated)},
	} {
		err := checkStatus(rollingupdate.Status{Cluster: "demo", Machines: machines})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
