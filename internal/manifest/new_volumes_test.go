// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestDefaultOfNewVolumes: machines create lost volumes unless the manifest says otherwise, or all slots share a role.
func TestDefaultOfNewVolumes(t *testing.T) {
	for _, c := range []struct{ after, profile, want string }{
		{"", "", "10m"}, {"5m", "", "5m"}, {"Never", "", "Never"}, {"", "mine", ""}, {"5m", "mine", "5m"},
	} {
		set, _ := manifest.NewSet("demo", []string{"us-east-1a"}, manifest.NewSetOptions{})
		set.Cluster.Spec.Etcd.RecreateVolumesAfter = c.after
		set.Cluster.Spec.CloudProvider.AWS.InstanceProfiles.ControlPlane = c.profile
		if got := manifest.Default(set).Cluster.Spec.Etcd.RecreateVolumesAfter; got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestTagsOfNewVolumes: the policy by which machines create volumes names all tags, and has a limit.
func TestTagsOfNewVolumes(t *testing.T) {
	for _, c := range []struct {
		tags  int
		after string
		want  string
	}{
		{7, "", "10m"}, {8, "", ""}, {8, "Never", "Never"}, {8, "5m", "which are too long"},
	} {
		set, _ := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{})
		set.Cluster.Spec.Etcd.RecreateVolumesAfter = c.after
		set.Cluster.Spec.Tags = map[string]string{}
		for i := range c.tags { // 356 characters each in the policy
			set.Cluster.Spec.Tags[fmt.Sprintf("k%099d", i)] = strings.Repeat("v", 132)
		}
		set = manifest.Default(set)
		fs := manifest.Validate(set)
		got := set.Cluster.Spec.Etcd.RecreateVolumesAfter
		if isRefused := c.want == "which are too long"; isRefused != (len(fs) > 0) || !isRefused && got != c.want ||
			isRefused && !strings.Contains(fs[0].String(), c.want) {
			t.Errorf("%d tags, %q: %q, %v", c.tags, c.after, got, fs)
		}
	}
}

// TestRecreateVolumesAfter: the time has limits, and machines never create volumes with a role that all slots share.
func TestRecreateVolumesAfter(t *testing.T) {
	for _, c := range []struct{ after, profile, want string }{
		{"", "", ""},
		{"", "mine", ""},
		{"Never", "", ""},
		{"Never", "mine", ""},
		{"2m", "", ""},
		{"24h", "", ""},
		{"119s", "", `spec.etcd.recreateVolumesAfter "119s": is not valid (use 2m to 24h, such as 5m, or Never)`},
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
