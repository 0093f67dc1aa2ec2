// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // the recipes are replaced by small ones, which only the package can do

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// small is a builder over one module of our own, which compiles in a moment.
func small(t *testing.T, source, out string, log *bytes.Buffer) *builder {
	t.Helper()
	b := newBuilder(Options{Source: source, Out: out, Go: "go", Env: os.Environ(), Log: log, Clock: time.Now, FileRepository: "http://mirror/files", ContainerRegistry: "mirror:5000"})
	b.modules = []moduleRecipe{{Name: "hello", Pins: "example.com/hello", Packages: []string{"."}, LDFlags: "-X main.version={version}", Programs: map[string]string{"hello": "greet"}}}
	b.files = []fileRecipe{
		{Name: "greet", Module: "hello", URL: "https://example.com/v{version}/greet-{arch}", Format: asset.FormatBinary, Program: "greet"},
		{Name: "greetings", Module: "hello", URL: "https://example.com/v{version}/greet-{arch}.tgz", Format: asset.FormatArchive, Prefix: "bin/"},
	}
	b.images = []imageRecipe{{Name: "base", Module: "hello", Ref: "example.com/base:v{version}", Layers: []string{"base"}, Entrypoint: []string{"/greet"}}}
	return b
}

func source(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "hello/go.mod"), "module example.com/slipway/hello\n\ngo 1.26.0\n\nrequire example.com/hello v1.2.3\n\nreplace example.com/hello => ./dep\n")
	write(t, filepath.Join(dir, "hello/dep/go.mod"), "module example.com/hello\n")
	write(t, filepath.Join(dir, "hello/main.go"), "package main\n\nvar version string\n\nfunc main() { println(version) }\n")
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func needsApt(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrMissingPackages) || (err != nil && strings.Contains(err.Error(), "apt")) {
		t.Skipf("SKIPPED: this host cannot build the nftables layer: %v", err)
	}
}

func TestASecondRunIsCachedAndAnEditIsNot(t *testing.T) {
	src, out := source(t), t.TempDir()
	var log bytes.Buffer
	first, err := small(t, src, out, &log).buildAll(t.Context())
	needsApt(t, err)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	if diff := cmp.Diff([]string{"hello", "nftables", "files and images"}, first.Built); diff != "" {
		t.Errorf("first run:\n%s", diff)
	}
	before, err := os.ReadFile(first.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	second, err := small(t, src, out, &log).buildAll(t.Context())
	if err != nil || len(second.Built) != 0 {
		t.Errorf("second run built %v, %v", second.Built, err)
	}
	if !strings.Contains(log.String(), "cached") {
		t.Errorf("the log does not contain cached:\n%s", &log)
	}
	write(t, filepath.Join(src, "hello/main.go"), "package main\n\nvar version string\n\nfunc main() { println(version, 2) }\n")
	third, err := small(t, src, out, &log).buildAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hello", "files and images"}, third.Built); diff != "" {
		t.Errorf("after an edit:\n%s", diff)
	}
	if after, _ := os.ReadFile(third.Catalog); bytes.Equal(before, after) {
		t.Error("the catalogue did not change with the program")
	}
	if left, _ := filepath.Glob(filepath.Join(out, "work", "hello-*")); len(left) != 1 {
		t.Errorf("results of older sources stay: %v", left)
	}
}

// TestEarlierKubernetesIsBuiltOnRequest: the default build leaves it out until it was requested once.
func TestEarlierKubernetesIsBuiltOnRequest(t *testing.T) {
	src, out := source(t), t.TempDir()
	write(t, filepath.Join(src, "kubernetes-1.35/go.mod"), "module example.com/slipway/kubernetes-1.35\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.35.4\n\nreplace k8s.io/kubernetes => ./dep\n")
	write(t, filepath.Join(src, "kubernetes-1.35/dep/go.mod"), "module k8s.io/kubernetes\n")
	write(t, filepath.Join(src, "kubernetes-1.35/main.go"), "package main\n\nfunc main() {}\n")
	versions := func(request ...string) []string {
		t.Helper()
		var log bytes.Buffer
		b := small(t, src, out, &log)
		b.Kubernetes = request
		b.modules = append(b.modules, earlierKubernetesRecipes()...)
		b.files = append(b.files, kubernetesFiles(kubernetesModule("1.35"))...)
		result, err := b.buildAll(t.Context())
		needsApt(t, err)
		if err != nil {
			t.Fatalf("%v\n%s", err, &log)
		}

		raw, err := os.ReadFile(result.Catalog)
		if err != nil {
			t.Fatal(err)
		}

		c, err := asset.ParseCatalog(raw)
		if err != nil {
			t.Fatal(err)
		}

		return c.Versions("kubelet")
	}

	if got := versions(); len(got) != 0 {
		t.Errorf("built without a request: %v", got)
	}

	for _, request := range []string{"1.35", "v1.35.4", "1.35.4"} {
		if diff := cmp.Diff([]string{"1.35.4"}, versions(request)); diff != "" {
			t.Errorf("%s:\n%s", request, diff)
		}
	}

	if diff := cmp.Diff([]string{"1.35.4"}, versions()); diff != "" {
		t.Errorf("a later build does not keep it:\n%s", diff)
	}

	b := small(t, src, out, &bytes.Buffer{})
	b.modules = append(b.modules, earlierKubernetesRecipes()...)
	for _, request := range []string{"1.3", "1.34", "1.35.5", ""} {
		b.Kubernetes = []string{request}
		_, err := b.buildAll(t.Context())
		if !errors.Is(err, ErrUnknownKubernetes) || !strings.Contains(err.Error(), "1.35.4") {
			t.Errorf("%q: %v", request, err)
		}
	}
}

