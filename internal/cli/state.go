// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

func newStateCommand(a *app) *cobra.Command {
	return newGroupCommand("state", "Make the state store", groupState, newStateInitCommand(a))
}

func newStateInitCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the state store at --state",
		Long: `Make the state store, which holds the manifests, certificates and sealed keys of clusters.

s3://bucket/prefix gets a bucket that is private, versioned, reached over TLS only and encrypted with a KMS key of its
own (alias/slipway-BUCKET), which also seals the secrets. file:///dir gets a folder whose secrets are sealed with age,
for a key in --state-key (made if it is not there) or a passphrase in SLIPWAY_STATE_PASSPHRASE. Whoever loses that key
loses the clusters' certificate authorities.

What is there already is left alone, so it may be run again.` + exitStatusHelp(),
		Example: `  slipway state init --state s3://example-state/prod --yes
  slipway state init --state file:///home/me/state --state-key /home/me/.config/slipway/state.key --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.stateInit(cmd.Context()) },
	}

	a.addYesFlag(cmd)
	return cmd
}

func (a *app) stateInit(ctx context.Context) error {
	url, err := a.stateURL()
	if err != nil {
		return err
	}

	steps, err := store.PlanInit(ctx, url, a.storeOptions())
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

	if err := store.RunInitSteps(ctx, steps, func(s store.InitStep) { a.printMessage("made %s", s.Description) }); err != nil {
		return err
	}

	a.printMessage("%s is ready", url)

	return nil
}
