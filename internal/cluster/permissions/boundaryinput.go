// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"cmp"
	"context"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// BuildBoundaryInput returns what the permissions boundary of the machines of a cluster is built from; with an empty name, that
// of the machines of all clusters of the state store. The last store is the one that the machines read. account is the AWS
// account, 12 digits; empty: that of the caller's credentials.
//
// Manifests add the accounts of private registries and, those of the cluster of this name, its machine store. They must be signed
// by the authority of their cluster for that: what others name is left out, with a warning.
func BuildBoundaryInput(ctx context.Context, env *cluster.Env, cfg sdk.Config, name, account string) (iampolicy.Input, error) {
	in, err := newInput(ctx, env, cfg, Request{Cluster: name, Account: account})
	if err != nil {
		return in, err
	}

	clusters := []string{name}
	if name == "" {
		clusters = listClusters(ctx, env)
	}

	for _, each := range clusters {
		if err := addToBoundary(ctx, env, each, &in); err != nil {
			return in, err
		}
	}

	setBoundary(&in)

	return in, nil
}

// addToBoundary adds what the manifests of a cluster name.
func addToBoundary(ctx context.Context, env *cluster.Env, name string, in *iampolicy.Input) error {
	set, found, err := loadManifests(ctx, env, name, AnyManifests)
	if err != nil || !found {
		return err
	}

	_, named := withBoundaryPlaces(*in, set)
	if len(named) == 0 {
		return nil
	}

	// They are read once more: what is checked is what is used.
	set, _, err = loadManifests(ctx, env, name, CheckedManifests)
	if err != nil {
		warnOfUnchecked(env, name, named, err)
		return nil
	}

	*in, _ = withBoundaryPlaces(*in, set)

	return nil
}

// withBoundaryPlaces returns in with what the manifests of a cluster name, and the names of that which in did not have.
func withBoundaryPlaces(in iampolicy.Input, set manifest.Set) (iampolicy.Input, []string) {
	var named []string
	registry, isPrivate := ecraddress.Parse(set.Cluster.Spec.Assets.ContainerRegistry)
	if isPrivate && registry.Account != in.Account && !slices.Contains(in.RegistryAccounts, registry.Account) {
		named = append(named, "registry account "+registry.Account)
		in.RegistryAccounts = append(slices.Clone(in.RegistryAccounts), registry.Account)
		slices.Sort(in.RegistryAccounts)
	}

	if manifest.HasVPCPods(set.Cluster) && !in.VPCCNI {
		named = append(named, "the Amazon VPC CNI")
		in.VPCCNI = true
	}

	if in.Cluster == "" { // the boundary of the state store
		return in, named
	}

	stores := appendStore(slices.Clone(in.Stores), set.Cluster.Spec.ConfigStore.Base)
	if len(stores) > len(in.Stores) {
		named = append(named, "machine store "+set.Cluster.Spec.ConfigStore.Base)
		in.Stores = stores
	}

	return in, named
}

// warnOfUnchecked warns that what manifests name is left out.
func warnOfUnchecked(env *cluster.Env, name string, named []string, err error) {
	var findings diag.Findings
	findings.Warnf(
		"cluster/"+name,
		"",
		cmp.Or(strings.Join(diag.Hints(err), "; "), "use credentials that may open the keys of the cluster's authorities"),
		"names %s, which is left out of the boundary: its manifests could not be checked: %s",
		strings.Join(named, " and "),
		err,
	)
	env.Warn(findings)
}
