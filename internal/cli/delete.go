// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
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

// storeObjects is a store and the keys in it that go with the cluster, in the order in which they go.
type storeObjects struct {
	store store.Store
	keys  []string
}

func (a *app) runDeleteCluster(ctx context.Context, name string, o clusterOptions) error {
	if err := checkName(name); err != nil {
		return err
	}

	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}

	if !a.canConfirm() {
		return a.deleteLocked(ctx, nil, s, name, o)
	}

	if err := a.requireCluster(ctx, s, name); errors.Is(err, store.ErrNotFound) {
		// Perhaps it is lost from the state only. Without anything to delete nothing is locked, nor recorded.
		some, err := a.hasRemains(ctx, s, name, o)
		if err != nil {
			return err
		}

		if !some {
			return a.deleteLocked(ctx, nil, s, name, o)
		}
	} else if err != nil {
		return err
	}

	return a.runOperation(
		ctx,
		s,
		name,
		"delete",
		func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			return a.deleteLocked(ctx, op, guarded, name, o)
		},
	)
}

func noClusterAnywhereError(name string) error {
	return withHint(
		fmt.Errorf("there is no cluster %s, in AWS or in the state store", name),
		"see: slipway get clusters",
	)
}

// hasRemains says whether there is anything to delete of a cluster that the state does not know.
func (a *app) hasRemains(ctx context.Context, s store.Store, name string, o clusterOptions) (bool, error) {
	keys, err := s.List(ctx, name+"/")
	if err != nil || len(keys) > 0 {
		return true, err
	}

	t, err := a.newClusterSession(ctx, o, name, "")
	if err != nil {
		return false, err
	}

	have, err := t.cloud.Read(ctx)
	if err != nil {
		return false, err
	}

	r, err := t.cloud.FindLeftovers(ctx, have)
	var d deletionSet

	return len(d.selectDeletable(have, r, o.destroyData)) > 0, err
}

// deleteLocked deletes a cluster under its lock; without one it can only show what would go.
func (a *app) deleteLocked(
	ctx context.Context,
	op *operation.Operation,
	s store.Store,
	name string,
	o clusterOptions,
) error {
	t, d, err := a.planDestroy(ctx, s, name, o)
	if t != nil {
		defer t.printCalls()
	}

	if err != nil {
		return err
	}

	t.operation = op
	t.guardedState = s
	if byStack, err := t.deletesByStack(ctx, d.inState); err != nil {
		return err
	} else if byStack {
		return t.deleteByStack(ctx, op, d)
	}

	return t.destroyLocked(ctx, op, d)
}

func (t *clusterSession) destroyLocked(ctx context.Context, op *operation.Operation, d *desiredState) error {
	d.deletion.objects = guardObjects(op, d.deletion.objects)
	return t.destroyResources(ctx, d)
}

// planDestroy finds all that there is of a cluster, in AWS and in the stores.
func (a *app) planDestroy(
	ctx context.Context,
	s store.Store,
	name string,
	o clusterOptions,
) (*clusterSession, *desiredState, error) {
	set, err := readClusterDocument(ctx, s, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, nil, err
	}

	d := &desiredState{manifests: set, destroy: true, inState: err == nil}
	t, err := a.newClusterSession(ctx, o, name, set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return nil, nil, err
	}

	have, err := t.withRecordZones(ctx, s, set).Read(ctx)
	if err != nil {
		return t, nil, err
	}

	if err := checkDeletionProtection(set, name, have); err != nil {
		return t, nil, err
	}

	remains, err := t.cloud.FindLeftovers(ctx, have)
	if err != nil {
		return t, nil, err
	}

	var findings diag.Findings
	d.plan, findings = plan.Compute(
		&graph.Graph{},
		d.deletion.selectDeletable(have, remains, o.destroyData),
		plan.Options{DestroyData: true},
	)
	if err := findings.Err(); err != nil {
		return t, nil, err
	}

	d.deletion.objects, err = a.listClusterObjects(ctx, s, set, name)

	return t, d, err
}

