// SPDX-License-Identifier: Apache-2.0

package destroy

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// deleteObjectSet deletes the keys, and those that were written since they were listed: machines write until
// they are terminated, and a remaining etcd marker would prevent etcd of a later cluster of this name from being
// bootstrapped. The last key, the Cluster document in the state store, is deleted when all else is gone: S3
// deletes the objects of one request in no particular order.
func deleteObjectSet(ctx context.Context, l cluster.ObjectSet, name string) error {
	now, err := l.Store.List(ctx, name+"/")
	if err != nil {
		return err
	}

	if len(now) == 0 {
		return nil
	}

	last := manifest.ClusterKey(name)
	rest := slices.DeleteFunc(slices.Clone(now), func(key string) bool { return key == last })
	if len(rest) == len(now) {
		return store.DeleteAll(ctx, l.Store, rest)
	}

	return store.DeleteAllThen(ctx, l.Store, rest, last)
}

// guardObjects guards writes to each store by the lock of op. Without an operation nothing is written.
func guardObjects(op *operation.Operation, sets []cluster.ObjectSet) {
	for i := range sets {
		if op != nil {
			sets[i].Store = op.GuardStore(sets[i].Store)
		}
	}
}

// deleteObjects deletes the cluster's objects in all stores.
func deleteObjects(ctx context.Context, sets []cluster.ObjectSet, name string) error {
	for _, set := range sets {
		if err := deleteObjectSet(ctx, set, name); err != nil {
			return err
		}
	}

	return nil
}

// findOtherOwner returns the id of another cluster of the same name whose machines read the machine store; empty if there is
// none. Two clusters of one name in different accounts or regions may be given the same spec.configStore.base, and AWS shows
// only one of them here. documents are the keys of node documents, and id is that of the cluster which is deleted.
func findOtherOwner(ctx context.Context, machine store.Store, documents []string, id string) (string, error) {
	for _, key := range documents {
		o, err := machine.Get(ctx, key)
		if err != nil {
			return "", err
		}

		var document struct {
			ClusterID string `json:"clusterID"`
		}
		if json.Unmarshal(o.Body, &document) != nil { // not a document of any cluster
			continue
		}

		if document.ClusterID != "" && document.ClusterID != id {
			return document.ClusterID, nil
		}
	}

	return "", nil
}

// listObjects returns the cluster's objects: first the documents of the issuer of service-account tokens and those of
// the machine store, then those of the state store with the Cluster document last and its id before that, so that a
// deletion that was killed can be run again.
func listObjects(
	ctx context.Context,
	session *cluster.Session,
	s store.Store,
	view *store.View,
	set manifest.Set,
) ([]cluster.ObjectSet, error) {
	name := session.Name
	var out []cluster.ObjectSet
	if documents, found, err := session.FindIssuerObjects(ctx, set); err != nil {
		return nil, err
	} else if found {
		out = append(out, documents)
	}

	if base := set.Cluster.Spec.ConfigStore.Base; base != "" {
		machine, _, err := session.Env.Stores.Open(ctx, base, session.Config.Region)
		if err != nil {
			return nil, err
		}

		keys, err := machine.List(ctx, name+"/")
		if err != nil {
			return nil, err
		}

		documents := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
			return !strings.HasPrefix(key, node.DocumentPrefix(name, v1alpha1.RoleControlPlane))
		})
		other, err := findOtherOwner(ctx, machine, documents, session.ClusterID())
		if err != nil {
			return nil, err
		}

		if other == "" {
			out = append(out, cluster.ObjectSet{Store: machine, Keys: keys})
		} else {
			session.Env.Notifyf(
				"kept: %d objects below %s/%s/, which belong to another cluster %s, with id %s",
				len(keys), machine.URL(), name, name, other,
			)
		}
	}

	keys, err := view.List(ctx, name+"/")
	if err != nil {
		return nil, err
	}

	last := []string{clusterstate.OwnershipKey(name), manifest.ClusterKey(name)}
	slices.SortStableFunc(keys, func(x, y string) int {
		return cmp.Or(slices.Index(last, x)-slices.Index(last, y), strings.Compare(x, y))
	})

	return append(out, cluster.ObjectSet{Store: s, Keys: keys}), nil
}
