// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // it reads the recipes

import (
	"slices"
	"testing"

	"github.com/Masterminds/semver/v3"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// TestEarlierComponentsAreEarlier: each earlier component has a module with a lower version than the default one, and a
// file after that of the default one.
func TestEarlierComponentsAreEarlier(t *testing.T) {
	t.Parallel()
	b := newResolvedBuilder(t, Options{})

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

// TestLaterEtcdIsTheNextMinorVersion: an upgrade goes from one minor version to the next one.
func TestLaterEtcdIsTheNextMinorVersion(t *testing.T) {
	t.Parallel()
	b := newResolvedBuilder(t, Options{LaterEtcd: true})

	now := semver.MustParse(b.versions["etcd"])
	later := semver.MustParse(b.versions[laterEtcdModule])
	if later.Major() != now.Major() || later.Minor() != now.Minor()+1 {
		t.Errorf("the default version is %s, the later one %s", now, later)
	}

	requested, err := b.requestedModules()
	if err != nil || !b.optional[laterEtcdModule] || !requested[laterEtcdModule] {
		t.Errorf("optional %t, requested %t, %v", b.optional[laterEtcdModule], requested[laterEtcdModule], err)
	}
}

// newResolvedBuilder returns a builder of the assets of this repository that knows the versions of all modules.
func newResolvedBuilder(t *testing.T, o Options) *builder {
	t.Helper()
	o.Source = "../../../../assets"
	b := newBuilder(o)
	for i := range b.modules {
		if err := b.resolveVersion(&b.modules[i]); err != nil {
			t.Fatal(err)
		}
	}

	return b
}
