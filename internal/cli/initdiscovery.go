// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

func newInitDiscoveryCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init-discovery s3://BUCKET[/PREFIX]",
		Short: "Create the bucket of a discovery store",
		Long: `Create the bucket for the OpenID Connect documents of clusters, in --region or AWS_REGION. Write its URL into
spec.serviceAccountIssuerDiscovery.discoveryStore of the clusters of that region.

Everybody can read two objects of each cluster: the discovery document and the public keys of service accounts. A bucket that
has other objects, or another policy, is refused. Existing parts are not changed, so the command can be rerun.` +
			exitStatusHelp(),
		Example: "  slipway iam init-discovery s3://example-oidc --region us-east-1 --yes",
		Args:    requireOneArgument("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runInitDiscovery(cmd.Context(), a, args[0])
		},
	}

	a.addYesFlag(cmd)

	return cmd
}

// runInitDiscovery shows the steps that create a discovery store, asks, and runs them.
func runInitDiscovery(ctx context.Context, a *app, url string) error {
	steps, err := store.PlanDiscoveryInit(ctx, url, a.storeOptions(url, ""))
	if err != nil {
		return err
	}

	for _, step := range steps {
		a.printMessage("+ %s", step.Description)
	}

	if err := a.confirm("Create the discovery store " + url + "?"); err != nil {
		return err
	}

	if err := store.RunInitSteps(ctx, steps, func(s store.InitStep) { a.printMessage("%s", s.Outcome()) }); err != nil {
		return err
	}

	a.printMessage("%s is ready", url)

	return nil
}
