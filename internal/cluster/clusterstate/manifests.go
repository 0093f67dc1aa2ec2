// SPDX-License-Identifier: Apache-2.0

// Package clusterstate reads and writes the objects of one cluster in the state store.
//
// The manifests (Cluster and InstanceGroup documents) and the pinned asset catalogue are the input of every
// plan. Three records are written by applies: applied.json (what was applied last), provisioner.json (which
// provisioner creates the cluster's resources) and zones.json (the existing hosted zones in which the
// cluster may have records).
//
// The package computes no plan, calls no AWS API but that of the store, and takes no lock: writers pass a
// store that is guarded by the cluster's lock.
package clusterstate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// CheckName returns an error if name is not a valid cluster name. Call it before the name becomes part of a
// key.
func CheckName(name string) error {
	if !manifest.ValidName(name) {
		return diag.WithHint(
			fmt.Errorf("%q is not a valid cluster name", name),
			"use lower-case letters, digits and dashes",
		)
	}

	return nil
}

// RequireCluster returns an error that wraps [store.ErrNotFound], with a hint, if s has no cluster of this
// name.
func RequireCluster(ctx context.Context, s store.Store, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}

	_, err := s.Get(ctx, manifest.ClusterKey(name))
	if errors.Is(err, store.ErrNotFound) {
		return newNotFoundError(ctx, name, s)
	}

	return err
}

// newNotFoundError returns an error that wraps [store.ErrNotFound] and names the cluster that was probably meant.
func newNotFoundError(ctx context.Context, name string, s store.Store) error {
	err := fmt.Errorf("there is no cluster %s in %s: %w", name, s.URL(), store.ErrNotFound)
	names, listError := ListClusters(ctx, s)
	if listError == nil {
		if near := diag.Nearest(name, names); near != "" {
			return diag.WithHint(err, "did you mean "+near+"?")
		}
	}

	return diag.WithHint(err, "see: slipway get clusters; create one with: slipway create cluster "+name)
}

// NewNowhereError reports that neither AWS nor the state store has a cluster of this name.
func NewNowhereError(name string) error {
	return diag.WithHint(
		fmt.Errorf("there is no cluster %s, in AWS or in the state store", name),
		"see: slipway get clusters",
	)
}

// LoadManifests returns the manifests of a cluster with all defaults set. Invalid manifests are an error of
// type [diag.Findings]; a missing cluster is one that wraps [store.ErrNotFound]; manifests that do not match their
// signature are one that wraps [ErrTampered].
func LoadManifests(ctx context.Context, s store.Store, name string) (manifest.Set, error) {
	var objects []store.Object
	err := verifyTwice(ctx, s, func() (err error) {
		if objects, err = readManifests(ctx, s, name); err != nil {
			return err
		}

		return verifyManifests(ctx, s, name, objects)
	})
	if err != nil {
		return manifest.Set{}, err
	}

	set, findings := manifest.Parse(joinDocuments(objects))
	set = manifest.Default(set)
	if err := manifest.Check(set, findings).Err(); err != nil {
		return manifest.Set{}, err
	}

	return set, nil
}

// ReadClusterDocument returns the Cluster document alone, with defaults, and does not validate it. A
// deletion needs only its region and its protection, and a deletion that was killed may have removed the
// groups already.
func ReadClusterDocument(ctx context.Context, s store.Store, name string) (manifest.Set, error) {
	if err := CheckName(name); err != nil {
		return manifest.Set{}, err
	}

	o, err := s.Get(ctx, manifest.ClusterKey(name))
	if err != nil {
		return manifest.Set{}, err
	}

	set, findings := manifest.Parse(o.Body)

	return manifest.Default(set), findings.Err()
}

// ReadDocuments returns the manifests of a cluster as one YAML stream, and the ETag of each object by its
// key. Whether they are signed is not checked.
func ReadDocuments(ctx context.Context, s store.Store, name string) ([]byte, map[string]string, error) {
	objects, err := readManifests(ctx, s, name)
	if err != nil {
		return nil, nil, err
	}

	etags := map[string]string{}
	for _, o := range objects {
		etags[o.Key] = o.ETag
	}

	return joinDocuments(objects), etags, nil
}

// joinDocuments returns manifests as one YAML stream.
func joinDocuments(objects []store.Object) []byte {
	docs := make([][]byte, 0, len(objects))
	for _, o := range objects {
		docs = append(docs, o.Body)
	}

	return bytes.Join(docs, []byte("\n---\n"))
}

