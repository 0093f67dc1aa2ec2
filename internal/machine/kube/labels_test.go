// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestControlPlaneIsNoTarget: the load balancers of Services open the ports of their targets to the internet. Control-plane
// machines that run no pods of users are none.
func TestControlPlaneIsNoTarget(t *testing.T) {
	t.Parallel()

	tainted := config()
	open := config()
	open.Taints = nil
	worker := config()
	worker.ControlPlane = false

	for name, tc := range map[string]struct {
		config kube.Config
		want   bool
	}{
		"control plane":               {tainted, true},
		"control plane with workload": {open, false},
		"worker":                      {worker, false},
	} {
		flags := strings.Join(kube.KubeletFlags(tc.config), " ")
		if got := strings.Contains(flags, kube.LabelExcluded+"="); got != tc.want {
			t.Errorf("%s: excluded %t, want %t: %s", name, got, tc.want, flags)
		}
	}
}

// TestExternalNodeController: the cloud controller manager sets the labels of zone, region and machine type of a node that
// registers with its taint. What Slipway alone knows stays the kubelet's.
func TestExternalNodeController(t *testing.T) {
	t.Parallel()

	for _, external := range []bool{false, true} {
		c := config()
		c.ExternalNodeController = external
		flags := strings.Join(kube.KubeletFlags(c), " ")

		for part, want := range map[string]bool{
			"--cloud-provider=external":         external,
			"topology.kubernetes.io/zone=":      !external,
			"topology.kubernetes.io/region=":    !external,
			"node.kubernetes.io/instance-type=": !external,
			"slipway.dev/group=":                true,
			"--node-ip=":                        true,
		} {
			if strings.Contains(flags, part) != want {
				t.Errorf("external %t: %s is there: %t, want %t: %s", external, part, !want, want, flags)
			}
		}

		body, err := kube.KubeletConfig(c)
		if err != nil || !strings.Contains(string(body), "providerID: aws:///"+c.Zone+"/"+c.InstanceID) {
			t.Errorf("external %t: no provider id, %v:\n%s", external, err, body)
		}
	}
}
