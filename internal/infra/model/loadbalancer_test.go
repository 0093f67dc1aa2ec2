// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// A control-plane machine reaches the API through the internal load balancer, also if that chooses the machine
// itself. AWS does not support that with preserved addresses of clients. With cross-zone load balancing a zone
// that has lost its machine still serves the API.
func TestMachinesReachThemselves(t *testing.T) {
	t.Parallel()

	preserves := map[string]string{}
	crossZone := map[string]string{}
	for _, n := range build(t, input(t, manifest.NewSetOptions{})).Nodes() {
		switch r := n.Resource.(type) {
		case awskind.TargetGroup:
			preserves[string(n.Addr)] = r.Attributes["preserve_client_ip.enabled"]
		case awskind.LoadBalancer:
			crossZone[string(n.Addr)] = r.Attributes["load_balancing.cross_zone.enabled"]
		}
	}

	want := map[string]string{
		"target-group/api":          "true",
		"target-group/api-internal": "false",
		"target-group/join":         "false",
	}
	if diff := cmp.Diff(want, preserves); diff != "" {
		t.Errorf("preserved addresses of clients (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(map[string]string{"load-balancer/api": "true", "load-balancer/internal": "true"}, crossZone); diff != "" {
		t.Errorf("cross-zone load balancing (-want +got):\n%s", diff)
	}
}

// TestDeregistrationIsShort: Auto Scaling keeps a machine until the deregistration delay of its target groups has passed, 300 s
// by default. A slot of the control plane would have no member of etcd for so long.
func TestDeregistrationIsShort(t *testing.T) {
	t.Parallel()

	delays := map[string]string{}
	for _, n := range build(t, with(t, addBastion)).Nodes() {
		if r, ok := n.Resource.(awskind.TargetGroup); ok {
			delays[n.Name] = r.Attributes["deregistration_delay.timeout_seconds"]
		}
	}

	want := map[string]string{"api": "10", "api-internal": "10", "join": "10", "bastion": "10"}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
