// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// loadManifests reads the manifests of a cluster, and reports whether there are any. Without them the policies are those
// of a cluster that names nothing: a reason other than that the cluster does not exist is a warning. Manifests that
// nobody signed who may change the cluster are an error.
func loadManifests(ctx context.Context, env *cluster.Env, name string, use Manifests) (manifest.Set, bool, error) {
	if use == NoManifests {
		return manifest.Set{}, false, nil
	}

	set, err := readManifests(ctx, env, name, use)
	switch {
	case err == nil:
		return set, true, nil
	case use == CheckedManifests, errors.Is(err, clusterstate.ErrTampered):
		return set, false, err
	case !errors.Is(err, store.ErrNotFound):
		warnOfUnread(env, "cluster/"+name, err)
	}

	return set, false, nil
}

func readManifests(ctx context.Context, env *cluster.Env, name string, use Manifests) (manifest.Set, error) {
	s, _, err := env.Stores.State(ctx)
	if err != nil {
		return manifest.Set{}, err
	}

	view, err := store.OpenView(ctx, s, name+"/") // what is checked is what is used
	if err != nil {
		return manifest.Set{}, err
	}

	set, err := clusterstate.LoadManifests(ctx, view, name)
	if err != nil || use == AnyManifests {
		return set, err
	}

	return set, checkSignature(ctx, env, view, set, use == CheckedManifests)
}

// checkSignature returns an error if the manifests of a cluster in s are not signed, or, if checkSigner is set, not by
// the cluster's own authority. An older Slipway has not signed them: then an operator has to do it.
func checkSignature(ctx context.Context, env *cluster.Env, s store.Store, set manifest.Set, checkSigner bool) error {
	name := set.Cluster.Metadata.Name
	signed, err := clusterstate.VerifyDocuments(ctx, s, name)
	switch {
	case err != nil:
		return err
	case !signed.Exists():
		return clusterstate.NewMissingSignatureError(name, s)
	case !checkSigner:
		return nil
	}

	return cluster.CheckSigner(ctx, env, set.Cluster, signed)
}

// listClusters returns the names of all clusters in the state store; none if it cannot be read.
func listClusters(ctx context.Context, env *cluster.Env) []string {
	s, _, err := env.Stores.State(ctx)
	if err == nil {
		var names []string
		if names, err = clusterstate.ListClusters(ctx, s); err == nil {
			return names
		}
	}

	if !errors.Is(err, store.ErrNotFound) {
		warnOfUnread(env, "the clusters of the state store", err)
	}

	return nil
}

// warnOfUnread warns that manifests were not read.
func warnOfUnread(env *cluster.Env, whose string, err error) {
	var findings diag.Findings
	findings.Warnf(
		whose,
		"",
		"use credentials that may read the state store, if there are manifests",
		"has manifests that cannot be read, so what they name is left out: %s",
		err,
	)
	env.Warn(findings)
}
