// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestModelsArePlayedLong: 'make long' plays every model of the packages of MODEL with its number of histories.
func TestModelsArePlayedLong(t *testing.T) {
	body, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}

	packages := regexp.MustCompile(`(?m)^MODEL = (.*)$`).FindStringSubmatch(string(body))
	pattern := regexp.MustCompile(`-run '([^']*)' \$\(MODEL\)`).FindStringSubmatch(string(body))
	if packages == nil || pattern == nil {
		t.Fatal("the Makefile has no MODEL or no -run of it")
	}

	isPlayed := regexp.MustCompile(strings.ReplaceAll(pattern[1], "$$", "$"))
	start := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	goFiles(t, func(path string, source []byte) {
		isModel := slices.Contains(strings.Fields(packages[1]), "./"+filepath.ToSlash(filepath.Dir(path)))
		if !isModel || !strings.HasSuffix(path, "_test.go") {
			return
		}

		at := start.FindAllSubmatchIndex(source, -1)
		for i, m := range at {
			end := len(source)
			if i+1 < len(at) {
				end = at[i+1][0]
			}

			name := string(source[m[2]:m[3]])
			if strings.Contains(string(source[m[0]:end]), "rapid.Check(") && !isPlayed.MatchString(name) {
				t.Errorf("%s: make long does not play %s: add it to -run in the Makefile", path, name)
			}
		}
	})
}
