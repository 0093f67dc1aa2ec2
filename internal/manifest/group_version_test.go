// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func TestGroupVersion(t *testing.T) {
	check := func(role v1alpha1.Role, version string) string {
		set, findings := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{})
		if err := findings.Err(); err != nil {
			t.Fatal(err)
		}

		set.Cluster.Spec.KubernetesVersion = "1.36.3"
		for i := range set.Groups {
			if set.Groups[i].Spec.Role == role {
				set.Groups[i].Spec.KubernetesVersion = version
			}
		}

		var out []string
		for _, f := range manifest.Check(manifest.Default(set), nil) {
			if strings.Contains(f.Path, "kubernetesVersion") {
				out = append(out, f.String())
			}
		}

		return strings.Join(out, "\n")
	}

	for version, want := range map[string]string{
		"": "", "1.36.3": "", "1.36.0": "", "1.35.4": "", "1.33.0": "",
		"1.32.9": "is more than 3 minor versions older than the cluster's 1.36.3",
		"2.0.0":  "is newer", "0.36.3": "is more than 3 minor versions older",
		"1.36.4":  "kubelets cannot be newer than the API server",
		"v1.36.3": "is not a valid Kubernetes version", "1.36": "is not a valid Kubernetes version", "1.36.3-rc.1": "is not a valid Kubernetes version",
	} {
		got := check(v1alpha1.RoleWorker, version)
		if got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}

	if got := check(v1alpha1.RoleControlPlane, "1.36.3"); !strings.Contains(got, "is for workers") {
		t.Error(got)
	}
}
