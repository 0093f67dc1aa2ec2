// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `Slipway creates and operates Kubernetes clusters on AWS.

A cluster is described by manifests, which the state store keeps. 'slipway plan' shows what would change in AWS and
'slipway apply' changes it. Data goes to stdout, messages to stderr. Nothing changes anything without --yes: a command
shows what it would do and, on a terminal, asks. Elsewhere it ends there, with exit code 0.

FIRST STEPS
  export SLIPWAY_STATE=s3://example-state         # or --state, or 'slipway config --help'
  slipway state init                              # creates it, once
  slipway create cluster demo --zones us-east-1a,us-east-1b,us-east-1c
  slipway apply demo                              # shows the plan, asks, and applies it
  slipway validate cluster demo --wait 10m
  slipway export kubeconfig demo                  # for kubectl
  slipway edit group workers --name demo          # then plan, apply and 'rolling-update cluster'
  slipway delete cluster demo
  slipway demo                                    # all of that here, without an AWS account

ENVIRONMENT
  SLIPWAY_STATE             the state store, as --state
  SLIPWAY_STATE_KEY         the key file of a store in a folder, as --state-key
  SLIPWAY_STATE_OWNER       the AWS account that owns its bucket, as --state-owner
  SLIPWAY_STATE_PASSPHRASE  its passphrase, where there is no key file
  SLIPWAY_CLUSTER           the cluster, where NAME is left out
  SLIPWAY_ASSETS            the asset catalogue, as --assets
  SLIPWAY_OUTPUT            table, json or yaml, as -o
  SLIPWAY_CONFIG            the file with your defaults; see 'slipway config --help'
  SLIPWAY_SSH_PROXY         how 'slipway ssh' reaches private addresses, as ssh's ProxyCommand
  SLIPWAY_LOCK_LEASE        how long a killed command keeps a cluster locked (default 1m)
  SLIPWAY_CACHE             the cache folder (default ${XDG_CACHE_HOME:-~/.cache}/slipway)
  NO_COLOR                  no colour, as --no-color
  AWS_*                     as in every AWS SDK: AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE, ...`

// The groups of commands in the help.
const (
	groupCluster = "cluster"
	groupState   = "state"
	groupLocal   = "local"
)

// newRoot returns the command tree. To add a command, write newXCommand(a *app) *cobra.Command in a file of
// its own, with Long, Example and RunE, and add it to addCommands.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:               "slipway",
		Short:             "Create and operate Kubernetes clusters on AWS",
		Long:              rootLong,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Version:           buildVersion(a.Version).Version,
		Args:              refuseUnknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: configViewer{a}.prepare,
	}

	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(explainFlagError)
	root.SetVersionTemplate("slipway {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(
		&a.stateFlag,
		"state",
		"",
		"state store: file:///dir or s3://bucket/prefix (SLIPWAY_STATE)",
	)

	flags.StringVar(
		&a.stateKeyFlag,
		"state-key",
		"",
		"key file of a file:// state store (SLIPWAY_STATE_KEY)",
	)

	flags.StringVar(
		&a.stateOwnerFlag,
		"state-owner",
		"",
		"AWS account that owns the bucket of the state store (default: yours) (SLIPWAY_STATE_OWNER)",
	)

	flags.StringVar(&a.region, "region", "", "AWS region (default: as the AWS SDK finds it)")
	flags.StringVar(&a.profile, "profile", "", "AWS profile (default: as the AWS SDK finds it)")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print no progress and no notes, only results and errors")
	flags.BoolVar(&a.noColor, "no-color", false, "do not colour the output (NO_COLOR)")
	root.AddGroup(
		&cobra.Group{ID: groupCluster, Title: "Clusters:"},
		&cobra.Group{ID: groupState, Title: "The state store:"},
		&cobra.Group{ID: groupLocal, Title: "On this machine:"},
	)

	root.SetHelpCommandGroupID(groupLocal)
	addCommands(a, root)
	completer{a}.addCompletions(root)

	return root
}

// newGroupCommand returns a command that only has subcommands.
func newGroupCommand(use, short, id string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		GroupID: id,
		Args:    refuseUnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(subs...)
	return cmd
}

// refuseUnknownCommand returns an error for an unknown subcommand, with the most similar one as a hint.
func refuseUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}

	err := fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])

	return withHint(err, hintForUnknownCommand(cmd, args))
}

// addYesFlag adds --yes to a command that changes something.
func (a *app) addYesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "confirm without asking")
}

// addLockFlag adds --lock-timeout to a command that takes a cluster's lock.
func (a *app) addLockFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(
		&a.lockTimeout,
		"lock-timeout",
		0,
		"how long to wait for the cluster's lock, such as 2m",
	)
}

// addAssetsFlag adds --assets to a command that reads the asset catalogue.
func (a *app) addAssetsFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(
		&a.assets,
		"assets",
		"",
		"asset catalogue, a path or URL (SLIPWAY_ASSETS; default: the built-in one)",
	)
}

// catalogSource returns --assets, else SLIPWAY_ASSETS; empty: the catalogue that is embedded or pinned.
func (a *app) catalogSource() string { return a.flagOrEnv(a.assets, "SLIPWAY_ASSETS") }

// exitStatusHelp returns the section of the help that lists exit codes; extra are further ones.
func exitStatusHelp(extra ...string) string {
	return "\n\nEXIT STATUS\n  0  success\n  1  error" + strings.Join(
		append([]string{""}, extra...),
		"\n  ",
	)
}

// Root returns the command tree, for the generated reference.
func Root(env Env) *cobra.Command { return newRoot(&app{Env: env}) }

// ManualRoot returns the command tree for man pages: sections of the help texts are headings, and lines with an
// indent keep their line breaks.
func ManualRoot(env Env) *cobra.Command {
	root := Root(env)
	formatForManual(root)

	return root
}

func formatForManual(cmd *cobra.Command) {
	cmd.Long = manualMarkdown(cmd.Long)
	for _, sub := range cmd.Commands() {
		formatForManual(sub)
	}
}

// manualMarkdown returns a help text as the Markdown that a man page is generated from: a line in capitals is a
// heading, and a line with an indent of two spaces is text as it is.
func manualMarkdown(help string) string {
	var out strings.Builder

	for line := range strings.Lines(help) {
		text := strings.TrimRight(line, "\n")
		switch {
		case text != "" && text == strings.ToUpper(text) && !strings.HasPrefix(text, " "):
			out.WriteString("# " + text + "\n\n")
		case strings.HasPrefix(text, "  "):
			out.WriteString("  " + text + "\n")
		default:
			out.WriteString(text + "\n")
		}
	}

	return out.String()
}
