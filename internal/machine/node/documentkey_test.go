// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestParseDocumentKey finds the group of a document also if its name contains the divider of the key.
func TestParseDocumentKey(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	for _, group := range []string{"workers", "workers-2", "workers-" + sum} {
		key := node.DocumentKey("demo", v1alpha1.RoleWorker, group, sum)
		if gotGroup, gotSum, ok := node.ParseDocumentKey(key); gotGroup != group || gotSum != sum || !ok {
			t.Errorf("%s: %q, %q, %v", key, gotGroup, gotSum, ok)
		}
	}
	for _, key := range []string{"", "a/documents/x.json", "a/documents/-" + sum + ".json", "a/documents/x-" + sum, "a/x-" + sum[1:] + ".json"} {
		if group, _, ok := node.ParseDocumentKey(key); ok {
			t.Errorf("%s: group %q", key, group)
		}
	}
}
