// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// CheckPublishedSize returns an error if the control plane of the manifests has another number of machines than the node
// document that running machines follow. Terraform and CloudFormation cannot wait until a member has left etcd, so only
// 'slipway apply' changes the size of a cluster that it creates directly.
func (session *Session) CheckPublishedSize(ctx context.Context, d *Desired) error {
	published, err := session.readRevisions(ctx, d, v1alpha1.RoleControlPlane)
	if err != nil {
		return err
	}

	for _, g := range d.Manifests.Groups {
		current, known := published.Groups[g.Metadata.Name]
		if g.Spec.Role != v1alpha1.RoleControlPlane || !known {
			continue
		}

		key := node.DocumentKey(session.Name, v1alpha1.RoleControlPlane, g.Metadata.Name, current.Document)
		o, err := d.publishedStore().Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}

		if err != nil {
			return fmt.Errorf("read the current node document: %w", err)
		}

		doc, err := node.ParseDocument(o.Body)
		if err != nil || len(doc.Slots) == g.Spec.MinMachines() {
			continue // a document of another version cannot be compared
		}

		return diag.WithHint(
			fmt.Errorf("instancegroup/%s: spec.minSize %d: the control plane of %s has %d machines, and a template cannot "+
				"change that: etcd members leave before their machines end", g.Metadata.Name, g.Spec.MinMachines(), session.Name,
				len(doc.Slots)),
			"keep it; only clusters that 'slipway apply' creates directly can change their size",
		)
	}

	return nil
}
