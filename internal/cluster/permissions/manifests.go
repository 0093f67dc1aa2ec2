// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// loadManifests reads the manifests of a cluster, and reports whether there are any. Without them the policies are those
// of a cluster that names nothing: a reason other than that the cluster does not exist is a warning. Manifests that
// nobody signed who may change the cluster are an error.
func loadManifests(ctx context.Context, env *cluster.Env, name string, req Request) (manifest.Set, bool, error) {
	set, err := readManifests(ctx, env, name, req.CheckSigner)
	switch {
	case err == nil:
		return set, true, nil
	case req.CheckSigner, errors.Is(err, clusterstate.ErrTampered):
		return set, false, err
	case !errors.Is(err, store.ErrNotFound):
		warnOfUnread(env, "cluster/"+name, err)
	}

	return set, false, nil
}

func readManifests(ctx context.Context, env *cluster.Env, name string, checkSigner bool) (manifest.Set, error) {
	s, _, err := env.Stores.State(ctx)
	if err != nil {
		return manifest.Set{}, err
	}

	view, err := store.OpenView(ctx, s, name+"/") // what is checked is what is used
	if err != nil {
		return manifest.Set{}, err
	}

	set, err := clusterstate.LoadManifests(ctx, view, name)
	if err != nil || !checkSigner {
		return set, err
	}

	signed, err := clusterstate.VerifyDocuments(ctx, view, name)
	if err != nil {
		return set, err
	}

	if !signed.Exists() {
		return set, clusterstate.NewMissingSignatureError(name, s)
	}

	return set, cluster.CheckSigner(ctx, env, set.Cluster, signed)
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

// addRegistry adds the account of a cluster's private registry, if it is another one.
func addRegistry(in *iampolicy.Input, set manifest.Set) {
	registry, isPrivate := ecraddress.Parse(set.Cluster.Spec.Assets.ContainerRegistry)
	if !isPrivate || registry.Account == in.Account {
		return
	}

	in.RegistryAccounts = append(in.RegistryAccounts, registry.Account)
	slices.Sort(in.RegistryAccounts)
	in.RegistryAccounts = slices.Compact(in.RegistryAccounts)
}
