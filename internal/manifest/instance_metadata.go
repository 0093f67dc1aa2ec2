// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"path"
	"regexp"
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// checkInstanceMetadata checks who may use the instance metadata service of a group's machines.
func checkInstanceMetadata(v validator, spec v1alpha1.InstanceGroupSpec) {
	m := spec.InstanceMetadata
	v.checkRange("spec.instanceMetadata.httpPutResponseHopLimit", m.HTTPPutResponseHopLimit, 1, 64)
	if n := m.HTTPPutResponseHopLimit; n > 1 && spec.Role == v1alpha1.RoleControlPlane {
		v.errorf(
			"spec.instanceMetadata.httpPutResponseHopLimit",
			strconv.Itoa(n),
			"use 1",
			"would let pods use the role of the control plane, which reads the cluster's keys",
		)
	}

	seen := map[string]int{}

	for i, name := range m.AllowedCgroups {
		at := fmt.Sprintf("spec.instanceMetadata.allowedCgroups[%d]", i)
		v.checkUnique(at, name, seen, i, "duplicates allowedCgroups[%d]")
		if !cgroupPattern().MatchString(name) || path.Clean("/"+name) != "/"+name {
			v.errorf(
				at,
				name,
				"write its path below the root, such as system.slice/amazon-cloudwatch-agent.service",
				"is not a valid path of a control group",
			)
		}
	}
}

// cgroupPattern matches paths whose parts are names of systemd's units and of the kubelet's control groups.
func cgroupPattern() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.@:\\/-]{1,200}$`) }
