// SPDX-License-Identifier: Apache-2.0

// Package permissions collects what the IAM policies of a cluster's operator depend on: the account, the
// region, the stores and the resources that the manifests name.
package permissions

import (
	"context"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster"
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

	if err := addManifests(ctx, env, cfg, req, &in); err != nil {
		return in, err
	}

	if n := len(in.Stores); n > 0 { // the last one is the machine store
		in.Boundary = iampolicy.BoundaryARN(in.Partition, in.Account, in.Stores[n-1].Bucket)
	}

	return in, nil
}

// addManifests adds what the manifests in the state store name.
func addManifests(ctx context.Context, env *cluster.Env, cfg sdk.Config, req Request, in *iampolicy.Input) error {
	clusters := []string{req.Cluster}
	if req.Cluster == "" {
		clusters = listClusters(ctx, env)
	}

	for _, name := range clusters {
		set, found, err := loadManifests(ctx, env, name, req)
		if err != nil {
			return err
		}

		if !found {
			continue
		}

		addRegistry(in, set)
		if name != req.Cluster {
			continue
		}

		in.Stores = appendStore(in.Stores, set.Cluster.Spec.ConfigStore.Base)
		addNamedResources(in, set)
		addExisting(in, set)
		if err := addProfiles(ctx, cfg, in, set.Cluster.Spec.CloudProvider.AWS.InstanceProfiles); err != nil {
			return err
		}
	}

	return nil
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
	// Cluster is the name of the cluster, which need not exist unless CheckSigner is set. Empty: all clusters, for the
	// permissions boundary.
	Cluster string
	// Account is the AWS account, 12 digits. Empty: that of the caller's credentials.
	Account string
	// ReadOnly limits the policies to what a plan needs.
	ReadOnly bool
	// CheckSigner requires that the manifests are signed with the key of the cluster's own Kubernetes CA, and that they are
	// not older than those that were applied last. It opens that key. Otherwise they need to be those that somebody
	// signed, if they are signed at all, as for a plan of a reader.
	CheckSigner bool
}
