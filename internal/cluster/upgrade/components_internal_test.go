// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

func TestCheckEtcd(t *testing.T) {
	catalog := func(version string) asset.Catalog {
		return asset.Catalog{Files: []asset.File{{Name: "etcd", Version: version, Arch: "amd64"}, {Name: "runc", Version: "1.5.2", Arch: "amd64"}}}
	}
	for _, tt := range []struct{ from, to, want string }{
		{"3.6.14", "3.6.14", ""},
		{"3.6.14", "3.6.15", ""},
		{"3.6.14", "3.7.3", ""},
		{"3.6.14", "3.6.2", "older than the cluster's 3.6.14"},
		{"3.5.1", "3.7.3", "one minor version at a time"},
		{"3.7.3", "4.0.0", "one minor version at a time"},
		{"3.7.3", "x", "cannot be compared"},
	} {
		changed := ChangedComponents(catalog(tt.from), catalog(tt.to))
		if got := checkEtcd(changed); got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s to %s: %q, want %q", tt.from, tt.to, got, tt.want)
		}

		if (len(changed) == 1) != (tt.from != tt.to) {
			t.Errorf("%s to %s: changed %v", tt.from, tt.to, changed)
		}
	}
}
