// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestErrorCodesOfTheRegion: a service of the local region with the type errorCode has all codes of its errors as constants in
// errors.go, with their source, and creates no error from a text elsewhere. Services without the type are not converted yet.
func TestErrorCodesOfTheRegion(t *testing.T) {
	literal := regexp.MustCompile(`wire\.Errorf\(|wire\.Error\{`)
	source := regexp.MustCompile(`(?s)// errorCode is .*AP(I|IReference).*\ntype errorCode string`)
	converted := map[string]bool{}
	found := map[string][]string{} // places by directory

	goFiles(t, func(path string, content []byte) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if !strings.HasPrefix(dir, "internal/region/") || strings.HasSuffix(path, "_test.go") {
			return
		}

		text := string(content)
		if filepath.Base(path) == "errors.go" && strings.Contains(text, "\ntype errorCode string\n") {
			converted[dir] = true
			if !source.MatchString(text) {
				t.Errorf("%s: the comment of errorCode does not name the API reference that the codes are from", path)
			}

			return
		}

		for _, at := range literal.FindAllStringIndex(text, -1) {
			line := 1 + strings.Count(text[:at[0]], "\n")
			found[dir] = append(found[dir], path+":"+strconv.Itoa(line))
		}
	})

	if len(converted) < 2 {
		t.Fatalf("%d services have the type errorCode: the search in this test is broken", len(converted))
	}

	for dir := range converted {
		for _, place := range found[dir] {
			t.Errorf("%s: use newError or newErrorf with a constant of errors.go", place)
		}
	}
}
