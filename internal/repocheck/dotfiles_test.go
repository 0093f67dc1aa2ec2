// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestNobodyLivesInTheRepository: a test whose home was the repository left .kube and .config in it, and they were committed.
func TestNobodyLivesInTheRepository(t *testing.T) {
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	known := []string{".ci", ".git", ".gitignore", ".golangci.yml"}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && !slices.Contains(known, e.Name()) {
			t.Errorf("%s is in the repository's root: a program took it for its home; delete it", e.Name())
		}
	}
}
