// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// LastAppliedKey is the key of the last-applied record.
func LastAppliedKey(cluster string) string { return cluster + "/applied.json" }

// ReadLastApplied returns the last-applied record and the object that it was read from. Both are zero if
// nothing is recorded. With an error, a set ETag means that the object exists and cannot be parsed: an apply
// then overwrites it.
func ReadLastApplied(
	ctx context.Context,
	s store.Store,
	cluster string,
) (plan.LastApplied, store.Object, error) {
	key := LastAppliedKey(cluster)
	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return plan.LastApplied{}, store.Object{}, nil
	}

	if err != nil {
		return plan.LastApplied{}, o, err
	}

	a, err := plan.ParseLastApplied(o.Body)
	if err != nil {
		return a, o, diag.WithHint(
			fmt.Errorf("%s in %s %w", key, s.URL(), err),
			"rewrite it with: slipway apply "+cluster+"",
		)
	}

	return a, o, nil
}

// IsCatalogPending reports whether the asset catalogue in the state store is not the one that was applied last. It is not
// pending if no apply has recorded one.
func IsCatalogPending(ctx context.Context, s store.Store, cluster string) (bool, error) {
	a, o, err := ReadLastApplied(ctx, s, cluster)
	if err != nil {
		if o.ETag != "" { // it cannot be parsed, and the next apply overwrites it
			err = nil
		}

		return false, err
	}

	key := manifest.AssetsKey(cluster)
	applied, known := a.Documents[key]
	if !known {
		return false, nil
	}

	now, err := HashDocuments(ctx, s, cluster)

	return applied != now[key], err
}

// ReadFixedManifests is [FixedManifests] of the last-applied record in s. The set is zero if nothing was applied.
func ReadFixedManifests(ctx context.Context, s store.Store, cluster string) (manifest.Set, error) {
	a, o, err := ReadLastApplied(ctx, s, cluster)
	if err != nil && o.ETag != "" { // it cannot be parsed, and the next apply overwrites it
		return manifest.Set{}, nil
	}

	if err != nil {
		return manifest.Set{}, err
	}

	return FixedManifests(ctx, s, cluster, a)
}

// FixedManifests returns the manifests, with defaults, that fix what cannot change in place: those that were applied
// last, and the documents that only an apply has that did not succeed. That apply may have created machines which run
// with them.
func FixedManifests(
	ctx context.Context,
	s store.Store,
	cluster string,
	a plan.LastApplied,
) (manifest.Set, error) {
	fixed, err := AppliedManifests(ctx, s, cluster, a)
	if err != nil || a.Attempted == "" {
		return fixed, err
	}

	attempted, _ := manifest.Parse([]byte(a.Attempted))
	attempted = manifest.Default(attempted)
	if fixed.Cluster.Kind == "" {
		fixed.Cluster = attempted.Cluster
	}

	for _, g := range attempted.Groups {
		if _, exists := fixed.Group(g.Metadata.Name); !exists {
			fixed.Groups = append(fixed.Groups, g)
		}
	}

	return fixed, nil
}

// ReadAppliedManifests returns the manifests that were applied last, with defaults. The set is zero if no apply
// has succeeded.
func ReadAppliedManifests(ctx context.Context, s store.Store, cluster string) (manifest.Set, error) {
	a, o, err := ReadLastApplied(ctx, s, cluster)
	if err != nil && o.ETag != "" { // it cannot be parsed, and the next apply overwrites it
		return manifest.Set{}, nil
	}

	if err != nil {
		return manifest.Set{}, err
	}

	return AppliedManifests(ctx, s, cluster, a)
}

// AppliedManifests returns the manifests of a last-applied record, with defaults. A record of an earlier
// version of Slipway has only their hashes: documents of s with these hashes are the applied ones, and others
// are left out.
func AppliedManifests(
	ctx context.Context,
	s store.Store,
	cluster string,
	a plan.LastApplied,
) (manifest.Set, error) {
	text := []byte(a.Manifests)
	if len(text) == 0 && len(a.Resources) > 0 {
		docs, err := readUnchangedDocuments(ctx, s, cluster, a.Documents)
		if err != nil {
			return manifest.Set{}, err
		}

		text = docs
	}

	set, _ := manifest.Parse(text) // a later version may have fields that this one does not know

	return manifest.Default(set), nil
}

// readUnchangedDocuments returns the manifests whose hash is the given one, as a YAML stream.
func readUnchangedDocuments(
	ctx context.Context,
	s store.Store,
	cluster string,
	hashes map[string]string,
) ([]byte, error) {
	now, err := HashDocuments(ctx, s, cluster)
	if err != nil {
		return nil, err
	}

	var docs [][]byte

	for _, key := range slices.Sorted(maps.Keys(hashes)) {
		isManifest := key == manifest.ClusterKey(cluster) ||
			strings.HasPrefix(key, manifest.GroupKey(cluster, ""))
		if !isManifest || now[key] != hashes[key] {
			continue
		}

		o, err := s.Get(ctx, key)
		if err != nil {
			return nil, err
		}

		docs = append(docs, o.Body)
	}

	return bytes.Join(docs, []byte("\n---\n")), nil
}

// ReplaceObject updates the object that was read as was, or creates it if was has no ETag. It returns the
// object written.
func ReplaceObject(ctx context.Context, s store.Store, o, was store.Object) (_ store.Object, err error) {
	if was.ETag == "" {
		o.ETag, err = s.Create(ctx, o.Key, o.Body)
	} else {
		o.ETag, err = s.Update(ctx, o.Key, o.Body, was.ETag)
	}

	return o, err
}

// SameApplied reports whether two records differ only in who wrote them and when.
func SameApplied(a, b plan.LastApplied) bool {
	b.Token = a.Token
	b.AppliedAt = a.AppliedAt
	b.AppliedBy = a.AppliedBy
	b.Tool = a.Tool
	x, errX := a.Encode()
	y, errY := b.Encode()

	return errX == nil && errY == nil && bytes.Equal(x, y)
}
