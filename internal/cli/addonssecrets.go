// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/addons"
)

// newAddonsSecretsCommand returns the commands for registry secrets.
func newAddonsSecretsCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"secrets",
		"Set, list and delete registry secrets for the namespaces of channels",
		"",
		newAddonsSecretsListCommand(a),
		newAddonsSecretsSetCommand(a),
		newAddonsSecretsDeleteCommand(a),
	)
}

func newAddonsSecretsListCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List the registry secrets of a cluster",
		Long: `List the names of the registry secrets of cluster NAME in the state store. A namespace of a channel gets those that its
registrySecrets names.` + exitStatusHelp(),
		Example: "  slipway addons secrets list demo\n  slipway addons secrets list demo -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.listSecrets(cmd.Context(), args)
		},
	}

	addNameFlag(cmd, &c.name)
	addFormatFlag(cmd, &c.format)

	return cmd
}

// listSecrets lists the registry secrets.
func (c *addonsCommand) listSecrets(ctx context.Context, args []string) error {
	session, err := c.openOffline(ctx, args)
	if err != nil {
		return err
	}

	secrets, err := session.Secrets(ctx)
	if err != nil {
		return err
	}

	if c.format != formatTable {
		if secrets == nil {
			secrets = []addons.RegistrySecret{}
		}

		return c.printValue(c.format, secrets)
	}

	if len(secrets) == 0 {
		c.printMessage("cluster %s has no registry secrets", c.name)
		return nil
	}

	var rows [][]string
	for _, s := range secrets {
		rows = append(rows, []string{s.Name})
	}

	c.printTable([]string{"NAME"}, rows)

	return nil
}

func newAddonsSecretsSetCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "set SECRET -f FILE",
		Short: "Write a registry secret into the state store",
		Long: `Encrypt the credentials of container registries and write them into the state store under the name SECRET. FILE is a config.json as
docker login writes it without a credential store. Namespaces of a channel whose registrySecrets names SECRET get it with the next
'slipway addons apply' or 'slipway addons publish'.` + exitStatusHelp(),
		Example: "  slipway addons secrets set registry --name demo -f config.json\n" +
			"  generate-config | slipway addons secrets set registry --name demo -f - --yes",
		Args: requireOneArgument("SECRET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.setSecret(cmd.Context(), args[0])
		},
	}

	addNameFlag(cmd, &c.name)
	cmd.Flags().StringVarP(&c.file, "filename", "f", "", "the file with the credentials, or - for stdin")
	a.addYesFlag(cmd)

	return cmd
}

// setSecret writes a registry secret, once that is confirmed.
func (c *addonsCommand) setSecret(ctx context.Context, name string) error {
	config, err := c.readSecretFile()
	if err != nil {
		return err
	}

	secret, err := addons.ParseRegistrySecret(name, config)
	if err != nil {
		return err
	}

	session, err := c.openOfflineOfFlag(ctx)
	if err != nil {
		return err
	}

	exists, err := session.HasSecret(ctx, name)
	if err != nil {
		return err
	}

	action := "create"
	if exists {
		action = "replace"
	}

	c.printMessage("%s registry secret %s of cluster %s: credentials for %s",
		action, name, c.name, strings.Join(secret.Registries, ", "))
	if err := c.confirm(fmt.Sprintf("Write registry secret %s of cluster %s?", name, c.name)); err != nil {
		return err
	}

	if err := session.SetSecret(ctx, secret); err != nil {
		return err
	}

	c.printMessage("registry secret %s of cluster %s is written", name, c.name)

	return nil
}

// readSecretFile reads the file of -f.
func (c *addonsCommand) readSecretFile() ([]byte, error) {
	var config []byte
	var err error

	switch c.file {
	case "":
		return nil, withHint(errors.New("no file is given"), "give -f FILE, or -f - for stdin")
	case "-":
		config, err = io.ReadAll(c.Stdin)
	default:
		config, err = os.ReadFile(c.file)
	}

	if err != nil {
		return nil, fmt.Errorf("read the registry secret: %w", err)
	}

	return config, nil
}

// openOfflineOfFlag reads the manifest of the cluster of --name.
func (c *addonsCommand) openOfflineOfFlag(ctx context.Context) (*addons.Session, error) {
	name, err := clusterOfFlag(c.app, c.name)
	if err != nil {
		return nil, err
	}

	return c.openOffline(ctx, []string{name})
}

func newAddonsSecretsDeleteCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "delete SECRET",
		Short: "Delete a registry secret from the state store",
		Long: `Delete a registry secret from the state store. Namespaces keep theirs until their channel is applied without it.` +
			exitStatusHelp(),
		Example: "  slipway addons secrets delete registry --name demo\n  slipway addons secrets delete registry --name demo --yes",
		Args:    requireOneArgument("SECRET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.deleteSecret(cmd.Context(), args[0])
		},
	}

	addNameFlag(cmd, &c.name)
	a.addYesFlag(cmd)

	return cmd
}

// deleteSecret deletes a registry secret, once that is confirmed.
func (c *addonsCommand) deleteSecret(ctx context.Context, name string) error {
	session, err := c.openOfflineOfFlag(ctx)
	if err != nil {
		return err
	}

	exists, err := session.HasSecret(ctx, name)
	if err != nil {
		return err
	}

	if !exists {
		if err := session.Mark(ctx); err != nil {
			return err
		}

		err := fmt.Errorf("cluster %s has no registry secret %s", c.name, name)
		return withHint(err, "list them with: slipway addons secrets list "+c.name)
	}

	if err := c.confirm(fmt.Sprintf("Delete registry secret %s of cluster %s?", name, c.name)); err != nil {
		return err
	}

	if err := session.DeleteSecret(ctx, name); err != nil {
		return err
	}

	c.printMessage("registry secret %s of cluster %s is deleted", name, c.name)

	return nil
}
