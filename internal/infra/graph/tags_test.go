// SPDX-License-Identifier: Apache-2.0

package graph_test

import (
	"fmt"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

func TestOwnTag(t *testing.T) {
	marks := graph.EncodeTagKeys([]string{"team", "cost-center"})
	for key, want := range map[string]bool{
		"team": true, "cost-center": true, "slipway.dev/cluster": true, "Team": false, "backup": false, "kubernetes.io/cluster/demo": false,
	} {
		if graph.IsOwnTag(key, marks) != want {
			t.Errorf("%s is ours: %v", key, !want)
		}
	}
	if graph.IsOwnTag("team", "") {
		t.Error("nothing is remembered, and a tag is ours")
	}
}

func TestMarksOfAllTagsFit(t *testing.T) {
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprint("key-", i))
	}
	if n := len(graph.EncodeTagKeys(keys)); n > 256 {
		t.Errorf("%d characters, AWS allows 256", n)
	}
}
