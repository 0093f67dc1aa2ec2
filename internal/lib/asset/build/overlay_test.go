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
