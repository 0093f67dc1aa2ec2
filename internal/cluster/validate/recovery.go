// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// readRecovery reads what the machines report on a missing quorum of etcd, and the newest generation, from the machine store.
func readRecovery(ctx context.Context, s store.Store, cluster string) (*health.Recovery, error) {
	var out health.Recovery
	keys, err := s.List(ctx, node.EtcdQuorumReportPrefix(cluster))
	if err != nil {
		return nil, err
	}

	for _, key := range keys {
		var r etcd.QuorumReport
		if err := readObject(ctx, s, key, &r); err != nil {
			return nil, err
		}

		if !r.Quorum && r.Step != etcd.RecoverNothing {
			out.Waiting = append(out.Waiting, health.QuorumLoss{
				Slot:       r.Slot,
				LostData:   r.LostData,
				Manual:     r.Step == etcd.RecoverManual,
				Reason:     r.Reason,
				LostAt:     r.LostAt,
				DueAt:      r.DueAt,
				ReportedAt: r.ReportedAt,
			})
		}
	}

	generations, err := s.List(ctx, node.EtcdGenerationPrefix(cluster))
	if err != nil || len(generations) == 0 {
		return &out, err
	}

	var g etcd.Generation
	if err := readObject(ctx, s, generations[len(generations)-1], &g); err != nil {
		return nil, err
	}

	if g.Recovery != nil {
		out.Last = &health.Recovered{
			At:       g.CreatedAt,
			Backup:   g.Backup,
			Survivor: g.Recovery.Survivor,
			Slot:     g.Slot,
			Loss:     g.Recovery.DescribeLoss(),
		}
	}

	return &out, nil
}

// readObject decodes an object of a store that is JSON.
func readObject(ctx context.Context, s store.Store, key string, into any) error {
	o, err := s.Get(ctx, key)
	if err != nil {
		return err
	}

	if err := json.Unmarshal(o.Body, into); err != nil {
		return fmt.Errorf("read %s in %s: %w", key, s.URL(), err)
	}

	return nil
}
