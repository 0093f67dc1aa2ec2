// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// BuildBoundaryInput returns what the permissions boundary of the machines of a cluster is built from; with an empty name, that
// of the machines of all clusters of the state store. The last store is the one that the machines read. account is the AWS
// account, 12 digits; empty: that of the caller's credentials.
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
		set, found, err := loadManifests(ctx, env, each, AnyManifests)
		if err != nil {
			return in, err
		}

		if found {
			addRegistry(&in, set)
		}

		if found && name != "" {
			in.Stores = appendStore(in.Stores, set.Cluster.Spec.ConfigStore.Base)
		}
	}

	setBoundary(&in)

	return in, nil
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
