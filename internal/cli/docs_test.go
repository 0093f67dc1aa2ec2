// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/slipway-k8s/slipway/internal/cli"
)

const docsDir = "../../docs/cli"

// leaves returns the commands that do something.
func leaves(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	var out []*cobra.Command
	for _, sub := range cmd.Commands() {
		out = append(out, leaves(sub)...)
	}
	return out
}

// pages renders the reference, one page a command.
func pages(t *testing.T, cmd *cobra.Command, into map[string]string) {
	t.Helper()
	if cmd.Hidden || cmd.Name() == "help" {
		return
	}
	var b bytes.Buffer
	if err := doc.GenMarkdown(cmd, &b); err != nil {
		t.Fatal(err)
	}
	into[strings.ReplaceAll(cmd.CommandPath(), " ", "_")+".md"] = b.String()
	for _, sub := range cmd.Commands() {
		pages(t, sub, into)
	}
}

func TestDocsAreInStep(t *testing.T) {
	want := map[string]string{}
	pages(t, cli.Root(cli.Env{}), want)
	if *update {
		if err := os.MkdirAll(docsDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(docsDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := filepath.Glob(docsDir + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if *update && want[filepath.Base(file)] == "" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got[filepath.Base(file)] = string(text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("run go test ./internal/cli -update (-want +got):\n%s", diff)
	}
}
