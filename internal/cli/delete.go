// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/destroy"
)

func newDeleteClusterCommand(a *app) *cobra.Command {
	var o clusterOptions
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Delete a cluster, its data and its state",
		Long: `Show and delete all AWS resources with the cluster's tag, then the cluster's objects in the machine store and in the state
store. Machines are deleted first, then the resources that they use. This includes the etcd volumes with all data of the
cluster; the KMS key is scheduled for deletion in 7 days.

Resources that programs in the cluster created are deleted too, shown as "leftover" with their owner: load balancers,
target groups, security groups, network interfaces and machines of cloud controllers. Volumes of claims and their snapshots
are data: they are kept and listed, unless --destroy-data is given.

Resources are found in AWS, not in the manifests, so this also deletes a cluster that was created partly or whose state is
lost. It never touches resources of other clusters. A resource that blocks the deletion is printed with id, kind and owner;
the other steps continue, and the command can be rerun.

A cluster in a CloudFormation stack is deleted with its stack, then what the stack leaves behind. The etcd volumes and their
key, and the cluster's state, are kept unless --destroy-data is given.

The context that 'slipway export kubeconfig' has written for the cluster is removed from your kubeconfig.

A cluster with spec.deletionProtection is not deleted.` + exitStatusHelp(),
		Example: "  slipway delete cluster demo\n  slipway delete cluster demo --yes --destroy-data",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return a.runDeleteCluster(cmd.Context(), name, o)
		},
	}

	addClusterFlags(cmd, &o)
	addTakeOverFlag(cmd, &a.takeOver)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	cmd.Flags().BoolVar(
		&o.destroyData,
		"destroy-data",
		false,
		"also delete volumes of claims and their snapshots; with CloudFormation also the etcd volumes and their key",
	)

	return cmd
}

// runDeleteCluster deletes a cluster.
func (a *app) runDeleteCluster(ctx context.Context, name string, o clusterOptions) error {
	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	defer a.printCalls(o)
	kubeconfig := newForgetter(ctx, a, name)
	outcome, err := destroy.Run(ctx, env, destroy.Request{Name: name, DestroyData: o.destroyData})
	if err != nil {
		return err
	}

	a.printDestroyed(name, outcome)
	if outcome != destroy.Nothing {
		kubeconfig.forget(name)
	}

	return nil
}

// printDestroyed prints how a deletion ended.
func (a *app) printDestroyed(name string, outcome destroy.Outcome) {
	switch outcome {
	case destroy.Deleted:
		a.printMessage("cluster %s was deleted", name)
	case destroy.DataRetained:
		a.printMessage("cluster %s was deleted, except its data", name)
	case destroy.Nothing:
	}
}
