// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// pools are the groups whose machines Karpenter launches and replaces. An update only says with
// what: Karpenter then calls machines with anything else drifted, and replaces them within the
// disruption budgets of the group's NodePool.
type pools interface {
	// Waiting returns the groups whose machines are launched otherwise after an update.
	Waiting(ctx context.Context) ([]string, error)
	// Promote lets Karpenter launch the machines of groups as the last apply wanted it.
	Promote(ctx context.Context, groups []string) ([]string, error)
}

// sessionPools are the pools of a cluster.
type sessionPools struct {
	session *cluster.Session
	groups  []string
}

// newPools returns the pools that a request is about; nil without any. A rollback and a forced
// update are not about them: nothing is known of the machines that Karpenter had launched before,
// and it ends machines by itself.
func newPools(session *cluster.Session, set manifest.Set, req Request) pools {
	var groups []string
	for _, g := range manifest.KarpenterGroups(set.Groups) {
		if len(req.Groups) == 0 || slices.Contains(req.Groups, g.Metadata.Name) {
			groups = append(groups, g.Metadata.Name)
		}
	}

	if len(groups) == 0 || req.Rollback {
		return nil
	}

	return sessionPools{session: session, groups: groups}
}

// Waiting implements pools.
func (p sessionPools) Waiting(ctx context.Context) ([]string, error) {
	publisher, err := p.publisher(ctx)
	if err != nil {
		return nil, err
	}

	return publisher.FindWaiting(ctx, p.groups)
}

// Promote implements pools.
func (p sessionPools) Promote(ctx context.Context, groups []string) ([]string, error) {
	publisher, err := p.publisher(ctx)
	if err != nil {
		return nil, err
	}

	return publisher.Promote(ctx, groups)
}

// publisher returns the publisher of the launches that the manifests want now.
func (p sessionPools) publisher(ctx context.Context) (cluster.LaunchPublisher, error) {
	d, err := cluster.Load(ctx, p.session.Env, p.session.Name)
	if err != nil {
		return cluster.LaunchPublisher{}, err
	}

	return cluster.NewLaunchPublisher(p.session, d), nil
}

// update is what an update changes.
type update struct {
	first   rollout.Observation
	options rollout.Options
	// hasMachines is set if machines of Auto Scaling groups are replaced, or get another version.
	hasMachines bool
	// pools are the groups whose machines Karpenter replaces.
	pools []string
}

// isEmpty reports whether there is nothing to do.
func (p update) isEmpty() bool { return !p.hasMachines && len(p.pools) == 0 }

// runAll replaces machines, and then has Karpenter replace its own. stop ends the former before the
// latter begin.
func (u *updater) runAll(ctx context.Context, stop <-chan struct{}, p update) error {
	if p.hasMachines {
		if err := u.runLocked(ctx, stop, p.first, p.options); err != nil {
			return err
		}
	}

	return u.promotePools(ctx, p.pools)
}

// findWaitingPools returns the groups of Karpenter that the update changes, and tells about them.
func (u *updater) findWaitingPools(ctx context.Context) ([]string, error) {
	if u.pools == nil {
		return nil, nil
	}

	waiting, err := u.pools.Waiting(ctx)
	if len(waiting) > 0 {
		u.notify(
			"Karpenter will replace the machines of %s, within the disruption budgets of their NodePools",
			strings.Join(waiting, ", "),
		)
	}

	return waiting, err
}

// promotePools lets Karpenter replace the machines of groups. It does not wait for that.
func (u *updater) promotePools(ctx context.Context, groups []string) error {
	if len(groups) == 0 {
		return nil
	}

	changed, err := u.pools.Promote(ctx, groups)
	if err != nil {
		return err
	}

	if len(changed) > 0 {
		u.notify(
			"Karpenter replaces the machines of %s from now on; watch it with: kubectl get nodeclaims",
			strings.Join(changed, ", "),
		)
	}

	return nil
}
