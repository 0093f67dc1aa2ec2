// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// IsSlotAbsent reports whether the agent of etcd's leader has recorded that a slot is not in the control plane and has no
// member. The record is read now.
func (session *Session) IsSlotAbsent(ctx context.Context, d *Desired, slot string) (bool, error) {
	o, err := d.MachineStore.Get(ctx, node.EtcdAbsentKey(session.Name, slot))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("read whether etcd has a member of slot %s: %w", slot, err)
	}

	var record struct {
		Absent bool `json:"absent"`
	}
	if err := json.Unmarshal(o.Body, &record); err != nil {
		return false, fmt.Errorf("read %s: %w", o.Key, err)
	}

	return record.Absent, nil
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
