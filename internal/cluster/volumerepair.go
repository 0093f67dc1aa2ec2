// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// RepairsVolumesOnly reports whether d.Plan creates lost etcd volumes and changes nothing else, see
// [ComputeVolumeRepair].
func (d *Desired) RepairsVolumesOnly() bool { return d.unpinned != nil }

// FindUnpinned returns an error that wraps [asset.ErrNoDigest] if the catalogue of the cluster names an image by its tag that
// its machines need, else nil. Such a cluster was created by an earlier slipway.
func FindUnpinned(ctx context.Context, session *Session, d *Desired) error {
	catalog, err := ReadCatalog(ctx, d.View, d.Manifests.Cluster)
	if err != nil {
		return err
	}

	for _, g := range d.Manifests.Groups {
		if g.Spec.Role == v1alpha1.RoleBastion {
			continue // it runs no containers
		}

		for name, version := range node.ImageVersions(d.Manifests.Cluster.Spec, g.Spec) {
			image, err := catalog.FindImage(name, version)
			if err != nil || len(image.Digests) > 0 {
				continue // another error: building the node documents explains it
			}

			err = fmt.Errorf("image %s %s, %s: %w", image.Name, image.Version, image.Ref, asset.ErrNoDigest)

			return explainAssets(session.Name, g.Metadata.Name, err)
		}
	}

	return nil
}

// ComputeVolumeRepair plans the creation of lost etcd volumes and nothing else, for a cluster without node documents: unpinned
// says which image has no digest, so that no machine may be changed. A cluster that has lost no volume is refused with that
// error.
func ComputeVolumeRepair(
	ctx context.Context,
	session *Session,
	d *Desired,
	unpinned error,
) (diag.Findings, error) {
	d.unpinned = unpinned
	if err := session.ResolveMachineStore(ctx, d); err != nil {
		return nil, err
	}

	if err := session.BuildGraph(ctx, d); err != nil {
		return nil, err
	}

	actual, err := session.ReadResources(ctx, d.View, d.Manifests)
	if err != nil {
		return nil, err
	}

	if err := session.CheckTrust(ctx, d, actual); err != nil {
		return nil, err
	}

	// Findings are about steps that are left out.
	d.Plan, _ = plan.Compute(d.Graph, actual, plan.Options{})
	lost, err := session.findLostVolumes(ctx, d)
	if err != nil {
		return nil, err
	}

	if len(lost.Lost) == 0 {
		return nil, unpinned
	}

	d.Plan = d.Plan.OnlyCreating(d.Graph, lost.Lost...)
	findings := lost.Findings(d.Manifests.Cluster, true)
	findings.Warnf(
		manifest.AssetsKey(session.Name),
		"",
		"then change what the manifests ask for: "+pinCommand(session.Name),
		"names images by their tags: nothing but the lost volumes is created or changed",
	)
	session.Env.Warn(findings)

	return findings, nil
}

// withoutDocuments returns locations for the groups of a graph of which nothing about machines is applied.
func withoutDocuments(groups []v1alpha1.InstanceGroup) node.Publication {
	out := node.Publication{BootLocations: map[string]node.BootLocation{}}
	for _, g := range groups {
		out.BootLocations[g.Metadata.Name] = node.BootLocation{DocumentURL: "unknown"}
	}

	return out
}

// RecordRepaired ends the record of an attempt whose plan was carried out, and leaves the record of the last apply as it is.
// Without an operation it does nothing.
func RecordRepaired(ctx context.Context, session *Session) error {
	return endAttempt(ctx, session, func(*plan.LastApplied) {})
}
