// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // it reads the recipes

import (
	"testing"

	"github.com/Masterminds/semver/v3"
)

// TestLaterEtcdIsTheNextMinorVersion: an upgrade goes from one minor version to the next one.
func TestLaterEtcdIsTheNextMinorVersion(t *testing.T) {
	t.Parallel()
	b := newBuilder(Options{Source: "../../../../assets", LaterEtcd: true})
	for i := range b.modules {
		if err := b.resolveVersion(&b.modules[i]); err != nil {
			t.Fatal(err)
		}
	}

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
