// SPDX-License-Identifier: Apache-2.0

package addon_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// TestReleases: each object is in one add-on, has its label, and its kind and scope are known without asking an API server.
func TestReleases(t *testing.T) {
	checkReleases(t, values(), "slipway-rules", "slipway-kube-proxy", "slipway-flannel", "slipway-coredns")
	checkReleases(t, vpcValues(), "slipway-rules", "slipway-kube-proxy", "slipway-amazon-vpc-cni", "slipway-coredns")
}

func checkReleases(t *testing.T, v addon.Values, want ...string) {
	t.Helper()
	rendered, err := addon.Render(v)
	if err != nil {
		t.Fatal(err)
	}

	releases, err := addon.Releases(v, "1.36.3")
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	mapper := addon.NewMapper()
	objects := 0
	for _, r := range releases {
		names = append(names, r.Addon.Name)
		objects += len(r.Objects)
		if r.Channel != addon.Channel || r.Addon.Version != "1.36.3" {
			t.Errorf("%+v", r.Addon)
		}

		for _, o := range r.Objects {
			gvk := o.GroupVersionKind()
			mapping, err := mapper.RESTMapping(schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind}, gvk.Version)
			if err != nil {
				t.Errorf("%s: %v", bundle.ReferenceOf(o), err)
				continue
			}

			isNamespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
			if isNamespaced != (o.GetNamespace() != "") || o.GetLabels()[bundle.OwnerLabel] != r.Addon.Name {
				t.Errorf("%s: scope %s, labels %v", bundle.ReferenceOf(o), mapping.Scope.Name(), o.GetLabels())
			}
		}
	}

	if !slices.Equal(names, want) || objects != len(rendered) {
		t.Errorf("add-ons %q with %d objects, want %q with %d", names, objects, want, len(rendered))
	}
}
