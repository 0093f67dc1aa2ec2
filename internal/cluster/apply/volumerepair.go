// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/cluster"
)

// volumeRepair creates lost etcd volumes of a cluster whose machines must not be changed, because the digests of their images
// are not known. It implements [Provisioner], also for a cluster with a CloudFormation stack, which would not create again what
// it has created once.
type volumeRepair struct {
	session  *cluster.Session
	desired  *cluster.Desired
	unpinned error
}

// Propose plans the creation of the volumes.
func (p *volumeRepair) Propose(ctx context.Context) (*cluster.Review, error) {
	findings, err := cluster.ComputeVolumeRepair(ctx, p.session, p.desired, p.unpinned)
	if err != nil {
		return nil, err
	}

	review := p.desired.Review()

	return &review, findings.Err()
}

// Record has nothing more to record: the cluster has a provisioner.
func (p *volumeRepair) Record(context.Context) error { return nil }

// Execute creates the volumes. The manifests were not applied.
func (p *volumeRepair) Execute(ctx context.Context) error {
	if err := p.session.Walk(ctx, p.desired.Plan, p.session.Cloud); err != nil {
		return err
	}

	return cluster.RecordRepaired(ctx, p.session)
}

// Unchanged is not called: a plan without lost volumes is refused.
func (p *volumeRepair) Unchanged(context.Context) error { return nil }

// Discard has nothing to discard.
func (p *volumeRepair) Discard(context.Context) error { return nil }
