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

// BuildInput returns what the policies of an operator are built from, and what they allow outside of the cluster because its
// manifests name it. With [LimitedManifests] the policies do not allow that. cfg is for the cluster's region. The stores are the
// state store and the machine store, if it is another one.
func BuildInput(ctx context.Context, env *cluster.Env, cfg sdk.Config, req Request) (iampolicy.Input, []string, error) {
	in, err := newInput(ctx, env, cfg, req)
	if err != nil {
		return in, nil, err
	}

	state := in.Stores
	if err := addManifests(ctx, env, cfg, req, &in); err != nil {
		return in, nil, err
	}

	setBoundary(&in)
	elsewhere := listElsewhere(in, state)
	if req.Manifests == LimitedManifests {
		limitToCluster(&in, state)
		setBoundary(&in)
	}

	return in, elsewhere, nil
}

// newInput returns what does not depend on manifests.
func newInput(ctx context.Context, env *cluster.Env, cfg sdk.Config, req Request) (iampolicy.Input, error) {
	in := iampolicy.Input{
		Partition:     partition.OfRegion(cfg.Region).Name,
		Region:        cfg.Region,
		Account:       req.Account,
		Cluster:       req.Cluster,
		ReadOnly:      req.ReadOnly,
		RolePath:      model.RolePath(req.Cluster, cfg.Region),
		KeyAlias:      model.KeyAliasName(req.Cluster),
		LoadBalancers: model.LoadBalancerNames(req.Cluster),
		TargetGroups:  model.TargetGroupNames(req.Cluster),
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

	return in, nil
}

// setBoundary sets the boundary of the machines' roles: that of the machine store, which is the last one.
func setBoundary(in *iampolicy.Input) {
	in.Boundary = ""
	if n := len(in.Stores); n > 0 {
		in.Boundary = iampolicy.BoundaryARN(in.Partition, in.Account, in.Stores[n-1].Bucket)
		in.KarpenterBoundary = iampolicy.KarpenterBoundaryARN(in.Partition, in.Account, in.Stores[n-1].Bucket)
	}
}

// addManifests adds what the manifests of the cluster name.
func addManifests(ctx context.Context, env *cluster.Env, cfg sdk.Config, req Request, in *iampolicy.Input) error {
	set, found, err := loadManifests(ctx, env, req.Cluster, req.Manifests)
	if err != nil || !found {
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
		in.HasTopic = model.UsesEtcdTopic(set.Cluster.Spec)
	}

	in.CreatesZones = in.Function != "" || len(in.DNSNames) > 0 && len(in.HostedZones) == 0

	if manifest.HasPodIdentity(set.Cluster) {
		in.Issuer = set.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer
		in.KarpenterRole = model.KarpenterRoleName(in.Cluster, in.Region) // which a group with spec.manager Karpenter needs
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

// appendStore appends the store at url if it is on S3, and not in the list.
func appendStore(list []iampolicy.StoreLocation, url string) []iampolicy.StoreLocation {
	place, err := store.ParseURL(url)
	at := iampolicy.StoreLocation{Bucket: place.Bucket, Prefix: place.Prefix}
	if err != nil || at.Bucket == "" || slices.Contains(list, at) {
		return list
	}

	return append(list, at)
}

// Request selects the operator whose policies are built.
type Request struct {
	// Cluster is the name of the cluster, which need not exist unless Manifests is CheckedManifests.
	Cluster string
	// Account is the AWS account, 12 digits. Empty: that of the caller's credentials.
	Account string
	// ReadOnly limits the policies to what a plan needs.
	ReadOnly bool
	// Manifests says how the manifests of the cluster shape the policies.
	Manifests Manifests
}

// Manifests says how the manifests of a cluster shape policies. Who writes manifests, or to the bucket of the state, chooses
// what they name.
type Manifests int

const (
	// LimitedManifests must be signed, as for a plan of a reader, and what they name outside of the cluster is left out.
	LimitedManifests Manifests = iota
	// CheckedManifests must be signed with the key of the cluster's own Kubernetes CA, which is opened, and must not be older
	// than those that were applied last.
	CheckedManifests
	// AnyManifests need to be those that somebody signed, if they are signed at all. They are for policies that nobody attaches.
	AnyManifests
	// NoManifests are read.
	NoManifests
)
