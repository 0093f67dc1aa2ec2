// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/manifest/fielddocs"
)

// TestEquivalentsExist: a hint never names a command or a flag that slipway does not have, and no entry hides a
// command that it has.
func TestEquivalentsExist(t *testing.T) {
	root := newRoot(&app{})
	for words, use := range equivalentCommands() {
		if found, rest, err := root.Find(strings.Fields(words)); err == nil && len(rest) == 0 && found != root {
			t.Errorf("%q is a command of slipway: remove it from the table", words)
		}
		for _, typed := range regexp.MustCompile(`slipway [a-z][^,;:]*`).FindAllString(use, -1) {
			checkCommand(t, root, strings.Fields(typed)[1:])
		}
	}
	for words, why := range commandsWithoutEquivalent() {
		if equivalentCommands()[words] != "" {
			t.Errorf("%q is in both tables", words)
		}
		if found, rest, err := root.Find(strings.Fields(words)); err == nil && len(rest) == 0 && found != root {
			t.Errorf("%q is a command of slipway: remove it from the table", words)
		}
		for _, typed := range regexp.MustCompile(`slipway [a-z]+ [^,;:]*`).FindAllString(why, -1) {
			if !strings.HasPrefix(typed, "slipway has") {
				checkCommand(t, root, strings.Fields(typed)[1:])
			}
		}
	}
	for flag, why := range flagsWithoutEquivalent() {
		if len(equivalentFlags()[flag]) > 0 {
			t.Errorf("--%s is in both tables", flag)
		}
		for _, typed := range regexp.MustCompile(`slipway [a-z][^,;:]*`).FindAllString(why, -1) {
			words := strings.Fields(typed)[1:]
			checkCommand(t, root, words)
			if words[0] != "explain" {
				continue
			}
			if _, err := fielddocs.Find(words[1]); err != nil {
				t.Errorf("--%s: %v", flag, err)
			}
		}
	}
	all := map[string]bool{}
	visitCommands(root, func(cmd *cobra.Command) {
		for _, names := range equivalentFlags() {
			for _, name := range names {
				all[name] = all[name] || cmd.Flags().Lookup(name) != nil || root.PersistentFlags().Lookup(name) != nil
			}
		}
	})
	for name, exists := range all {
		if !exists {
			t.Errorf("no command has --%s", name)
		}
	}
}

// checkCommand fails if words, up to the first argument, are not a command, or if it lacks one of their flags.
func checkCommand(t *testing.T, root *cobra.Command, words []string) {
	t.Helper()
	cmd, rest, err := root.Find(words)
	if err != nil || cmd == root && !strings.HasPrefix(words[0], "-") {
		t.Errorf("slipway %s: %v", strings.Join(words, " "), err)
		return
	}
	for _, word := range rest {
		name := strings.TrimLeft(word, "-")
		cmd.InitDefaultHelpFlag()
		known := cmd.Flags().Lookup(name) != nil || root.PersistentFlags().Lookup(name) != nil
		if len(name) == 1 {
			known = cmd.Flags().ShorthandLookup(name) != nil
		}
		if strings.HasPrefix(word, "-") && !known {
			t.Errorf("slipway %s: %s has no flag %s", strings.Join(words, " "), cmd.CommandPath(), word)
		}
		if strings.ToLower(word) == word && !strings.HasPrefix(word, "-") && cmd.HasSubCommands() {
			t.Errorf("slipway %s: %s has no command %s", strings.Join(words, " "), cmd.CommandPath(), word)
		}
	}
}

func visitCommands(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		visitCommands(sub, f)
	}
}