// readManifests returns the objects with the manifests of a cluster, the Cluster document first.
func readManifests(ctx context.Context, s store.Store, name string) ([]store.Object, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}

	keys, err := s.List(ctx, manifest.GroupKey(name, ""))
	if err != nil {
		return nil, err
	}

	keys = append([]string{manifest.ClusterKey(name)}, keys...)
	objects := make([]store.Object, len(keys))
	errs := make([]error, len(keys))
	slots := make(chan struct{}, maxConcurrentReads)
	var wg sync.WaitGroup

	for i, key := range keys {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			objects[i], errs[i] = s.Get(ctx, key)
			objects[i].Key = key
		})
	}

	wg.Wait()
	if errors.Is(errs[0], store.ErrNotFound) {
		return nil, newNotFoundError(ctx, name, s)
	}

	return objects, errors.Join(errs...)
}

// maxConcurrentReads limits the manifests that are read at a time.
const maxConcurrentReads = 16

// ListClusters returns the names of all clusters in s.
func ListClusters(ctx context.Context, s store.Store) ([]string, error) {
	list := func(ctx context.Context) ([]string, error) { return s.List(ctx, "") }
	if large, ok := s.(interface {
		ListAfterAuditLogs(ctx context.Context) ([]string, error)
	}); ok {
		list = large.ListAfterAuditLogs
	}

	keys, err := list(ctx)
	if err != nil {
		return nil, err
	}

	var names []string

	for _, key := range keys {
		name, _, _ := strings.Cut(key, "/")
		if key == manifest.ClusterKey(name) {
			names = append(names, name)
		}
	}

	return names, nil
}

// ListGroups returns the names of the instance groups of a cluster, and none for a cluster that does not exist.
func ListGroups(ctx context.Context, s store.Store, cluster string) ([]string, error) {
	if err := CheckName(cluster); err != nil {
		return nil, err
	}

	keys, err := s.List(ctx, manifest.GroupKey(cluster, ""))
	if err != nil {
		return nil, err
	}

	var names []string
	for _, key := range keys {
		names = append(names, strings.TrimSuffix(path.Base(key), path.Ext(key)))
	}

	return names, nil
}

// NewGroupNotFoundError returns an error that wraps [store.ErrNotFound] and names the group that was probably meant.
func NewGroupNotFoundError(ctx context.Context, s store.Store, cluster, group string) error {
	err := fmt.Errorf("cluster %s has no group %s: %w", cluster, group, store.ErrNotFound)
	names, listError := ListGroups(ctx, s, cluster)
	if listError != nil || len(names) == 0 {
		return diag.WithHint(err, "see: slipway get groups "+cluster)
	}

	if near := diag.Nearest(group, names); near != "" {
		return diag.WithHint(err, "did you mean "+near+"?")
	}

	return diag.WithHint(err, "its groups are: "+strings.Join(names, ", "))
}

// ReadPinnedCatalog returns the asset catalogue that the cluster was created with.
func ReadPinnedCatalog(ctx context.Context, s store.Store, cluster string) (asset.Catalog, error) {
	o, err := s.Get(ctx, manifest.AssetsKey(cluster))
	if err != nil {
		return asset.Catalog{}, err
	}

	c, err := asset.ParseCatalog(o.Body)
	if err != nil {
		return asset.Catalog{}, fmt.Errorf("read %s: %w", o.Key, err)
	}

	return c, nil
}

// HashDocuments returns the SHA-256 of each public document that a plan is computed from, in hexadecimal by
// key: the manifests, the asset catalogue and the certificates.
func HashDocuments(ctx context.Context, s store.Store, name string) (map[string]string, error) {
	keys, err := s.List(ctx, manifest.GroupKey(name, ""))
	if err != nil {
		return nil, err
	}

	keys = append(keys, manifest.ClusterKey(name), manifest.AssetsKey(name), pki.CertsObjectKey(name))

	return hashObjects(ctx, s, keys)
}

// hashObjects returns the SHA-256 of the objects that exist, in hexadecimal by key.
func hashObjects(ctx context.Context, s store.Store, keys []string) (map[string]string, error) {
	out := map[string]string{}

	for _, key := range keys {
		o, err := s.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}

		if err != nil {
			return nil, err
		}

		out[key] = hashOf(o.Body)
	}

	return out, nil
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)

	return hex.EncodeToString(sum[:])
}

// HashBodies returns the SHA-256 of bodies by key, empty for nil.
func HashBodies(bodies map[string][]byte) map[string]string {
	out := map[string]string{}
	for key, body := range bodies {
		out[key] = ""
		if body != nil {
			out[key] = hashOf(body)
		}
	}

	return out
}
