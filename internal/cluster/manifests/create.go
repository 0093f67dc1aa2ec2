// SPDX-License-Identifier: Apache-2.0

// Package manifests creates and changes the manifests of clusters in the state store.
package manifests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// NewCluster is a cluster that is about to be written into the state store. Its Cluster document is written
// last: without it there is no cluster, so a create that was interrupted can be run again.
type NewCluster struct {
	// Store is the state store, and Sealer seals its secrets.
	Store  store.Store
	Sealer store.Sealer
	// Set are the manifests, complete and valid; see Complete.
	Set manifest.Set
	// Catalog is the asset catalogue that the cluster is pinned to.
	Catalog asset.Catalog
}

// manifestKeys returns the keys of the manifests.
func (w NewCluster) manifestKeys() []string {
	name := w.Name()
	var out []string
	for _, g := range w.Set.Groups {
		out = append(out, manifest.GroupKey(name, g.Metadata.Name))
	}

	return append(out, manifest.ClusterKey(name))
}

// writeCluster writes all objects of the cluster into s.
func (w NewCluster) writeCluster(ctx context.Context, s store.Store, now time.Time) error {
	name := w.Name()
	if _, err := pki.EnsureBundle(ctx, s, w.Sealer, name, now); err != nil {
		return err
	}

	if err := clusterstate.EnsureOwnership(ctx, s, name); err != nil {
		return err
	}

	catalog, err := w.Catalog.YAML()
	if err != nil {
		return err
	}

	if _, err := s.Put(ctx, manifest.AssetsKey(name), catalog); err != nil {
		return err
	}

	if err := w.writeGroups(ctx, s); err != nil {
		return err
	}

	_, err = s.Create(ctx, manifest.ClusterKey(name), manifest.EncodeCluster(w.Set.Cluster))
	if errors.Is(err, store.ErrConflict) {
		return diag.WithHint(
			fmt.Errorf("another process created cluster %s: %w", name, err),
			"see: slipway get groups "+name,
		)
	}

	return err
}

// writeGroups writes the groups and deletes those of an interrupted create.
func (w NewCluster) writeGroups(ctx context.Context, s store.Store) error {
	name := w.Name()
	stale, err := s.List(ctx, manifest.GroupKey(name, ""))
	if err != nil {
		return err
	}

	for _, g := range w.Set.Groups {
		key := manifest.GroupKey(name, g.Metadata.Name)
		stale = slices.DeleteFunc(stale, func(k string) bool { return k == key })
		if _, err := s.Put(ctx, key, manifest.EncodeGroup(g)); err != nil {
			return err
		}
	}

	for _, key := range stale {
		if err := s.Delete(ctx, key); err != nil {
			return err
		}
	}

	return nil
}

// indexManifests copies the written documents into one index object, so that the first plan reads that
// instead of each document. A copy counts only while the original is unchanged, so this write needs no
// guard.
func indexManifests(ctx context.Context, s store.Store, name string) error {
	view, err := store.OpenView(ctx, s, name+"/")
	if err != nil {
		return err
	}

	if _, known := view.HasObject(manifest.ClusterKey(name)); !known {
		return nil // a folder has no index
	}

	if _, _, err := clusterstate.ReadDocuments(ctx, view, name); err != nil {
		return err
	}

	keys := []string{manifest.AssetsKey(name), pki.CertsObjectKey(name), clusterstate.OwnershipKey(name)}
	for _, key := range keys {
		if _, err := view.Get(ctx, key); err != nil {
			return err
		}
	}

	return view.SaveIndex(ctx)
}

// Complete sets the defaults of new manifests and appends everything that is wrong with them to findings.
func Complete(set manifest.Set, findings diag.Findings, catalog asset.Catalog) (manifest.Set, diag.Findings) {
	set = manifest.Default(set)
	if findings.Err() != nil && set.Cluster.Kind == "" {
		return set, findings // "contains no Cluster" would be a second finding about the same mistake
	}

	findings = manifest.Check(set, findings)
	if findings.Err() == nil {
		findings = append(findings, checkCatalog(set, catalog)...)
	}

	return set, findings
}

// Name returns the name of the cluster.
func (w NewCluster) Name() string { return w.Set.Cluster.Metadata.Name }

// RefuseExisting returns an error if the store has a cluster of this name.
func (w NewCluster) RefuseExisting(ctx context.Context) error {
	name := w.Name()
	_, err := w.Store.Get(ctx, manifest.ClusterKey(name))
	if err == nil {
		return diag.WithHint(
			fmt.Errorf("cluster %s already exists in %s", name, w.Store.URL()),
			"change it with: slipway replace -f FILE, or slipway edit cluster "+name,
		)
	}

	if !errors.Is(err, store.ErrNotFound) {
		return err
	}

	return nil
}

// Write writes the cluster under its lock.
func (w NewCluster) Write(ctx context.Context, env *cluster.Env) error {
	req := cluster.OperationRequest{Store: w.Store, Cluster: w.Name(), Kind: "create"}

	return env.RunOperation(
		ctx,
		req,
		func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			op.UpdateRecord(func(r *operation.Record) { r.Documents = w.manifestKeys() })
			if err := w.writeCluster(ctx, guarded, env.Now()); err != nil {
				return err
			}

			return indexManifests(ctx, w.Store, w.Name())
		},
	)
}
