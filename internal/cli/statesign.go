// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func newStateSignCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "sign [NAME]",
		Short: "Sign documents of a cluster that were not written by Slipway",
		Long: `Show which documents of a cluster (manifests, asset catalogue, certificates, documents of add-ons) differ from the signed
ones, and sign them as they are shown. Each has its SHA-256: compare it with that of the file that you have written
(sha256sum FILE), since somebody else may have replaced the document before it was shown.

Slipway signs what it writes, and refuses documents of a signed cluster that somebody else has changed, or that were restored
from an earlier version. If the change is yours, such as a restored backup, review it and sign it. Signing needs the right to
decrypt the cluster's keys.` + exitStatusHelp(),
		Example: "  slipway state sign demo\n  slipway state sign demo --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, name)
			if err != nil {
				return err
			}

			return runStateSign(cmd.Context(), a, name)
		},
	}

	addNameFlag(cmd, &name)
	a.addYesFlag(cmd)

	return cmd
}

func runStateSign(ctx context.Context, a *app, name string) error {
	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	review, err := env.ReviewDocuments(ctx, name)
	if err != nil {
		return err
	}

	if review.IsSigned {
		a.printMessage("the documents of cluster %s are signed; signing them again makes them newer than all others", name)
	}

	if review.Earlier != "" {
		printLabelledMessage(a, yellow, "warning:", review.Earlier)
	}

	printLines(a, "documents that are not signed", review.Changes)
	printLines(a, "documents that are as they were signed", review.Unchanged)
	printLines(a, "differences from what was applied last", review.Fields)
	printLines(a, "certificate authorities", review.Authorities)
	if err := a.confirm("Sign the documents of cluster " + name + " as yours?"); err != nil {
		return err
	}

	if err := env.SignDocuments(ctx, review); err != nil {
		return err
	}

	a.printMessage("signed the documents of cluster %s", name)

	return nil
}

// printLines prints lines below a title; nothing without lines.
func printLines(a *app, title string, lines []string) {
	if len(lines) == 0 {
		return
	}

	a.printMessage("%s:", title)
	for _, line := range lines {
		a.printMessage("  %s", line)
	}
}
