// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/destroy"
)

func newDeleteGroupCommand(a *app) *cobra.Command {
	var o clusterOptions
	cmd := &cobra.Command{
		Use:     "group GROUP",
		Aliases: []string{"instancegroup", "ig"},
		Short:   "Delete an instance group and its machines",
		Long: `Show and delete the resources of one instance group in AWS (its machines, auto scaling group, launch template, and its IAM
role if it has one of its own), then its manifest. Nothing else of the cluster changes, also if other changes are pending. The
documents of the control plane name all groups, so the next apply publishes them again. The command can be rerun after a
failure or a kill.

Nodes are not drained: move their pods away first with 'kubectl drain'. The control plane cannot be deleted, nor a group that
the rest of the manifests needs.

Of a group with spec.manager Karpenter only the manifest is deleted: after the next 'slipway apply' Karpenter drains its
machines and ends them. In a cluster that CloudFormation created, only the manifest is deleted: a stack changes as a whole, so the next 'slipway apply'
deletes the machines.` + exitStatusHelp(),
		Example: "  slipway delete group gpu --name demo\n  slipway delete group gpu --name demo --yes",
		Args:    requireOneArgument("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := clusterOfFlag(a, o.name)
			if err != nil {
				return err
			}

			return a.runDeleteGroup(cmd.Context(), destroy.GroupRequest{Cluster: name, Group: args[0]}, o)
		},
	}

	addClusterFlags(cmd, &o)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

// runDeleteGroup deletes one group of a cluster.
func (a *app) runDeleteGroup(ctx context.Context, req destroy.GroupRequest, o clusterOptions) error {
	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	defer a.printCalls(o)
	result, err := destroy.RunGroup(ctx, env, req)
	if err != nil {
		return err
	}

	switch {
	case result.ByKarpenter:
		a.printMessage(
			"the manifest of group %s was deleted; have Karpenter drain and end its machines with: slipway apply %s",
			req.Group,
			req.Cluster,
		)
	case result.ByStack:
		a.printMessage(
			"the manifest of group %s was deleted; delete its machines with: slipway apply %s",
			req.Group,
			req.Cluster,
		)
	case result.Deleted:
		a.printMessage(
			"group %s of cluster %s was deleted; see what else an apply changes with: slipway plan %s",
			req.Group,
			req.Cluster,
			req.Cluster,
		)
	}

	return nil
}
