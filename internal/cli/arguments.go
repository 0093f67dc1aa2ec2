// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// requireNoArguments rejects arguments of a command that takes none.
func requireNoArguments(cmd *cobra.Command, args []string) error {
	return limitArguments(cmd, args, 0)
}

// allowOneArgument rejects more than one argument.
func allowOneArgument(cmd *cobra.Command, args []string) error {
	return limitArguments(cmd, args, 1)
}

// limitArguments rejects arguments beyond the first most ones.
func limitArguments(cmd *cobra.Command, args []string, most int) error {
	if len(args) <= most {
		return nil
	}

	return withHint(
		fmt.Errorf("%s: unexpected argument %q", cmd.CommandPath(), args[most]),
		"usage: "+cmd.UseLine(),
	)
}

// excludeFlags makes flags of a command exclude each other: the shell completes one of them only, and an invocation
// with two is refused.
func excludeFlags(cmd *cobra.Command, names ...string) {
	cmd.MarkFlagsMutuallyExclusive(names...)
	checkFirst(cmd, func() error {
		var given []string
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}

		if len(given) < 2 {
			return nil
		}

		return withHint(
			fmt.Errorf("%s: %s cannot be used together", cmd.CommandPath(), strings.Join(given, " and ")),
			"see: "+cmd.CommandPath()+" --help",
		)
	})
}

// requireFlag makes a flag of a command required. allowed says which values it takes.
func requireFlag(cmd *cobra.Command, name, allowed string) {
	_ = cmd.MarkFlagRequired(name) // for completion; fails only for an unknown flag
	checkFirst(cmd, func() error {
		if cmd.Flags().Changed(name) {
			return nil
		}

		return withHint(
			fmt.Errorf("%s: --%s is not set: use %s", cmd.CommandPath(), name, allowed),
			"see: "+cmd.CommandPath()+" --help",
		)
	})
}

// checkFirst adds a check before that of a command's arguments, and so before cobra's own checks of flags.
func checkFirst(cmd *cobra.Command, check func() error) {
	arguments := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(); err != nil || arguments == nil {
			return err
		}

		return arguments(cmd, args)
	}
}

// requireOneArgument returns a check for exactly one argument, which is called what in the command's usage.
func requireOneArgument(what string) cobra.PositionalArgs { return requireFirstArgument(what, 1) }

// requireFirstArgument returns a check for an argument, which is called what in the command's usage, and at most so many in all.
func requireFirstArgument(what string, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return withHint(fmt.Errorf("%s: no %s is given", cmd.CommandPath(), what), "usage: "+cmd.UseLine())
		}

		return limitArguments(cmd, args, most)
	}
}

// hintForUnknownCommand returns what to type instead of words, the first of which is not a subcommand of cmd.
func hintForUnknownCommand(cmd *cobra.Command, words []string) string {
	if equivalent := findEquivalent(cmd, words); equivalent != "" {
		return "use: " + equivalent
	}

	if why := explainMissingCommand(cmd, words); why != "" {
		return why
	}

	var names []string

	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}

	if near := diag.Nearest(words[0], names); near != "" {
		return "did you mean: " + cmd.CommandPath() + " " + near
	}

	verb := cmd.Name()
	name := shellQuote(words[0])
	if verb == "validate" || verb == "upgrade" || verb == "rolling-update" {
		return "say what it is: " + cmd.CommandPath() + " cluster " + name
	}

	if verb == "edit" || verb == "delete" {
		return "say what it is: " + cmd.CommandPath() + " cluster " + name + ", or " +
			cmd.CommandPath() + " group " + name + " --name CLUSTER"
	}

	return "see: " + cmd.CommandPath() + " --help"
}

// explainFlagError replaces an error of the flag parser by one that names the flag, the value and what is allowed.
func explainFlagError(cmd *cobra.Command, err error) error {
	help := "see: " + cmd.CommandPath() + " --help"

	// "slipway update cluster --yes": the command does not exist, so its flags are not known either.
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return refuseUnknownCommand(cmd, words)
	}

	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		given := unknown.GetSpecifiedName()
		if letters := unknown.GetSpecifiedShortnames(); len(letters) > 1 { // Terraform's -auto-approve
			name, _, _ := strings.Cut(letters, "=")
			return withHint(
				fmt.Errorf("%s has no flag -%s", cmd.CommandPath(), name),
				hintForUnknownFlag(cmd, name, help),
			)
		}

		return withHint(
			fmt.Errorf("%s has no flag %s", cmd.CommandPath(), spellFlag(given)),
			hintForUnknownFlag(cmd, given, help),
		)
	}

	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := invalid.GetFlag()

		return withHint(
			fmt.Errorf("%s: invalid --%s %q: want %s", cmd.CommandPath(), f.Name, invalid.GetValue(), describeFlagType(f)),
			help,
		)
	}

	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		if usual := missing.GetFlag().DefValue; missing.GetFlag().Value.Type() == "duration" && usual != "0s" {
			usual = strings.TrimSuffix(strings.TrimSuffix(usual, "0s"), "0m")
			help = "leave it out for " + usual + ", or give a value such as --" + missing.GetFlag().Name + " " + usual
		}

		return withHint(
			fmt.Errorf("%s: %s needs a value", cmd.CommandPath(), spellFlag(missing.GetSpecifiedName())),
			help,
		)
	}

	if bad, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return withHint(fmt.Errorf("%s: %q is not a flag", cmd.CommandPath(), bad.GetSpecifiedFlag()), help)
	}

	return withHint(fmt.Errorf("%s: %w", cmd.CommandPath(), err), help)
}

// spellFlag returns a flag as it is typed: one letter has one dash.
func spellFlag(name string) string {
	if len(name) == 1 {
		return "-" + name
	}

	return "--" + name
}

// describeFlagType returns the values that a flag accepts.
func describeFlagType(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64", "count":
		return "a whole number"
	case "bool":
		return "true or false"
	case "duration":
		return "a duration such as 30s, 10m or 2h"
	case "stringSlice", "stringArray":
		return "a list without quotes, such as a,b"
	default:
		return "a value of type " + f.Value.Type()
	}
}
