// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// slotPlace is the group and the zone of one slot of the control plane.
type slotPlace struct{ group, zone string }

// slotPlaces returns the slots of the control plane in order. They are spread over the group's subnets.
func slotPlaces(s Set) []slotPlace {
	zones := map[string]string{}
	for _, subnet := range s.Cluster.Spec.Networking.Subnets {
		zones[subnet.Name] = subnet.Zone
	}

	var out []slotPlace

	for _, g := range s.Groups {
		if g.Spec.Role != v1alpha1.RoleControlPlane || len(g.Spec.Subnets) == 0 {
			continue
		}

		for i := range g.Spec.MinMachines() {
			out = append(out, slotPlace{g.Metadata.Name, zones[g.Spec.Subnets[i%len(g.Spec.Subnets)]]})
		}
	}

	return out
}

// checkSlotChanges reports a change of the slots of the control plane that cannot be made: the volume of a slot is in its
// zone, and etcd's members have the names of the slots.
func checkSlotChanges(applied, now Set, fs *diag.Findings) {
	before := slotPlaces(applied)
	after := slotPlaces(now)
	if len(before) == 0 || len(after) == 0 {
		return
	}

	at := "instancegroup/" + after[0].group + ": "
	if before[0].group != after[0].group {
		fs.Errorf(at+"metadata.name", after[0].group, "keep the name: the slots of etcd have it",
			"cannot replace %s, whose machines are the members of etcd", before[0].group)

		return
	}

	if len(before) != len(after) && !checkSizeChange(applied, now, fs) {
		return
	}

	var moved []string

	for i := range min(len(before), len(after)) {
		if before[i].zone != after[i].zone {
			moved = append(moved, fmt.Sprintf("%c from %s to %s", 'a'+i, before[i].zone, after[i].zone))
		}
	}

	if len(moved) == 0 {
		return
	}

	g, _ := now.Group(after[0].group)
	subnets := strings.Join(g.Spec.Subnets, ", ")
	if len(before) == 1 && len(after) == 1 {
		fs.Warnf(at+"spec.subnets", subnets, "apply it with: slipway etcd move, which restores a backup there",
			"moves slot %s, and its volume cannot follow", moved[0])

		return
	}

	fs.Errorf(at+"spec.subnets", subnets,
		"keep the order of the subnets; the etcd volume of a slot cannot leave its zone",
		"would move slot %s", strings.Join(moved, ", slot "))
}

// ControlPlaneZones returns the zones of the control plane's slots, in their order.
func ControlPlaneZones(s Set) []string {
	var out []string
	for _, place := range slotPlaces(s) {
		out = append(out, place.zone)
	}

	return out
}

// checkSizeChange reports why the control plane cannot have another size now, and whether it can.
func checkSizeChange(applied, now Set, fs *diag.Findings) bool {
	before := slotPlaces(applied)
	after := slotPlaces(now)
	at := "instancegroup/" + after[0].group + ": spec.minSize"
	size := strconv.Itoa(len(after))
	was := applied.Cluster.Spec.KubernetesVersion

	if was != "" && was != now.Cluster.Spec.KubernetesVersion {
		fs.Errorf(at, size, "upgrade first, then apply the other size: machines of two versions follow no change",
			"cannot change from %d together with spec.kubernetesVersion", len(before))

		return false
	}

	return true
}

// CheckStackChanges returns a finding if the control plane would get another size by CloudFormation, or its only machine another
// zone: a new machine reports success to the stack when every member of etcd works, and the next one is created only then.
func CheckStackChanges(applied, now Set) diag.Findings {
	before := slotPlaces(applied)
	after := slotPlaces(now)
	var fs diag.Findings
	if len(before) > 0 && len(after) > 0 && len(before) != len(after) {
		fs.Errorf("instancegroup/"+after[0].group+": spec.minSize", strconv.Itoa(len(after)),
			"keep it; only clusters that 'slipway apply' creates directly can change their size",
			"cannot change from %d in a CloudFormation stack, which creates machines one after the other", len(before))
	}

	if len(before) == 1 && len(after) == 1 && before[0].zone != after[0].zone {
		fs.Errorf("instancegroup/"+after[0].group+": spec.subnets", after[0].zone,
			"keep it; restore a backup into another cluster: slipway etcd restore --from",
			"cannot leave zone %s in a CloudFormation stack, which would replace the volume", before[0].zone)
	}

	return fs
}