// readClusterDocument reads the Cluster document alone, and does not ask whether it is valid: all that a deletion needs of it is
// where the cluster is and whether it is protected. A run that was killed has removed the groups already.
func readClusterDocument(ctx context.Context, s store.Store, name string) (manifest.Set, error) {
	if err := checkName(name); err != nil {
		return manifest.Set{}, err
	}

	o, err := s.Get(ctx, manifest.ClusterKey(name))
	if err != nil {
		return manifest.Set{}, err
	}

	set, findings := manifest.Parse(o.Body)

	return manifest.Default(set), findings.Err()
}

// listClusterObjects are the cluster's objects: first those of machines, then its own, the manifest last, so that a run that is
// killed can be taken up.
func (a *app) listClusterObjects(
	ctx context.Context,
	s store.Store,
	set manifest.Set,
	name string,
) ([]storeObjects, error) {
	var out []storeObjects
	if set.Cluster.Spec.ConfigStore.Base != "" {
		machine, _, err := a.openMachineStore(ctx, set)
		if err != nil {
			return nil, err
		}

		keys, err := machine.List(ctx, name+"/")
		if err != nil {
			return nil, err
		}

		out = append(out, storeObjects{store: machine, keys: keys})
	}

	keys, err := s.List(ctx, name+"/")
	if err != nil {
		return nil, err
	}

	last := manifest.ClusterKey(name)
	slices.SortStableFunc(keys, func(x, y string) int {
		switch {
		case x == y:
			return 0
		case x == last:
			return 1
		case y == last:
			return -1
		}

		return strings.Compare(x, y)
	})

	return append(out, storeObjects{store: s, keys: keys}), nil
}

// deleteObjects deletes the keys, and before them what has come since they were listed: machines write until they are gone, and
// an etcd marker that is left would keep a later cluster of this name from being born.
func (l storeObjects) deleteObjects(ctx context.Context, name string) error {
	now, err := l.store.List(ctx, name+"/")
	if err != nil {
		return err
	}

	late := slices.DeleteFunc(now, func(key string) bool { return slices.Contains(l.keys, key) })

	for _, key := range append(late, l.keys...) {
		if err := l.store.Delete(ctx, key); err != nil {
			return err
		}
	}

	return nil
}

func (t *clusterSession) destroyResources(ctx context.Context, d *desiredState) error {
	if d.nothingToDestroy() {
		return noClusterAnywhereError(t.name)
	}

	if d.isEmpty() {
		t.app.printDeletionNotes(d.deletion)
		return nil
	}

	if err := t.app.printPlan(formatTable, t.name, d); err != nil {
		return err
	}

	t.printObjectCounts(d.deletion.objects)
	t.app.printDeletionNotes(d.deletion)
	if err := t.app.confirm("Destroy cluster " + t.name + " with everything it holds?"); err != nil {
		return err
	}

	if err := t.recordStart(ctx, d, d.plan, 0); err != nil {
		return err
	}

	if err := t.executePlan(ctx, d.plan, t.cloud); err != nil {
		return withHint(err, "what is gone is gone; mend the cause and run it again")
	}

	if err := deleteAllObjects(ctx, d.deletion.objects, t.name); err != nil {
		return err
	}

	t.app.printMessage("cluster %s is gone", t.name)

	return nil
}

// printObjectCounts says how many objects go.
func (t *clusterSession) printObjectCounts(left []storeObjects) {
	for _, l := range left {
		t.app.printMessage(
			"and %d objects below %s/%s/",
			len(l.keys),
			strings.TrimSuffix(l.store.URL(), "/"),
			t.name,
		)
	}
}

func deleteAllObjects(ctx context.Context, left []storeObjects, name string) error {
	for _, l := range left {
		if err := l.deleteObjects(ctx, name); err != nil {
			return err
		}
	}

	return nil
}
