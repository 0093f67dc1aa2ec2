// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // it reads the recipes

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestConformanceIsOfTheDefaultKubernetes: a version's conformance tests are for clusters of that version.
func TestConformanceIsOfTheDefaultKubernetes(t *testing.T) {
	t.Parallel()
	b := newResolvedBuilder(t, Options{})

	tests := b.versions[conformanceModule]
	if shipped := b.versions[defaultKubernetesModule]; tests != shipped {
		t.Errorf("the tests are of Kubernetes %s, and %s is shipped: see assets/README.md", tests, shipped)
	}
}

// TestSampleServerIsOfItsTag: the tests of API aggregation give the server the rights that the version in the tag needs.
func TestSampleServerIsOfItsTag(t *testing.T) {
	t.Parallel()
	b := newResolvedBuilder(t, Options{})
	_, minorAndPatch, _ := strings.Cut(b.versions[sampleServerModule], ".")

	for _, i := range conformanceImages() {
		if strings.Contains(i.Ref, sampleServerModule) && !strings.HasSuffix(i.Ref, ":1."+minorAndPatch) {
			t.Errorf("image %s has the server of version %s", i.Ref, b.versions[sampleServerModule])
		}
	}
}

// TestConformanceIsBuiltOnRequest: the default build leaves the tests, their layers and their images out.
func TestConformanceIsBuiltOnRequest(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{false, true} {
		b := newBuilder(Options{Conformance: want})
		requested, err := b.requestedModules()
		if err != nil {
			t.Fatal(err)
		}

		for _, name := range conformanceSteps() {
			if !b.optional[name] || requested[name] != want {
				t.Errorf("%s: optional %t, requested %t, want %t", name, b.optional[name], requested[name], want)
			}
		}
	}
}

// TestLayersThatAreMissingLeaveTheirImagesOut: the tests can be there while newer packages of Debian are not.
func TestLayersThatAreMissingLeaveTheirImagesOut(t *testing.T) {
	t.Parallel()
	b := newBuilder(Options{})
	all := len(b.images)

	b.leaveOut("nginx")
	if left := all - len(b.images); left != 2 {
		t.Errorf("%d images are left out, want 2", left)
	}
}

// TestConformanceImagesAreServedOnly: an image that only tests need is in the layout and not in the catalogue, and so not
// in the mirrors that are filled from the catalogue.
func TestConformanceImagesAreServedOnly(t *testing.T) {
	src := source(t)
	out := t.TempDir()
	var log bytes.Buffer
	b := small(t, src, out, &log)
	b.images = append(b.images, imageRecipe{
		Name:     "tested",
		Module:   "hello",
		Ref:      "example.com/tested:v1",
		Layers:   []string{"base"},
		Command:  []string{"sh"},
		Unlisted: true,
	})
	result, err := b.buildAll(t.Context())
	needsApt(t, err)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}

	catalog, err := os.ReadFile(result.Catalog)
	if err != nil {
		t.Fatal(err)
	}

	index, err := os.ReadFile(filepath.Join(out, "images", "index.json"))
	if err != nil {
		t.Fatal(err)
	}

	if strings.Contains(string(catalog), "tested") || !strings.Contains(string(catalog), "example.com/base:v1.2.3") {
		t.Errorf("the catalogue:\n%s", catalog)
	}

	if !strings.Contains(string(index), "example.com/tested:v1") {
		t.Errorf("the layout:\n%s", index)
	}
}

// TestTestProgramsAndDataAreBuilt: a module's recipe can name test programs of its dependencies, and files of the pinned
// one.
func TestTestProgramsAndDataAreBuilt(t *testing.T) {
	src := source(t)
	write(t, filepath.Join(src, "hello/dep/checks/checks_test.go"), "package checks\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) { println(\"one\") }\n")
	write(t, filepath.Join(src, "hello/dep/pages/page.html"), "page")
	write(t, filepath.Join(src, "hello/checks.go"), "package main\n\nimport _ \"example.com/hello/checks\"\n")
	write(t, filepath.Join(src, "hello/dep/checks/checks.go"), "package checks\n")

	var log bytes.Buffer
	b := small(t, src, t.TempDir(), &log)
	b.modules[0].Tests = map[string]string{"checks.test": "example.com/hello/checks"}
	b.modules[0].Data = map[string]string{"site/index.html": "pages/page.html"}
	_, err := b.buildAll(t.Context())
	needsApt(t, err)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}

	dir := b.stepDirs["hello"]
	out, err := b.runCommand(t.Context(), dir, filepath.Join(dir, "bin", "checks.test"), "-test.v")
	if err != nil || !strings.Contains(out, "--- PASS: TestOne") {
		t.Errorf("%s, %v", out, err)
	}

	page, err := os.ReadFile(filepath.Join(dir, "data", "site", "index.html"))
	if err != nil || string(page) != "page" {
		t.Errorf("%q, %v", page, err)
	}
}

// TestConformanceImagesAreThoseOfTheTests: the tests ask for these names and tags. Needs the built tests.
func TestConformanceImagesAreThoseOfTheTests(t *testing.T) {
	t.Parallel()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}

	if own := os.Getenv("SLIPWAY_CACHE"); own != "" {
		cache = own
	} else {
		cache = filepath.Join(cache, "slipway")
	}

	programs, err := filepath.Glob(filepath.Join(cache, "assets", "work", conformanceModule+"-*", "bin", "e2e.test"))
	if err != nil || len(programs) == 0 {
		t.Skip("SKIPPED: the conformance tests are not built here (slipway assets build --conformance)")
	}

	b := newBuilder(Options{Env: os.Environ(), Clock: time.Now})
	out, err := b.runCommand(t.Context(), "/", programs[0], "--list-images")
	if err != nil {
		t.Fatal(err)
	}

	wanted := strings.Fields(out)
	for _, i := range conformanceImages() {
		if !slices.Contains(wanted, i.Ref) {
			t.Errorf("no test asks for %s; the tests ask for\n%s", i.Ref, out)
		}
	}
}
