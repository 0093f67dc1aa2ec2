// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
)

// readExternalResources looks, once, at what the manifest names by its id, and refuses what is not there or does not fit.
func (t *clusterSession) readExternalResources(ctx context.Context, d *desiredState) error {
	if d.external != nil || !unmanaged.IsNeeded(d.manifests.Cluster) {
		return nil
	}

	facts, err := discovery.ReadUnmanaged(ctx, t.cfg, d.manifests.Cluster)
	if err != nil {
		return err
	}

	if err := unmanaged.Check(d.manifests.Cluster, d.manifests.Groups, facts).Err(); err != nil {
		return err
	}

	d.external = &facts

	return nil
}

// workerRolesByGroup are the IAM roles of workers by group: the join endpoint lets each group's machines in by theirs.
func (t *clusterSession) workerRolesByGroup(d *desiredState) map[string]string {
	out := map[string]string{}
	for _, g := range d.manifests.Groups {
		switch {
		case g.Spec.Role != v1alpha1.RoleWorker:
		case model.HasOwnRole(g):
			out[g.Metadata.Name] = model.GroupRoleName(t.name, t.cfg.Region, g.Metadata.Name)
		default:
			out[g.Metadata.Name] = t.sharedWorkerRole(d)
		}
	}

	return out
}

// sharedWorkerRole is the name of the IAM role that workers share.
func (t *clusterSession) sharedWorkerRole(d *desiredState) string {
	if profile := d.manifests.Cluster.Spec.CloudProvider.AWS.InstanceProfiles.Worker; profile != "" {
		return d.external.ProfileRoles[profile]
	}

	return model.RoleName(t.name, t.cfg.Region, v1alpha1.RoleWorker)
}
