// SPDX-License-Identifier: Apache-2.0

// Package manifests creates and changes the manifests of clusters in the state store.
package manifests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// writeCluster writes all objects of the cluster into s, the Cluster document last, and returns copies of those
// without secrets.
func (w NewCluster) writeCluster(ctx context.Context, s store.Store, now time.Time) ([]store.Object, error) {
	name := w.Name()
	bundle, err := pki.EnsureStoredBundle(ctx, s, w.Sealer, name, now)
	if err != nil {
		return nil, err // nothing is written if the keys cannot be sealed
	}

	written, err := w.writeInputs(ctx, s, bundle, now)
	if err != nil {
		return nil, err
	}

	owner, err := clusterstate.EnsureOwnership(ctx, s, name)
	if err != nil {
		return nil, err
	}

	document := w.clusterDocument()
	document.ETag, err = s.Create(ctx, document.Key, document.Body)
	if errors.Is(err, store.ErrConflict) {
		return nil, diag.WithHint(
			fmt.Errorf("another process created cluster %s: %w", name, err),
			"see: slipway get groups "+name,
		)
	}

	return append(written, bundle.Certs, owner, document), err
}

func (w NewCluster) clusterDocument() store.Object {
	return store.Object{Key: manifest.ClusterKey(w.Name()), Body: manifest.EncodeCluster(w.Set.Cluster)}
}

// inputs returns the asset catalogue, the groups, and the signature of all documents.
func (w NewCluster) inputs(bundle pki.StoredBundle, now time.Time) ([]store.Object, error) {
	name := w.Name()
	catalog, err := w.Catalog.YAML()
	if err != nil {
		return nil, err
	}

	objects := []store.Object{{Key: manifest.AssetsKey(name), Body: catalog}}
	for _, g := range w.Set.Groups {
		key := manifest.GroupKey(name, g.Metadata.Name)
		objects = append(objects, store.Object{Key: key, Body: manifest.EncodeGroup(g)})
	}

	signer := clusterstate.NewSigner(nil, name, bundle.CAs[pki.KubernetesCA].Key(), now.Unix(), clusterstate.Signed{})
	signature, err := signer.SignNew(append([]store.Object{w.clusterDocument(), bundle.Certs}, objects...))

	return append(objects, signature), err
}

// writeInputs writes the asset catalogue, the groups and the signature, and deletes the groups of an interrupted create.
// It returns what it wrote.
func (w NewCluster) writeInputs(
	ctx context.Context,
	s store.Store,
	bundle pki.StoredBundle,
	now time.Time,
) ([]store.Object, error) {
	name := w.Name()
	objects, err := w.inputs(bundle, now)
	if err != nil {
		return nil, err
	}

	listed, err := s.List(ctx, name+"/")
	if err != nil {
		return nil, err
	}

	var created, written []store.Object
	for _, o := range objects {
		if !slices.Contains(listed, o.Key) {
			created = append(created, o)
			continue
		}

		if o.ETag, err = s.Put(ctx, o.Key, o.Body); err != nil {
			return nil, err
		}

		written = append(written, o)
	}

	if err := createObjects(ctx, s, created); err != nil {
		return nil, err
	}

	return append(written, created...), deleteStaleGroups(ctx, s, name, listed, objects)
}

// createObjects creates objects and sets their ETags.
func createObjects(ctx context.Context, s store.Store, objects []store.Object) error {
	if len(objects) == 0 {
		return nil
	}

	etags, err := store.CreateAll(ctx, s, objects)
	if err != nil {
		return err
	}

	for i := range objects {
		objects[i].ETag = etags[i]
	}

	return nil
}

// deleteStaleGroups deletes those of the listed groups that are not among objects.
func deleteStaleGroups(
	ctx context.Context,
	s store.Store,
	name string,
	listed []string,
	objects []store.Object,
) error {
	stale := slices.DeleteFunc(slices.Clone(listed), func(key string) bool {
		return !strings.HasPrefix(key, manifest.GroupKey(name, "")) ||
			slices.ContainsFunc(objects, func(o store.Object) bool { return o.Key == key })
	})
	if len(stale) == 0 {
		return nil
	}

	return store.DeleteAll(ctx, s, stale)
}

// Complete sets the defaults of new manifests, those of new clusters included, and appends everything that is wrong with them to findings.
func Complete(set manifest.Set, findings diag.Findings, catalog asset.Catalog) (manifest.Set, diag.Findings) {
	set = manifest.DefaultNew(set)
	set.Cluster.Spec.KubernetesVersion = asset.NewestPatch(
		set.Cluster.Spec.KubernetesVersion,
		catalog.Versions("kubelet"),
	)
	if findings.Err() != nil && set.Cluster.Kind == "" {
		return set, findings // "contains no Cluster" would be a second finding about the same mistake
	}

	findings = manifest.Check(set, findings)
	if findings.Err() == nil {
		findings = append(findings, checkCatalog(set, catalog)...)
	}

	return set, findings
}

// CheckMachineStore warns if machines could not read the store that the manifests give them.
func (w NewCluster) CheckMachineStore(ctx context.Context) diag.Findings {
	if w.Set.Cluster.Spec.ConfigStore.Base != "" {
		return nil
	}

	var findings diag.Findings
	path := "cluster/" + w.Name() + ": spec.configStore.base"
	fix := "set it with --config-base s3://BUCKET, or later with slipway edit cluster " + w.Name() + "; slipway plan needs it"
	if !strings.HasPrefix(w.Store.URL(), "s3://") {
		findings.Warnf(path, "", fix, "is not set, and machines cannot read the state store %s", w.Store.URL())
		return findings
	}

	region := w.Set.Cluster.Spec.CloudProvider.AWS.Region
	if err := cluster.CheckStoreRegion(ctx, w.Store, region); err != nil {
		fix += ", and a bucket in " + region
		findings.Warnf(path, "", fix, "is not set, and %s", err)
	}

	return findings
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
			written, err := w.writeCluster(ctx, guarded, env.Now())
			if err != nil {
				return err
			}

			// A copy in the index counts only while the original is unchanged, so this write needs no guard.
			return store.WriteIndex(ctx, w.Store, w.Name()+"/", written)
		},
	)
}
