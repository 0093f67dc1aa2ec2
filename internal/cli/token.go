// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/access"
)

// tokenCommand is 'slipway token'.
type tokenCommand struct {
	*app
	name      string
	clusterID string
	endpoint  string
}

func newTokenCommand(a *app) *cobra.Command {
	c := &tokenCommand{app: a}
	cmd := &cobra.Command{
		Use:   "token [NAME]",
		Short: "Print a token of yours for the API of a cluster, as kubectl reads it",
		Long: `Sign a request that proves who you are in AWS, and print it as an ExecCredential. kubectl runs this command whenever it
needs a token, if the kubeconfig comes from 'slipway export kubeconfig --exec'. The token is valid for a minute, for this
cluster only, and only if spec.api.users names your role or user. With --cluster-id nothing is read: neither the state
store nor AWS is called.` + exitStatusHelp(),
		Example: `  slipway token demo
  slipway token --cluster-id 4f1c0d9a7b3e2856 --region us-east-1`,
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args)
		},
	}

	addNameFlag(cmd, &c.name)
	cmd.Flags().StringVar(
		&c.clusterID, "cluster-id", "",
		"random id of the cluster, instead of its name",
	)
	cmd.Flags().StringVar(
		&c.endpoint,
		"sts-endpoint",
		"",
		"URL of STS that the control plane asks, if it is not the regional one",
	)

	return cmd
}

func (c *tokenCommand) run(ctx context.Context, args []string) error {
	if c.clusterID != "" && (len(args) > 0 || c.name != "") {
		return withHint(errors.New("--cluster-id and a name are given"), "give one of them")
	}

	id := c.clusterID
	if id == "" {
		name, err := c.clusterName(args, c.name)
		if err != nil {
			return err
		}

		s, _, err := c.stores().State(ctx)
		if err != nil {
			return err
		}

		if id, err = access.FindClusterID(ctx, s, name); err != nil {
			return err
		}
	}

	cfg, err := c.awsConfig(ctx, "")
	if err != nil {
		return err
	}

	text, err := access.NewExecCredential(ctx, cfg, access.TokenRequest{
		ClusterID: id,
		Endpoint:  c.endpoint,
		Now:       c.Now,
	})
	if err != nil {
		return err
	}

	_, err = c.Stdout.Write(text)

	return err
}
