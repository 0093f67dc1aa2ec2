// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
)

func TestUnfitAddons(t *testing.T) {
	inventories := []applier.Inventory{
		{Name: "any", Version: "1.0.0", Channel: "core", State: applier.Ready},
		{Name: "first", Channel: "core", Target: "0.1.0", State: applier.Failed, KubernetesVersion: "<1.36"},
		{Name: "gone", Version: "1.0.0", Channel: "core", State: applier.Deleted, KubernetesVersion: "<1.36"},
		{Name: "ingress", Version: "2.1.0", Channel: "core", State: applier.Ready, KubernetesVersion: ">=1.34 <1.36"},
		{Name: "wide", Version: "3.0.0", Channel: "core", State: applier.Ready, KubernetesVersion: ">=1.34 <1.38"},
	}
	tests := map[Version]string{
		{1, 35, 9}: "[]",
		{1, 36, 3}: "[first 0.1.0 of channel core (for Kubernetes <1.36) ingress 2.1.0 of channel core (for Kubernetes >=1.34 <1.36)]",
	}
	for target, want := range tests {
		got, err := unfitAddons(inventories, target)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v (%v), want %s", target, got, err, want)
		}
	}

	inventories[0].KubernetesVersion = "about 1.36"
	if _, err := unfitAddons(inventories, Version{1, 36, 3}); err == nil || !strings.Contains(err.Error(), "add-on any: ") {
		t.Errorf("a range that cannot be parsed: %v", err)
	}
}

// TestRefuseUnfitAddons: the upgrade stops before it has changed anything, and names every add-on with a way out.
func TestRefuseUnfitAddons(t *testing.T) {
	p := Proposal{Cluster: "demo", To: Version{1, 36, 3}, Unfit: []UnfitAddon{
		{Name: "first", Version: "0.1.0", Channel: "core", KubernetesVersion: "<1.36"},
		{Name: "ingress", Version: "2.1.0", Channel: "edge", KubernetesVersion: ">=1.34 <1.36"},
	}}
	u := &upgrader{request: Request{Name: "demo"}}
	err := u.refuse(t.Context(), p)
	want := "2 add-ons of cluster demo are not for Kubernetes 1.36.3: first 0.1.0 of channel core (for Kubernetes <1.36), " +
		"ingress 2.1.0 of channel edge (for Kubernetes >=1.34 <1.36)"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if hints := diag.Hints(err); len(hints) != 1 || !strings.Contains(hints[0], "--ignore-addon-versions") {
		t.Errorf("hints %q", hints)
	}
}
