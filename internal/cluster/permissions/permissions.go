// SPDX-License-Identifier: Apache-2.0

// Package permissions collects what the IAM policies of a cluster's operator depend on: the account, the
// region, the stores and the resources that the manifests name.
package permissions

import (
	"context"
	"errors"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// BuildInput returns what the policies of an operator are built from. cfg is for the cluster's region. The
// stores are the state store and, if the state has the cluster, its machine store.
func BuildInput(
	ctx context.Context,
	env *cluster.Env,
	cfg sdk.Config,
	req Request,
) (iampolicy.Input, error) {
	in := iampolicy.Input{
		Partition:     partition.OfRegion(cfg.Region).Name,
		Region:        cfg.Region,
		Account:       req.Account,
		Cluster:       req.Cluster,
		ReadOnly:      req.ReadOnly,
		RolePath:      model.RolePath(req.Cluster, cfg.Region),
		KeyAlias:      model.KeyAliasName(req.Cluster),
		LoadBalancers: model.LoadBalancerNames(req.Cluster),
	}
	if in.Account == "" {
		who, err := discovery.GetCallerIdentity(ctx, cfg)
		if err != nil {
			return in, diag.WithHint(err, "give --account, or credentials")
		}

		in.Account = who.Account
		in.Partition = who.Partition
	}

	url, err := env.Stores.StateURL()
	if err != nil {
		return in, err
	}

	in.Stores = appendStore(nil, url)

	if err := addManifests(ctx, env, cfg, &in, req); err != nil {
		return in, err
	}

	if n := len(in.Stores); n > 0 { // the last one is the machine store
		in.Boundary = iampolicy.BoundaryARN(in.Partition, in.Account, in.Stores[n-1].Bucket)
	}

	return in, nil
}

// addManifests adds what a cluster's manifests name. Neither the store nor the cluster need exist yet. Other errors are
// returned, such as that of manifests that somebody has changed: without them the policies would be those of another cluster.
// With the account of a request, the caller may be in another one, and have no access to the store.
func addManifests(
	ctx context.Context,
	env *cluster.Env,
	cfg sdk.Config,
	in *iampolicy.Input,
	req Request,
) error {
	if req.Cluster == "" {
		return nil
	}

	s, _, err := env.Stores.State(ctx)
	if errors.Is(err, store.ErrNotFound) || err != nil && req.Account != "" {
		return nil
	}

	if err != nil {
		return err
	}

	set, err := clusterstate.LoadManifests(ctx, s, req.Cluster)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}

	if err != nil {
		return err
	}

	in.Stores = appendStore(in.Stores, set.Cluster.Spec.ConfigStore.Base)
	addNamedResources(in, set)
	addExisting(in, set)

	return addProfiles(ctx, cfg, in, set.Cluster.Spec.CloudProvider.AWS.InstanceProfiles)
}

// addNamedResources adds the resources that a cluster's manifests name, and the rights that only some
// clusters need.
func addNamedResources(in *iampolicy.Input, set manifest.Set) {
	in.UnknownTypes = len(set.UnknownTypes()) > 0
	for _, g := range set.Groups {
		in.WarmPools = in.WarmPools || g.Spec.WarmPool.PoolState != ""
	}

	isInterface := func(service string) bool { return !model.IsGatewayEndpoint(service) }
	in.HasEndpoints = len(set.Cluster.Spec.Networking.VPCEndpoints) > 0
	in.InterfaceEndpoints = slices.ContainsFunc(set.Cluster.Spec.Networking.VPCEndpoints, isInterface)
	if manifest.HasDNS(set.Cluster.Spec) {
		in.DNSNames = []string{set.Cluster.Spec.API.PublicName}
		in.HostedZones = model.UnmanagedZones(set.Cluster.Spec)
	}

	if model.UsesEtcdDNS(set.Cluster.Spec) {
		in.Function = model.FunctionName(in.Cluster)
		in.FunctionRole = model.FunctionRoleName(in.Cluster, in.Region)
	}

	if manifest.HasPodIdentity(set.Cluster) {
		in.Issuer = set.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer
		places := appendStore(nil, set.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore)
		if len(places) == 1 {
			in.Discovery = places[0]
		}
	}

	for _, p := range set.Cluster.Spec.Networking.VPCPeerings {
		in.PeerVPCs = append(in.PeerVPCs, p.NetworkID)
		in.RouteTables = append(in.RouteTables, p.RouteTables...)
	}
}

// appendStore appends the store at url if it is on S3.
func appendStore(list []iampolicy.StoreLocation, url string) []iampolicy.StoreLocation {
	place, err := store.ParseURL(url)
	if err != nil || place.Bucket == "" {
		return list
	}

	return append(list, iampolicy.StoreLocation{Bucket: place.Bucket, Prefix: place.Prefix})
}

// Request selects the operator whose policies are built.
type Request struct {
	// Cluster is the name of the cluster, which need not exist.
	Cluster string
	// Account is the AWS account, 12 digits. Empty: that of the caller's credentials.
	Account string
	// ReadOnly limits the policies to what a plan needs.
	ReadOnly bool
}
