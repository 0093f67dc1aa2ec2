// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// IsSlotAbsent reports whether the agent of etcd's leader has recorded that a slot is not in the control plane and has no
// member. The record is read now. It counts if it is signed and names all volumes that the slot has in AWS: what was signed when the slot
// was absent before can be written again. Agents of earlier versions do not name them.
func (session *Session) IsSlotAbsent(ctx context.Context, d *Desired, slot string) (bool, error) {
	key := node.EtcdAbsentKey(session.Name, slot)
	o, err := d.MachineStore.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("read whether etcd has a member of slot %s: %w", slot, err)
	}

	public, err := pki.LoadPublicBundle(ctx, d.View, session.Name)
	if err != nil {
		return false, err
	}

	var record node.AbsentSlot
	err = node.ReadRecord(o.Body, key, public.CAs[pki.KubernetesCA], &record)
	if node.IsUntrusted(err) {
		return false, nil // the leader's agent writes it again
	}

	if err != nil {
		return false, err
	}

	var volumes []string
	for _, r := range d.Plan.ExistingResources() {
		if v, isVolume := r.Resource.(awskind.Volume); isVolume && v.Tags[awskind.TagSlot] == slot {
			volumes = append(volumes, r.ID)
		}
	}

	return record.Covers(volumes), nil
}

// withoutAbsent returns the lost volumes without those of absent slots: the control plane had become smaller.
func (session *Session) withoutAbsent(ctx context.Context, d *Desired, lost LostVolumes) (LostVolumes, error) {
	volumes := EtcdVolumes(d.Graph)
	var out []graph.Addr
	for _, addr := range lost.Lost {
		absent, err := session.IsSlotAbsent(ctx, d, volumes[addr])
		if err != nil {
			return lost, err
		}

		if !absent {
			out = append(out, addr)
		}
	}

	lost.Lost = out

	return lost, nil
}
