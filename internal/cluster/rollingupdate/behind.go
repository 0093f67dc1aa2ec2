// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// GroupsRolledBack returns the names of the groups that launch machines from an earlier version of their launch template than
// the newest one, because a rollback has returned them to it, sorted. Groups that only wait for a rolling update are none
// of them.
func GroupsRolledBack(ctx context.Context, session *cluster.Session, state store.Store) ([]string, error) {
	owner, _, err := clusterstate.ReadOwnership(ctx, state, session.Name)
	if err != nil {
		return nil, err
	}

	good := goodVersions{store: state, cluster: session.Name}
	record, _, err := good.readRecord(ctx)
	if err != nil || len(record.Failed) == 0 {
		return nil, err
	}

	machines := newAWSMachines(session.Config, session.Name, owner, session.Env.Now)
	machines.Avoid(record.Failed)

	return machines.rolledBack(ctx)
}

func (a *awsMachines) rolledBack(ctx context.Context) ([]string, error) {
	groups, _, err := a.List(ctx)
	if err != nil {
		return nil, err
	}

	var out []string
	for _, g := range groups {
		if g.Avoided != "" {
			out = append(out, g.Name)
		}
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}
