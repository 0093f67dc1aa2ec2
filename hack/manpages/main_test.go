// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cli"
)

// TestEveryCommandHasAPage: the pages have the commands' texts, sections as headings, and no date of today.
func TestEveryCommandHasAPage(t *testing.T) {
	dir := t.TempDir()
	epoch := func(name string) string {
		if name == "SOURCE_DATE_EPOCH" {
			return "1767225600"
		}
		return ""
	}
	if err := run([]string{dir}, epoch, time.Now); err != nil {
		t.Fatal(err)
	}
	visit(cli.Root(cli.Env{}), func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return
		}
		if !strings.Contains(string(page), "2026") && !strings.Contains(string(page), "Jan") {
			t.Errorf("%s has no date from SOURCE_DATE_EPOCH", name)
		}
		if strings.Contains(cmd.Long, "EXIT STATUS") && !strings.Contains(string(page), ".SH EXIT STATUS\n") {
			t.Errorf("%s has no section EXIT STATUS", name)
		}
	})
	if err := run([]string{dir}, func(string) string { return "soon" }, time.Now); err == nil {
		t.Error("a wrong SOURCE_DATE_EPOCH is accepted")
	}
}

func visit(cmd *cobra.Command, f func(*cobra.Command)) {
	if !cmd.IsAvailableCommand() {
		return
	}
	f(cmd)
	for _, sub := range cmd.Commands() {
		visit(sub, f)
	}
}