func TestTheSameSourceGivesTheSameBytes(t *testing.T) {
	src := source(t)
	var catalogs [2][]byte
	for i := range catalogs {
		var log bytes.Buffer
		r, err := small(t, src, t.TempDir(), &log).buildAll(t.Context())
		needsApt(t, err)
		if err != nil {
			t.Fatal(err)
		}
		if catalogs[i], err = os.ReadFile(r.Catalog); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(catalogs[0]), string(catalogs[1])); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(catalogs[0]), "https://example.com/v1.2.3/greet-") {
		t.Errorf("the catalogue lacks the pinned version:\n%s", catalogs[0])
	}
}

func TestAFailedStepLeavesNothingThatLooksDone(t *testing.T) {
	src, out := source(t), t.TempDir()
	write(t, filepath.Join(src, "hello/main.go"), "package main\n\nfunc main() { broken }\n")
	var log bytes.Buffer
	_, err := small(t, src, out, &log).buildAll(t.Context())
	needsApt(t, err)
	if err == nil || !strings.Contains(err.Error(), "build hello") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v, want the compiler's message", err)
	}
	if _, err := os.Stat(filepath.Join(out, "catalog.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a catalogue: %v", err)
	}
	write(t, filepath.Join(src, "hello/main.go"), "package main\n\nfunc main() {}\n")
	if r, err := small(t, src, out, &log).buildAll(t.Context()); err != nil || r.Built[0] != "hello" {
		t.Errorf("after the fix: %v, %v", r.Built, err)
	}
}

func TestMissingPackagesAreAllNamed(t *testing.T) {
	b := small(t, t.TempDir(), t.TempDir(), &bytes.Buffer{})
	err := b.checkHostPackages(t.Context(), []step{
		{name: "a", key: strings.Repeat("a", 64), commands: map[string]string{"no-such-compiler": "gcc-of-dreams"}, libraries: map[string]string{"no-such-library": "libdream-dev"}},
		{name: "b", key: strings.Repeat("b", 64), commands: map[string]string{"no-such-linker": "ld-of-dreams"}},
	})
	if !errors.Is(err, ErrMissingPackages) || !strings.Contains(err.Error(), "apt-get install --yes gcc-of-dreams ld-of-dreams libdream-dev") {
		t.Errorf("error %v", err)
	}
}

// layersOfOthers returns the layers that have other names than the steps whose results they are made of.
func layersOfOthers() []string {
	names := []string{"agnhost", "nonewprivs", "kitten", "nautilus", vpcCNIInit}
	for _, l := range debianLayers() {
		names = append(names, l.name)
	}

	return names
}

func TestRecipesHoldTogether(t *testing.T) {
	b := newBuilder(Options{Source: "../../../../assets"})
	for _, m := range b.modules {
		if err := b.resolveVersion(&m); err != nil {
			t.Error(err)
		}
		if strings.Contains(m.LDFlags, "{") {
			t.Errorf("%s: a pattern is left in %s", m.Name, m.LDFlags)
		}
	}
	for _, f := range b.files {
		if url := b.expandPattern(f.URL, f.Module); b.versions[f.Module] == "" || strings.Contains(url, "{") {
			t.Errorf("file %s: %s", f.Name, url)
		}
	}
	for _, i := range b.images {
		for _, l := range i.Layers {
			if b.versions[l] == "" && l != "base" && !slices.Contains(layersOfOthers(), l) {
				t.Errorf("image %s: no module builds layer %s", i.Name, l)
			}
		}
	}
}
