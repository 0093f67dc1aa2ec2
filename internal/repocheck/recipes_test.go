// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// place is a folder or file that must know each member of something, and the text that shows it.
type place struct {
	path string // from the root
	text string // what must occur there
	why  string
}

// TestKindsAreKnownEverywhere fails for a kind of AWS resource that one of the places of the recipe in docs/recipes.md
// does not know. The operator's policy is checked by TestDeclaredCalls and TestPolicyIsEnough of internal/infra/iampolicy.
func TestKindsAreKnownEverywhere(t *testing.T) {
	for _, resource := range awskind.AllKinds() {
		kind := resource.Kind()
		name := reflect.TypeOf(resource).Name()

		checkPlaces(t, "kind "+kind.Name, []place{
			{"internal/infra/aws/driver", "driver[awskind." + name + "]", "a driver reads and changes it"},
			{"internal/infra/model", "awskind." + name, "the model adds it to a cluster's graph"},
			{"docs/operations/drift.md", kind.Name + "/", "the drift table has a row for it"},
			{"internal/region/cloudformation/resourcetype", `"` + kind.CloudFormation + `"`, "the region's CloudFormation provisions it"},
			{"docs/architecture.md", "| " + name + " |", "the table of kinds lists it"},
		})
	}
}

// TestKubeletFieldsAreUsed fails for a kubelet setting of the manifest that does not reach the kubelet's configuration, or
// that is not documented.
func TestKubeletFieldsAreUsed(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.Kubelet]()) {
		property, _, _ := strings.Cut(field.Tag.Get("json"), ",")

		checkPlaces(t, "kubelet setting "+property, []place{
			{"internal/machine/kube", "." + field.Name, "the kubelet's configuration has it"},
			{"internal/manifest", field.Name, "it is checked or has a default"},
			{"docs/reference/manifest.md", property, "the reference documents it"},
		})
	}
}

// TestRecipesNameExistingPlaces fails for a path in docs/recipes.md that does not exist, and for a test that is gone.
func TestRecipesNameExistingPlaces(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/recipes.md"))
	if err != nil {
		t.Fatal(err)
	}

	for _, match := range regexp.MustCompile("`((?:internal|api|docs|test|examples|changelog)/[^`<> ]+)`").FindAllSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root, string(match[1]))); err != nil {
			t.Errorf("docs/recipes.md names %s: %v", match[1], err)
		}
	}

	var tests bytes.Buffer

	goFiles(t, func(path string, source []byte) {
		if strings.HasSuffix(path, "_test.go") {
			tests.Write(source)
		}
	})

	for _, match := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllSubmatch(page, -1) {
		if !bytes.Contains(tests.Bytes(), []byte("func "+string(match[1])+"(")) {
			t.Errorf("docs/recipes.md names %s, which does not exist", match[1])
		}
	}
}

// checkPlaces fails for each place that does not contain its text.
func checkPlaces(t *testing.T, subject string, places []place) {
	t.Helper()

	for _, p := range places {
		if !containsText(t, p.path, p.text) {
			t.Errorf("%s: %s does not contain %q: %s (docs/recipes.md)", subject, p.path, p.text, p.why)
		}
	}
}

// containsText reports whether a file, or a non-test file below a folder, contains text.
func containsText(t *testing.T, path, text string) bool {
	t.Helper()

	found := false

	err := filepath.WalkDir(filepath.Join(root, path), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || found || strings.HasSuffix(file, "_test.go") {
			return err
		}

		content, err := os.ReadFile(file)
		found = bytes.Contains(content, []byte(text))

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return found
}
