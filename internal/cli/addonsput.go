// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/addons"
)

func newAddonsPutCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	var path string
	cmd := &cobra.Command{
		Use:   "put FILE",
		Short: "Write a document of an add-on into the state store, and sign it",
		Long: `Write FILE into the state store, where channels name it with state://, and sign it. What is signed is the content of FILE, and not
what the store has afterwards: a document that somebody else exchanges meanwhile is refused by the commands that read it.` + exitStatusHelp(),
		Example: "  slipway addons put settings.yaml --name demo\n  slipway addons put build/settings.yaml --path team/settings.yaml --name demo --yes",
		Args:    requireOneArgument("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.putDocument(cmd.Context(), args[0], cmp.Or(path, filepath.Base(args[0])))
		},
	}

	addNameFlag(cmd, &c.name)
	cmd.Flags().StringVar(&path, "path", "", "what channels name it after state:// (default: the name of FILE without its directory)")
	a.addYesFlag(cmd)

	return cmd
}

// putDocument writes a file into the state store, once that is confirmed.
func (c *addonsCommand) putDocument(ctx context.Context, file, path string) error {
	body, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the document of an add-on: %w", err)
	}

	document, err := addons.NewDocument(path, body)
	if err != nil {
		return err
	}

	session, err := c.openOfflineOfFlag(ctx)
	if err != nil {
		return err
	}

	c.printMessage("write %s of cluster %s: sha256 %s", document.Address(), c.name, document.SHA256())
	if err := c.confirm(fmt.Sprintf("Write and sign %s of cluster %s?", document.Address(), c.name)); err != nil {
		return err
	}

	if err := session.PutDocument(ctx, document); err != nil {
		return err
	}

	c.printMessage("%s of cluster %s is written and signed", document.Address(), c.name)

	return nil
}
