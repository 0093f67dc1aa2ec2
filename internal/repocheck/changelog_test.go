// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// changeKinds are the kinds of changelog fragments, in the order of CHANGELOG.md.
func changeKinds() []string { return []string{"Security", "Feature", "Change", "Bugfix"} }

// TestChangelog compares CHANGELOG.md with the fragments in changelog/unreleased; -update writes it. A fragment begins with
// a line "Kind: what a user can do now", an empty line, and up to ten lines of text.
func TestChangelog(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "changelog/unreleased/*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no changelog fragments: %v", err)
	}

	byKind := map[string][]string{}

	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		first, rest, _ := strings.Cut(string(content), "\n")
		kind, summary, ok := strings.Cut(first, ": ")

		if !ok || !slices.Contains(changeKinds(), kind) || !strings.HasPrefix(rest, "\n") || strings.TrimSpace(rest) == "" {
			t.Errorf("%s: want a first line \"Kind: summary\" with one of %v, an empty line and a text", path, changeKinds())
			continue
		}

		file := "changelog/unreleased/" + filepath.Base(path)
		byKind[kind] = append(byKind[kind], fmt.Sprintf("- %s ([details](%s))\n", strings.TrimSpace(summary), file))
	}

	var list strings.Builder

	for _, kind := range changeKinds() {
		if len(byKind[kind]) == 0 {
			continue
		}

		slices.Sort(byKind[kind])
		fmt.Fprintf(&list, "\n### %s\n\n%s", kind, strings.Join(byKind[kind], ""))
	}

	checkGenerated(t, "CHANGELOG.md", "unreleased changes", list.String()+"\n")
}
