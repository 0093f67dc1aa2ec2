// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // it reads the recipes

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// TestEarlierComponentsAreEarlier: each earlier component has a module with a lower version than the default one, and a
// file after that of the default one.
func TestEarlierComponentsAreEarlier(t *testing.T) {
	t.Parallel()
	b := newBuilder(Options{Source: "../../../../assets"})
	for i := range b.modules {
		if err := b.resolveVersion(&b.modules[i]); err != nil {
			t.Fatal(err)
		}
	}

	position := func(module string) int {
		return slices.IndexFunc(b.files, func(r fileRecipe) bool { return r.Module == module })
	}
	for _, component := range earlierComponents() {
		earlier := earlierModule(component)
		if asset.CompareVersions(b.versions[earlier], b.versions[component]) >= 0 {
			t.Errorf("%s: the earlier version is %s, the default one %s", component, b.versions[earlier], b.versions[component])
		}

		if position(component) < 0 || position(earlier) < position(component) {
			t.Errorf("%s: its file is at %d, that of the earlier version at %d", component, position(component), position(earlier))
		}
	}
}

// TestEarlierComponentsAreBuiltOnRequest: the default build leaves them out.
func TestEarlierComponentsAreBuiltOnRequest(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{false, true} {
		b := newBuilder(Options{EarlierComponents: want})
		requested, err := b.requestedModules()
		if err != nil {
			t.Fatal(err)
		}

		for _, component := range earlierComponents() {
			module := earlierModule(component)
			if !b.optional[module] || requested[module] != want {
				t.Errorf("%s: optional %t, requested %t, want %t", module, b.optional[module], requested[module], want)
			}
		}
	}
}
