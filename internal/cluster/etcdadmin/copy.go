// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// source is a backup of another cluster.
type source struct {
	archive backup.Archive
	backup  backup.Backup
}

// planCopy plans the restoration of a backup of another cluster. own are the backups of this cluster: a copy that was made before is
// used again.
func (a *Admin) planCopy(ctx context.Context, out *RestorePlan, r RestoreRequest, own backup.Listing) error {
	other, err := Open(ctx, a.env, r.From)
	if err != nil {
		return err
	}

	listing, err := (&backup.Catalog{Archive: other.archive}).List(ctx)
	if err != nil {
		return err
	}

	found, err := chooseBackup(listing, r.ID)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", r.From, err)
	}

	if err := checkCopy(found.Metadata, other.set.Cluster, a.set.Cluster); err != nil {
		return err
	}

	out.From = r.From
	origin := backup.Origin{Cluster: r.From, ClusterID: found.ClusterID, ID: found.ID}
	if copied, ok := own.FindCopy(origin); ok {
		out.Backup = copied
	} else {
		out.Backup = found
		out.Backup.SealedKey = nil
	}

	out.source = &source{archive: other.archive, backup: found}

	return nil
}

// checkCopy returns an error if the objects in a backup of another cluster do not fit a cluster: the addresses and names of
// Services are in them, and an older API server or etcd does not read the data of a newer one.
func checkCopy(m backup.Metadata, from, to v1alpha1.Cluster) error {
	for _, field := range []struct{ name, from, to string }{
		{"spec.networking.serviceClusterIPRange", from.Spec.Networking.ServiceClusterIPRange, to.Spec.Networking.ServiceClusterIPRange},
		{"spec.networking.podCIDR", from.Spec.Networking.PodCIDR, to.Spec.Networking.PodCIDR},
		{"spec.networking.dnsDomain", from.Spec.Networking.DNSDomain, to.Spec.Networking.DNSDomain},
	} {
		if field.from != field.to {
			return diag.WithHint(
				fmt.Errorf("backup %s of cluster %s does not fit cluster %s: %s is %q there and %q here", m.ID, from.Metadata.Name,
					to.Metadata.Name, field.name, field.from, field.to),
				"create a cluster with the same "+field.name,
			)
		}
	}

	if asset.CompareVersions(minorOf(m.KubernetesVersion), minorOf(to.Spec.KubernetesVersion)) > 0 {
		return diag.WithHint(
			fmt.Errorf("backup %s is of Kubernetes %s, and cluster %s has %s, which does not read newer objects", m.ID,
				m.KubernetesVersion, to.Metadata.Name, to.Spec.KubernetesVersion),
			"upgrade the cluster first: slipway upgrade cluster "+to.Metadata.Name,
		)
	}

	return nil
}

// minorOf returns the major and the minor version.
func minorOf(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)

	return strings.Join(parts[:min(2, len(parts))], ".")
}

// copyBackup copies the backup of a plan from its cluster, unless that was done before, and the keys with which Secrets in it can
// be read. It can be killed at any step: the keys are written once, and an unfinished copy is not listed as a backup.
func (a *Admin) copyBackup(ctx context.Context, plan *RestorePlan) error {
	if plan.source == nil {
		return nil
	}

	if err := a.copyKeys(ctx, plan.From, plan.source.archive); err != nil {
		return err
	}

	if plan.Backup.Origin != nil && plan.Backup.Origin.Cluster == plan.From && plan.Backup.Reason == backup.ReasonCopy {
		return nil
	}

	a.env.Notifyf("copying backup %s of cluster %s", plan.source.backup.ID, plan.From)
	id := backup.NewID(a.env.Now(), rand.Text()[:6])
	copied, err := a.archive.Copy(ctx, plan.source.archive, plan.source.backup.Metadata, id)
	plan.Backup = backup.Backup{Metadata: copied}

	return err
}

// copyKeys gives the cluster the encryption key of another one, and those that the other one has of others. The machines of the
// cluster read Secrets with them.
func (a *Admin) copyKeys(ctx context.Context, from string, source backup.Archive) error {
	keys, err := pki.LoadFormerKeys(ctx, source.Store, source.Sealer, from)
	if err != nil {
		return fmt.Errorf("read the former keys of cluster %s: %w", from, err)
	}

	own, err := pki.LoadMachineKey(ctx, source.Store, source.Sealer, from, pki.EncryptionKey)
	if err != nil {
		return fmt.Errorf("read the encryption key of cluster %s: %w", from, err)
	}

	for _, key := range append(keys, own) {
		if err := pki.PublishFormerKey(ctx, a.archive.Store, a.archive.Sealer, a.name, key); err != nil {
			return err
		}
	}

	return nil
}

// OriginID returns the id that the backup of a plan has in the cluster that it is of.
func (p RestorePlan) OriginID() string {
	if p.source != nil {
		return p.source.backup.ID
	}

	return p.Backup.ID
}
