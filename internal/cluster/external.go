// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
)

// ReadExternalResources reads, once, the AWS resources that the manifest names by id, and stores them in d.
// Resources that are missing or do not fit are an error of type [diag.Findings].
func (session *Session) ReadExternalResources(ctx context.Context, d *Desired) error {
	if d.External != nil || !unmanaged.IsNeeded(d.Manifests.Cluster) {
		return nil
	}

	facts, err := discovery.ReadUnmanaged(ctx, session.Config, d.Manifests.Cluster, session.ownsTags)
	if err != nil {
		return err
	}

	if err := unmanaged.Check(d.Manifests.Cluster, d.Manifests.Groups, facts).Err(); err != nil {
		return err
	}

	d.External = &facts

	return nil
}

// workerRolesByGroup returns the name of the IAM role of each worker group. The join endpoint admits the
// machines of a group by this role.
func (session *Session) workerRolesByGroup(d *Desired) map[string]string {
	out := map[string]string{}
	for _, g := range d.Manifests.Groups {
		switch {
		case g.Spec.Role != v1alpha1.RoleWorker:
		case model.HasOwnRole(g):
			out[g.Metadata.Name] = model.GroupRoleName(session.Name, session.Config.Region, g.Metadata.Name)
		default:
			out[g.Metadata.Name] = session.sharedWorkerRole(d)
		}
	}

	return out
}

// sharedWorkerRole returns the name of the IAM role that worker groups without a role of their own share.
func (session *Session) sharedWorkerRole(d *Desired) string {
	if profile := d.Manifests.Cluster.Spec.CloudProvider.AWS.InstanceProfiles.Worker; profile != "" {
		return d.External.ProfileRoles[profile]
	}

	return model.RoleName(session.Name, session.Config.Region, v1alpha1.RoleWorker)
}
