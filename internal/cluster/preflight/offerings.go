// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// checkOfferings checks that each zone of each group offers the machine types of the group.
func checkOfferings(ctx context.Context, session *cluster.Session, d *cluster.Desired) (fs diag.Findings) {
	zones := map[string]string{}
	for _, s := range d.Manifests.Cluster.Spec.Networking.Subnets {
		zones[s.Name] = s.Zone
	}

	types := map[string]bool{}

	for _, g := range d.Manifests.Groups {
		for _, kind := range manifest.MachineTypes(g.Spec) {
			types[kind] = true
		}
	}

	offered, err := discovery.ListInstanceTypeZones(ctx, session.Config, slices.Sorted(maps.Keys(types)))
	if err != nil {
		fs.Warnf(
			"aws: instance types",
			"",
			"allow ec2:DescribeInstanceTypeOfferings",
			"could not be checked: %s",
			err,
		)

		return fs
	}

	for _, g := range d.Manifests.Groups {
		for _, zone := range groupZones(g, zones) {
			fs = append(fs, checkOffering(g, zone, offered)...)
		}
	}

	return fs
}

// checkOffering returns the machine types of a group that a zone lacks. If it offers others of the group,
// that is a warning: the group uses those there.
func checkOffering(g v1alpha1.InstanceGroup, zone string, offered map[string][]string) (fs diag.Findings) {
	path := "instancegroup/" + g.Metadata.Name + ": spec."
	types := manifest.MachineTypes(g.Spec)
	lacking := []string(nil)

	for _, kind := range types {
		if !slices.Contains(offered[kind], zone) {
			lacking = append(lacking, kind)
		}
	}

	for _, kind := range lacking {
		hint := "it is offered in: " + strings.Join(slices.Sorted(slices.Values(offered[kind])), ", ")
		if len(lacking) < len(types) {
			fs.Warnf(path+"mixedInstancesPolicy.instances", kind, hint, "is not offered in %s", zone)
			continue
		}

		fs.Errorf(path+"machineType", kind, hint, "is not offered in %s", zone)
	}

	return fs
}

// groupZones returns the zones of a group's subnets.
func groupZones(g v1alpha1.InstanceGroup, zones map[string]string) []string {
	var out []string
	for _, s := range g.Spec.Subnets {
		if z := zones[s]; z != "" && !slices.Contains(out, z) {
			out = append(out, z)
		}
	}

	return out
}
