// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The limits of spec.repair.notReadyFor and spec.repair.minMachineAge. A kubelet that restarts is Ready again within two
// minutes, and a machine of the control plane boots and copies a usual database within five.
const (
	minRepairWait = 2 * time.Minute
	minRepairAge  = 5 * time.Minute
	maxRepairWait = 24 * time.Hour
)

// The defaults of spec.repair.
const (
	defaultRepairWait    = "10m"
	defaultRepairPercent = 20
	defaultRepairAge     = "20m"
)

// usualRepair returns the settings of a group of a role whose manifest has none.
func usualRepair(role v1alpha1.Role) v1alpha1.Repair {
	switch role {
	case v1alpha1.RoleWorker:
		return v1alpha1.Repair{NotReadyFor: defaultRepairWait, MaxUnhealthyPercent: defaultRepairPercent}
	case v1alpha1.RoleControlPlane:
		return v1alpha1.Repair{NotReadyFor: defaultRepairWait, MinMachineAge: defaultRepairAge}
	default:
		return v1alpha1.Repair{}
	}
}

// defaultRepair sets the limits of automatic repair.
func defaultRepair(g *v1alpha1.InstanceGroup, _ *Set) {
	usual := usualRepair(g.Spec.Role)
	setDefaultText(&g.Spec.Repair.NotReadyFor, usual.NotReadyFor)
	setDefaultNumber(&g.Spec.Repair.MaxUnhealthyPercent, usual.MaxUnhealthyPercent)
	setDefaultText(&g.Spec.Repair.MinMachineAge, usual.MinMachineAge)
}

// checkRepair checks the automatic repair of a group. A group whose role was edited still has the defaults of its former
// role: its role is the one mistake.
func (v validator) checkRepair(spec v1alpha1.InstanceGroupSpec) {
	r := spec.Repair
	if spec.Role == v1alpha1.RoleBastion {
		usual := []v1alpha1.Repair{{}, usualRepair(v1alpha1.RoleWorker), usualRepair(v1alpha1.RoleControlPlane)}
		if !slices.Contains(usual, r) {
			v.errorf("spec.repair", "", "leave it out", "is not for bastions")
		}

		return
	}

	checkRepairTime(v, "spec.repair.notReadyFor", r.NotReadyFor, minRepairWait)
	if spec.Role == v1alpha1.RoleControlPlane {
		checkRepairTime(v, "spec.repair.minMachineAge", r.MinMachineAge, minRepairAge)
		if r.MaxUnhealthyPercent != 0 && r.MaxUnhealthyPercent != defaultRepairPercent {
			v.errorf(
				"spec.repair.maxUnhealthyPercent",
				strconv.Itoa(r.MaxUnhealthyPercent),
				"leave it out",
				"is for workers: machines of a control plane are replaced one at a time",
			)
		}

		return
	}

	if r.MinMachineAge != "" && r.MinMachineAge != defaultRepairAge {
		v.errorf("spec.repair.minMachineAge", r.MinMachineAge, "leave it out", "is for the control plane")
	}

	if r.MaxUnhealthyPercent != 0 {
		v.checkRange("spec.repair.maxUnhealthyPercent", r.MaxUnhealthyPercent, 1, 100)
	}
}

// checkRepairTime checks a duration of spec.repair. Zero means unset.
func checkRepairTime(v validator, path, text string, least time.Duration) {
	wait, err := time.ParseDuration(text)
	if text == "" || err == nil && wait >= least && wait <= maxRepairWait {
		return
	}

	v.errorf(
		path,
		text,
		fmt.Sprintf("use a duration from %s to %s, such as 10m", least, maxRepairWait),
		"is not valid",
	)
}
