// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const editLong = `Open a manifest of the state store in $VISUAL or $EDITOR (default vi). A manifest that is not valid is opened again with
the findings as comments at its top; to give up, leave it unchanged. If it cannot be written, your text is kept in a file
whose name is printed. AWS is changed by 'slipway apply' only. The editor gets no AWS credentials and no other secrets of
the environment. Without a terminal, set EDITOR to a program that edits the file named by its argument.`

func newEditCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"edit",
		"Edit a manifest in your editor",
		groupCluster,
		newEditClusterCommand(a),
		newEditGroupCommand(a),
	)
}

func newEditClusterCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "cluster [NAME]",
		Short:   "Edit the Cluster manifest in your editor",
		Long:    editLong + exitStatusHelp(),
		Example: "  slipway edit cluster demo",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, name)
			if err != nil {
				return err
			}

			return a.runEdit(cmd.Context(), name, "")
		},
	}

	addNameFlag(cmd, &name)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	a.addAssetsFlag(cmd)

	return cmd
}

func newEditGroupCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "group GROUP",
		Aliases: []string{"instancegroup", "ig"},
		Short:   "Edit an InstanceGroup manifest in your editor",
		Long:    editLong + exitStatusHelp(),
		Example: "  slipway edit group workers --name demo",
		Args:    requireOneArgument("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := clusterOfFlag(a, name)
			if err != nil {
				return err
			}

			return a.runEdit(cmd.Context(), name, args[0])
		},
	}

	cmd.Flags().StringVar(&name, "name", "", "the cluster (SLIPWAY_CLUSTER)")
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	a.addAssetsFlag(cmd)

	return cmd
}

// runEdit edits the manifest of a group, or of the cluster if group is empty.
func (a *app) runEdit(ctx context.Context, cluster, group string) error {
	command, err := a.editorCommand()
	if err != nil {
		return err
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	c, err := manifests.LoadChange(ctx, s, cluster, a.catalogSource())
	if err != nil {
		return err
	}

	key := manifest.ClusterKey(cluster)
	if group != "" {
		key = manifest.GroupKey(cluster, group)
	}

	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return clusterstate.NewGroupNotFoundError(ctx, s, cluster, group)
	}

	if err != nil {
		return err
	}

	c.SetETag(key, o.ETag)
	e := manifestEditor{app: a, command: command, change: c, original: o.Body}
	if err := e.createFile(cluster, group); err != nil {
		return err
	}

	err = e.editUntilValid(ctx)
	if err != nil && e.hasWork() {
		return withHint(err, "your text is kept; write it with: slipway replace -f "+e.file+" --name "+cluster)
	}

	return errors.Join(err, os.Remove(e.file))
}
