// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/graph"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/store"
)

func newDeleteClusterCommand(a *app) *cobra.Command {
	var o targetOptions
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Destroy a cluster, its data and its state",
		Long: `Show and destroy everything in AWS that bears the cluster's tag, then its objects in the machine store and in the
state store. Machines are waited for: what they use goes after them. The etcd volumes go too, with all that the cluster
holds; its KMS key is scheduled for deletion in 7 days.

What is to go is found in AWS, not in the manifests, so a cluster that was made in part, or whose state is lost, goes as
well. Resources of other clusters are never touched.` + exitStatus(),
		Example: "  slipway delete cluster demo --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}
			return a.deleteCluster(cmd.Context(), name, o)
		},
	}
	targetFlags(cmd, &o)
	a.yesFlag(cmd)
	return cmd
}

// leftover is a store and the keys in it that go with the cluster, in the order in which they go.
type leftover struct {
	store store.Store
	keys  []string
}

func (a *app) deleteCluster(ctx context.Context, name string, o targetOptions) error {
	if !manifest.ValidName(name) {
		return withHint(fmt.Errorf("%q is no cluster's name", name), "a name has lower-case letters, digits and dashes")
	}
	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	set, err := a.loadCluster(ctx, s, name)
	known := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	t, err := a.newTarget(ctx, o, name, set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return err
	}
	defer t.report()
	have, err := t.cloud.Read(ctx)
	if err != nil {
		return err
	}
	p, findings := plan.Make(&graph.Graph{}, have, plan.Options{DestroyData: true})
	if err := findings.Err(); err != nil {
		return err
	}
	left, err := a.leftovers(ctx, s, set, name)
	if err != nil {
		return err
	}
	return t.destroy(ctx, p, left, known)
}

// leftovers are the cluster's objects: first those of machines, then its own, the manifest last, so that a run that is
// killed can be taken up.
func (a *app) leftovers(ctx context.Context, s store.Store, set manifest.Set, name string) ([]leftover, error) {
	var out []leftover
	if set.Cluster.Spec.ConfigStore.Base != "" {
		machine, _, err := a.openMachineStore(ctx, set)
		if err != nil {
			return nil, err
		}
		keys, err := machine.List(ctx, name+"/")
		if err != nil {
			return nil, err
		}
		out = append(out, leftover{store: machine, keys: keys})
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
	return append(out, leftover{store: s, keys: keys}), nil
}

// remove deletes the keys, and before them what has come since they were listed: machines write until they are gone, and
// an etcd marker that is left would keep a later cluster of this name from being born.
func (l leftover) remove(ctx context.Context, name string) error {
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

func (t *target) destroy(ctx context.Context, p plan.Plan, left []leftover, known bool) error { //nolint:revive // known is a fact, no mode
	objects := 0
	for _, l := range left {
		objects += len(l.keys)
	}
	if p.Empty() && objects == 0 {
		if !known {
			return withHint(fmt.Errorf("there is no cluster %s, in AWS or in the state store", t.name), "see: slipway get clusters")
		}
		return nil
	}
	if err := t.a.printPlan(formatTable, t.name, p, nil); err != nil {
		return err
	}
	for _, l := range left {
		t.a.say("and %d objects below %s/%s/", len(l.keys), strings.TrimSuffix(l.store.URL(), "/"), t.name)
	}
	if err := t.a.confirm("Destroy cluster " + t.name + " with everything it holds?"); err != nil {
		return err
	}
	if err := t.walk(ctx, p); err != nil {
		return withHint(err, "what is gone is gone; mend the cause and run it again")
	}
	for _, l := range left {
		if err := l.remove(ctx, t.name); err != nil {
			return err
		}
	}
	t.a.say("cluster %s is gone", t.name)
	return nil
}
