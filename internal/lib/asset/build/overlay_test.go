// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // it builds with a recipe of its own

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverlay compiles a file of the recipe's folder in the place of one of a dependency.
func TestOverlay(t *testing.T) {
	t.Parallel()
	src, out := source(t), t.TempDir()
	write(t, filepath.Join(src, "hello/dep/text.go"), "package hello\n\nconst Text = \"upstream's\"\n")
	write(t, filepath.Join(src, "hello/place/text.go"), "package hello\n\nconst Text = \"ours\"\n")
	write(t, filepath.Join(src, "hello/main.go"), "package main\n\nimport \"example.com/hello\"\n\nfunc main() { println(hello.Text) }\n")

	var log bytes.Buffer
	b := small(t, src, out, &log)
	recipe := b.modules[0]
	for _, c := range []struct {
		overlays []sourceOverlay
		want     string
	}{
		{nil, "upstream's"},
		{[]sourceOverlay{{File: "place/text.go", Module: "example.com/hello", Path: "text.go"}}, "ours"},
	} {
		recipe.Overlays = c.overlays
		dir := filepath.Join(out, c.want)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := b.compileModule(t.Context(), recipe, dir); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(filepath.Join(dir, "bin/greet")).CombinedOutput()
		if err != nil || strings.TrimSpace(string(said)) != c.want {
			t.Errorf("with %v the program says %q (%v), want %s", c.overlays, said, err, c.want)
		}
	}

	recipe.Overlays[0].Path = "moved.go"
	if err := b.compileModule(t.Context(), recipe, t.TempDir()); err == nil || !strings.Contains(err.Error(), "moved.go") {
		t.Errorf("an overlay of a file that the module does not have: %v", err)
	}

	recipe.Overlays[0].Module = "example.com/other"
	if err := b.compileModule(t.Context(), recipe, t.TempDir()); err == nil || !strings.Contains(err.Error(), "example.com/other") {
		t.Errorf("an overlay of a module that is not required: %v", err)
	}
}

// TestAddedFileIsEmbedded: a module embeds a file that it does not contain.
func TestAddedFileIsEmbedded(t *testing.T) {
	t.Parallel()
	src, out := source(t), t.TempDir()
	write(t, filepath.Join(src, "hello/dep/cmd/shout/main.go"), "package main\n\nimport _ \"embed\"\n\n//go:embed dist/text\nvar text string\n\nfunc main() { print(text) }\n")
	write(t, filepath.Join(src, "hello/text"), "embedded")

	var log bytes.Buffer
	b := small(t, src, out, &log)
	recipe := b.modules[0]
	recipe.Packages = []string{"example.com/hello/cmd/shout"}
	recipe.Programs = nil
	recipe.Overlays = []sourceOverlay{{File: "text", Module: "example.com/hello", Path: "cmd/shout/dist/text", IsAdded: true}}
	if err := b.compileModule(t.Context(), recipe, out); err != nil {
		t.Fatal(err)
	}

	said, err := exec.Command(filepath.Join(out, "bin/shout")).CombinedOutput()
	if err != nil || string(said) != "embedded" {
		t.Errorf("the program says %q (%v)", said, err)
	}
	for _, path := range []string{filepath.Join(out, "source"), filepath.Join(src, "hello/dep/cmd/shout/dist")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s exists", path)
		}
	}

	recipe.Overlays[0].Path = "cmd/shout/main.go"
	if err := b.compileModule(t.Context(), recipe, t.TempDir()); err == nil || !strings.Contains(err.Error(), "file already exists") {
		t.Errorf("a file that the module has is added: %v", err)
	}
}
