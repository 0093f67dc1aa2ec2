// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

func newStateCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"state",
		"Create the state store, and sign what it has",
		groupState,
		newStateInitCommand(a),
		newStateSignCommand(a),
	)
}

func newStateInitCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create the state store at --state",
		Long: `Create the state store for the manifests, certificates and encrypted keys of clusters.

For s3://bucket/prefix, create a private, versioned bucket that requires TLS and is encrypted with its own KMS key
(alias/slipway-BUCKET), which also encrypts the secrets. For file:///dir, create a directory whose secrets are encrypted with
age, with a key in --state-key (created if missing) or a passphrase in SLIPWAY_STATE_PASSPHRASE. If you lose that key, you
lose the clusters' certificate authorities.

Existing parts are not changed, so the command can be rerun.` + exitStatusHelp(),
		Example: `  slipway state init --state s3://example-state/prod --yes
  slipway state init --state file:///home/me/state --state-key /home/me/.config/slipway/state.key --yes`,
		Args: requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.stateInit(cmd.Context()) },
	}

	a.addYesFlag(cmd)
	return cmd
}

func (a *app) stateInit(ctx context.Context) error {
	url, err := a.stores().StateURL()
	if err != nil {
		return err
	}

	opts := a.storeOptions(url, "")
	opts.ReportWaiting = func(message string) { a.printMessage("%s", message) }
	steps, err := store.PlanInit(ctx, url, opts)
	if err != nil {
		return err
	}

	if len(steps) == 0 {
		a.printMessage("%s is a state store already", url)
		return nil
	}

	for _, step := range steps {
		a.printMessage("+ %s", step.Description)
	}

	if err := a.confirm("Make the state store " + url + "?"); err != nil {
		return err
	}

	if err := store.RunInitSteps(ctx, steps, func(s store.InitStep) { a.printMessage("%s", s.Outcome()) }); err != nil {
		return err
	}

	a.printMessage("%s is ready", url)

	return nil
}
