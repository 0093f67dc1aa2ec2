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
