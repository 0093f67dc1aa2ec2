// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestRecreateVolumesAfter: machines create no volumes unless the manifest says so, and never with a role that all slots share.
func TestRecreateVolumesAfter(t *testing.T) {
	for _, c := range []struct{ after, profile, want string }{
		{"", "", ""},
		{"", "mine", ""},
		{"2m", "", ""},
		{"24h", "", ""},
		{"119s", "", `spec.etcd.recreateVolumesAfter "119s": is not valid (use 2m to 24h, such as 5m)`},
		{"25h", "", `spec.etcd.recreateVolumesAfter "25h": is not valid`},
		{"soon", "", `spec.etcd.recreateVolumesAfter "soon": is not valid`},
		{"5m", "mine", `spec.etcd.recreateVolumesAfter "5m": needs a role for each slot`},
	} {
		set, _ := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{})
		set = manifest.Default(set)
		set.Cluster.Spec.Etcd.RecreateVolumesAfter = c.after
		set.Cluster.Spec.CloudProvider.AWS.InstanceProfiles.ControlPlane = c.profile
		fs := manifest.Validate(set)
		if c.want == "" && len(fs) > 0 || c.want != "" && (len(fs) != 1 || !strings.Contains(fs[0].String(), c.want)) {
			t.Errorf("%+v: %v", c, fs)
		}
	}
}
