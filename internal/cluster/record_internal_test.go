// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
)

// TestWithoutGroup: a deleted group is no longer compared with a new one of its name.
func TestWithoutGroup(t *testing.T) {
	group := func(name string) string {
		return "apiVersion: slipway.dev/v1alpha1\nkind: InstanceGroup\nmetadata:\n  name: " + name + "\nspec:\n  role: Worker\n"
	}

	got := withoutGroup(group("workers")+"---\n"+group("gpu"), "gpu")
	if !strings.Contains(got, "name: workers") || strings.Contains(got, "gpu") {
		t.Errorf("without gpu:\n%s", got)
	}

	for _, text := range []string{"", group("workers"), "kind: [", group("gpu") + "  later: 1\n"} {
		if got := withoutGroup(text, "gpu"); got != text {
			t.Errorf("withoutGroup(%q) = %q", text, got)
		}
	}
}
