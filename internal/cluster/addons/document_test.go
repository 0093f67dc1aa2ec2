// SPDX-License-Identifier: Apache-2.0

package addons_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/addons"
)

// TestNewDocument: a path is what channels may name, is not that of a secret, and the document is not empty: an empty body
// would delete it.
func TestNewDocument(t *testing.T) {
	for _, c := range []struct{ path, body, want string }{
		{"settings.yaml", "x", ""},
		{"team/settings.yaml", "x", ""},
		{"", "x", "is not a path"},
		{"/settings.yaml", "x", "is not a path"},
		{"../cluster.yaml", "x", "is not a path"},
		{"team//settings.yaml", "x", "is not a path"},
		{"team/", "x", "is not a path"},
		{"secrets/registry", "x", "of a registry secret"},
		{"settings.yaml", "", "is empty"},
	} {
		document, err := addons.NewDocument(c.path, []byte(c.body))
		if c.want == "" && (err != nil || document.Address() != "state://"+c.path) {
			t.Errorf("%q: %s, %v", c.path, document.Address(), err)
		}

		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q with %q: %v, want %q", c.path, c.body, err, c.want)
		}
	}
}
