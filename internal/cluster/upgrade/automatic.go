// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Permission is whether an automatic upgrade may run, and until when.
type Permission struct {
	// Until is the end of the maintenance window; the zero time if the upgrade may not run.
	Until time.Time
	// Reason says why it may not run.
	Reason string
}

// Permit decides whether an automatic upgrade of a cluster with these settings may run at now.
func Permit(settings v1alpha1.Upgrade, now time.Time) Permission {
	if !settings.AutomaticPatches {
		return Permission{Reason: "spec.upgrade.automaticPatches is false"}
	}

	window := manifest.NewMaintenanceWindow(settings.MaintenanceWindow)
	if end, open := window.End(now); open {
		return Permission{Until: end}
	}

	return Permission{Reason: "the next maintenance window begins at " + window.Next(now).Format(time.RFC3339)}
}

// errWindowEnded is the cause of an automatic upgrade's interruption.
var errWindowEnded = errors.New("the maintenance window has ended")

// RunAutomatic upgrades a cluster to the newest patch of its minor version if its manifests allow that at this time.
// It takes no machine from service after the end of the maintenance window; the next window's run continues.
// req.Version must be empty.
func RunAutomatic(ctx context.Context, env *cluster.Env, req Request) (Result, error) {
	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return Result{}, err
	}

	set, err := clusterstate.LoadManifests(ctx, state, req.Name)
	if err != nil {
		return Result{}, err
	}

	permission := Permit(set.Cluster.Spec.Upgrade, env.Now())
	if permission.Until.IsZero() {
		return Result{UpToDate: true, Reason: permission.Reason}, nil
	}

	left := permission.Until.Sub(env.Now())
	ctx, cancel := context.WithTimeoutCause(ctx, left, errWindowEnded)
	defer cancel()

	req.patchesOnly = true
	result, err := Run(ctx, env, req)

	return result, explainWindowEnd(ctx, permission, err)
}

// explainWindowEnd adds to the error of an upgrade that the maintenance window has ended, if that interrupted it.
func explainWindowEnd(ctx context.Context, permission Permission, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errWindowEnded) {
		return err
	}

	return diag.WithHint(
		fmt.Errorf("%w at %s: %w", errWindowEnded, permission.Until.Format(time.RFC3339), err),
		"the next run with --automatic in a maintenance window continues; without --automatic, it continues at once",
	)
}

// automaticTarget returns the target of an automatic upgrade, and why there is none: a group or a machine has another
// minor version, so that an upgrade by somebody is not complete. An unfinished upgrade to a patch is continued.
func automaticTarget(o Observation, available []Version) (target Version, reason string) {
	desired := desiredVersion(o)
	for _, g := range o.Groups {
		if g.Desired.minorsAhead(desired) != 0 || g.Applied.minorsAhead(desired) != 0 {
			return desired, fmt.Sprintf("the upgrade to %s is not complete: group %s has %s", desired, g.Name, g.Applied)
		}
	}

	if at := slices.IndexFunc(o.Groups, func(g Group) bool { return g.RolledBack }); at >= 0 {
		return desired, fmt.Sprintf("group %s was rolled back to an earlier launch template", o.Groups[at].Name)
	}

	for _, m := range o.Machines {
		if m.Version.minorsAhead(desired) != 0 {
			return desired, fmt.Sprintf("the upgrade to %s is not complete: node %s has %s", desired, m.Node, m.Version)
		}
	}

	if s := Decide(o, desired); s.Type != StepDone {
		return desired, ""
	}

	best := desired
	for _, v := range available {
		if v.Major == desired.Major && v.minorsAhead(desired) == 0 && v.Compare(best) > 0 {
			best = v
		}
	}

	return best, ""
}
