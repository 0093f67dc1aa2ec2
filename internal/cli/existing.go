// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/existing"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/model"
)

// findExisting looks, once, at what the manifest names by its id, and refuses what is not there or does not fit.
func (t *target) findExisting(ctx context.Context, d *desired) error {
	if d.facts != nil || !existing.Needed(d.set.Cluster) {
		return nil
	}
	facts, err := aws.ReadExisting(ctx, t.cfg, d.set.Cluster)
	if err != nil {
		return err
	}
	if err := existing.Check(d.set.Cluster, d.set.Groups, facts).Err(); err != nil {
		return err
	}
	d.facts = &facts
	return nil
}

// workerRoles are the IAM roles of workers by group: the join endpoint lets each group's machines in by theirs.
func (t *target) workerRoles(d *desired) map[string]string {
	out := map[string]string{}
	for _, g := range d.set.Groups {
		switch {
		case g.Spec.Role != v1alpha1.RoleWorker:
		case model.OwnRights(g):
			out[g.Metadata.Name] = model.GroupRoleName(t.name, t.cfg.Region, g.Metadata.Name)
		default:
			out[g.Metadata.Name] = t.workerRole(d)
		}
	}
	return out
}

// workerRole is the name of the IAM role that workers share.
func (t *target) workerRole(d *desired) string {
	if profile := d.set.Cluster.Spec.CloudProvider.AWS.InstanceProfiles.Worker; profile != "" {
		return d.facts.Roles[profile]
	}
	return model.RoleName(t.name, t.cfg.Region, v1alpha1.RoleWorker)
}
