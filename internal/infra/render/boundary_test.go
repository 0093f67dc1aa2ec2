// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
)

// TestRolesHaveTheBoundary: the template and the module give each role the permissions boundary.
func TestRolesHaveTheBoundary(t *testing.T) {
	all := 0
	for _, x := range rendertest.Topologies() {
		roles, bounded := 0, 0
		for _, body := range rendered(t, x) {
			roles += strings.Count(body, `"AWS::IAM::Role"`)
			bounded += strings.Count(body, rendertest.Boundary)
		}
		if bounded != 2*roles { // once in the template, once in the module
			t.Errorf("%s: %d roles have the boundary %d times in both outputs", x.Name, roles, bounded)
		}
		all += roles
	}
	if all == 0 {
		t.Error("no topology has roles")
	}
}
