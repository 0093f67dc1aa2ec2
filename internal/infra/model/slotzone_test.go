// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
)

// TestSlotsStayInTheirZone: the group of each slot has one subnet, in the zone of the slot's volume. So Auto Scaling has no other
// zone to which it could move the machine when it evens out the zones of a group.
func TestSlotsStayInTheirZone(t *testing.T) {
	t.Parallel()
	slots := 0
	for _, x := range rendertest.Topologies() {
		g := x.Graph(t)
		zones := map[string]string{}
		for _, n := range g.Nodes() {
			if volume, ok := n.Resource.(awskind.Volume); ok {
				zones[volume.Tags[awskind.TagSlot]] = volume.Zone
			}
		}

		for _, n := range g.Nodes() {
			group, ok := n.Resource.(awskind.AutoScalingGroup)
			slot := group.Tags[awskind.TagSlot]
			if !ok || slot == "" {
				continue
			}

			slots++
			if len(group.Subnets) != 1 || group.MaxSize != 1 {
				t.Errorf("%s: %s has %d subnets and up to %d machines", x.Name, n.Addr, len(group.Subnets), group.MaxSize)
				continue
			}

			checkZone(t, g, group.Subnets[0], zones[slot])
		}
	}
	if slots == 0 {
		t.Error("no topology has slots")
	}
}

// checkZone checks the zone of a subnet, unless it is an existing one, which the manifest describes.
func checkZone(t *testing.T, g *graph.Graph, ref graph.Ref[awskind.Subnet], want string) {
	t.Helper()
	n := g.Node(ref.Addr())
	if n == nil {
		return
	}

	if subnet, ok := n.Resource.(awskind.Subnet); ok && subnet.Zone != want {
		t.Errorf("%s is in zone %s, and the slot's volume in %s", n.Addr, subnet.Zone, want)
	}
}
