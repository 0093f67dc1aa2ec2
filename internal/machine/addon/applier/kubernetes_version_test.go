// SPDX-License-Identifier: Apache-2.0

package applier_test

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
)

// checkKubernetesRange: the inventory has the range of versions of Kubernetes that the add-on is for, also after only the
// range of the entry has changed. Upgrades of the cluster read it.
func checkKubernetesRange(f *fixture) {
	for _, versions := range []string{"<1.36", ">=1.34 <1.38", ""} {
		r := release(f.t, v1alpha1.Addon{Name: "ranged", Version: "1.0.0", KubernetesVersion: versions}, 1, configMap("default", "ranged", "1"))
		f.apply(r)
		if got := f.inventory("ranged").KubernetesVersion; got != versions {
			f.t.Errorf("the inventory has the range %q, want %q", got, versions)
		}

		a, counter, _ := f.applier(-1, nil)
		plan, err := a.Plan(f.t.Context(), "test", []applier.Release{r})
		if err != nil {
			f.t.Fatal(err)
		}
		if plan.Addons[0].Update != "" || counter.writes != 0 {
			f.t.Errorf("range %q: another apply would write: %+v", versions, plan.Addons[0])
		}
	}
}
