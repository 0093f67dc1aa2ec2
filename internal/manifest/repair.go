// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The limits of spec.repair.notReadyFor. A kubelet that restarts is Ready again within two minutes.
const (
	minRepairWait = 2 * time.Minute
	maxRepairWait = 24 * time.Hour
)

// The defaults of spec.repair for workers.
const (
	defaultRepairWait    = "10m"
	defaultRepairPercent = 20
)

// defaultRepair sets the limits of automatic repair.
func defaultRepair(g *v1alpha1.InstanceGroup, _ *Set) {
	if g.Spec.Role == v1alpha1.RoleWorker {
		setDefaultText(&g.Spec.Repair.NotReadyFor, defaultRepairWait)
		setDefaultNumber(&g.Spec.Repair.MaxUnhealthyPercent, defaultRepairPercent)
	}
}

// checkRepair checks the automatic repair of a group.
func (v validator) checkRepair(spec v1alpha1.InstanceGroupSpec) {
	r := spec.Repair
	if spec.Role != v1alpha1.RoleWorker {
		// A group whose role was edited still has the defaults of a worker: its role is the one mistake.
		usual := v1alpha1.Repair{NotReadyFor: defaultRepairWait, MaxUnhealthyPercent: defaultRepairPercent}
		if r != (v1alpha1.Repair{}) && r != usual {
			v.errorf("spec.repair", "", "leave it out", "is for workers")
		}

		return
	}

	wait, err := time.ParseDuration(r.NotReadyFor)
	if r.NotReadyFor != "" && (err != nil || wait < minRepairWait || wait > maxRepairWait) {
		v.errorf(
			"spec.repair.notReadyFor",
			r.NotReadyFor,
			fmt.Sprintf("use a duration from %s to %s, such as 10m", minRepairWait, maxRepairWait),
			"is not valid",
		)
	}

	if r.MaxUnhealthyPercent != 0 {
		v.checkRange("spec.repair.maxUnhealthyPercent", r.MaxUnhealthyPercent, 1, 100)
	}
}
