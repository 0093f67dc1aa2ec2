// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/tokenkeys"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

func newRotateTokenKeyCommand(a *app) *cobra.Command {
	var o clusterOptions
	cmd := &cobra.Command{
		Use:   "rotate-token-key [NAME]",
		Short: "Rotate the key that signs tokens of service accounts",
		Long: `Carry out the next step of a rotation of the key with which a cluster signs the tokens of its service accounts. No token is
refused meanwhile, in the cluster and by STS. There are three steps:

  Add      creates a key, with which tokens are verified too
  Promote  has the new key sign; tokens of the old one are still good
  Remove   ends the old key: its tokens are refused, also those in Secrets, which do not expire

After each step, run 'slipway apply' and 'slipway rolling-update cluster'. The next step is refused until all machines of the
control plane have been replaced. Before Remove, wait until the longest-lived tokens have expired; those of pods live for one hour, unless a
pod asks for more.` + exitStatusHelp(),
		Example: "  slipway iam rotate-token-key demo\n  slipway iam rotate-token-key demo --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return runRotateTokenKey(cmd.Context(), a, name, o)
		},
	}

	addClusterFlags(cmd, &o)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

func runRotateTokenKey(ctx context.Context, a *app, name string, o clusterOptions) error {
	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	step, err := tokenkeys.NextStep(ctx, env, name)
	if err != nil {
		return err
	}

	err = tokenkeys.CheckReady(ctx, o.withAgent(a.newClusterEnv()), o.applyRequest(name), step)
	if err != nil {
		return err
	}

	a.printMessage("%s: %s", step, describeRotationStep(step))
	if err := a.confirm("Carry out step " + string(step) + " for cluster " + name + "?"); err != nil {
		return err
	}

	if err := tokenkeys.Run(ctx, env, name, step); err != nil {
		return err
	}

	a.printMessage(
		"step %s of cluster %s is done; give the keys to the machines: slipway apply %s --yes, slipway rolling-update cluster %s --yes",
		step,
		name,
		name,
		name,
	)

	return nil
}

// describeRotationStep returns what a step does.
func describeRotationStep(step pki.RotationStep) string {
	switch step {
	case pki.RotationAdd:
		return "create a key with which tokens of service accounts are verified too"
	case pki.RotationPromote:
		return "sign tokens of service accounts with the new key; those of the old key are still good"
	case pki.RotationRemove:
		return "refuse tokens of the old key, also those in Secrets, which do not expire"
	}

	return string(step)
}
