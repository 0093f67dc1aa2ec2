// SPDX-License-Identifier: Apache-2.0

// Package rollingupdate replaces the machines of a running cluster, one after the other, until all of them have the
// newest launch template of their groups.
//
// It observes AWS and Kubernetes, has package rollout decide, and carries the decision out: it cordons and drains nodes
// (package drain) and terminates machines, which their Auto Scaling groups replace. What has begun is visible on the
// nodes, so that a run that was killed is continued by the next one.
package rollingupdate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Request asks to replace the machines of a cluster.
type Request struct {
	// Name of the cluster.
	Name string
	// Groups are the names of the groups to update. Empty: all.
	Groups []string
	// Force also replaces machines that have the newest launch template.
	Force bool
	// MaxUnavailable is how many workers of a group may be missing at once: a number or a percentage of the group's
	// size, such as 25%, rounded down, at least 1. Empty: 1.
	MaxUnavailable string
	// DrainTimeout is how long a drain may take before the update stops. Zero: no limit.
	DrainTimeout time.Duration
	// JoinTimeout is how long a new machine may take until it is Ready. Required.
	JoinTimeout time.Duration
	// Show shows the machines that will be replaced.
	Show func([]rollout.Action) error
	// Approve asks whether to do it; an error stops the request.
	Approve func(replaced int) error
}

// Result is how an update ended.
type Result struct {
	// Replaced is the number of machines that were terminated.
	Replaced int
	// UpToDate is set if there was nothing to do.
	UpToDate bool
	// Took is how long it took after the approval.
	Took time.Duration
}

// Run shows which machines it would replace and, once that is approved, replaces them under the cluster's lock. If
// Env.ReadOnly it only shows.
func Run(ctx context.Context, env *cluster.Env, req Request) (Result, error) {
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return Result{}, err
	}

	set, err := clusterstate.LoadManifests(ctx, state, req.Name)
	if err != nil {
		return Result{}, err
	}

	if err := checkGroups(set, req); err != nil {
		return Result{}, err
	}

	session, err := cluster.Open(ctx, env, req.Name, set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return Result{}, err
	}

	u, err := newUpdater(ctx, session, updateSource{state: state, sealer: sealer, set: set}, req)
	if err != nil {
		return Result{}, err
	}

	return u.showAndRun(ctx, func(ctx context.Context, do func(context.Context) error) error {
		operationRequest := cluster.OperationRequest{Store: state, Cluster: req.Name, Kind: "rolling-update"}

		return env.RunOperation(ctx, operationRequest, func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			session.UseOperation(op, guarded)
			return do(ctx)
		})
	})
}

// updateSource is what an update reads besides AWS and Kubernetes.
type updateSource struct {
	state  store.Store
	sealer store.Sealer
	set    manifest.Set
}

// newUpdater connects to the cluster. It refuses the machines of another cluster of the same name, and outdated copies
// of a state store.
func newUpdater(ctx context.Context, session *cluster.Session, from updateSource, req Request) (*updater, error) {
	if _, err := session.ReadResources(ctx, from.state, from.set); err != nil {
		return nil, err
	}

	owner, _, err := clusterstate.ReadOwnership(ctx, from.state, req.Name)
	if err != nil {
		return nil, err
	}

	env := session.Env
	client, err := access.NewKubeClient(ctx, session.Config, access.Request{
		Store:   from.state,
		Sealer:  from.sealer,
		Cluster: req.Name,
		User:    env.User,
		Now:     env.Now,
	})
	if err != nil {
		return nil, err
	}

	machines := newAWSMachines(session.Config, req.Name, owner, env.Now)
	u := updater{env: env, request: req, client: client, machines: machines}
	u.observer, err = newObserver(env, req, machines, client)

	return &u, err
}

// checkGroups rejects groups that the cluster does not have or that have no nodes.
func checkGroups(set manifest.Set, req Request) error {
	known := map[string]bool{}
	var names []string
	for _, g := range set.Groups {
		known[g.Metadata.Name] = true
		names = append(names, g.Metadata.Name)
	}

	for _, name := range req.Groups {
		if !known[name] {
			return diag.WithHint(
				fmt.Errorf("cluster %s has no group %s", req.Name, name),
				"use one of "+strings.Join(names, ", "),
			)
		}
	}

	return nil
}

// newObserver returns an observer with the policy of the request for every group.
func newObserver(
	env *cluster.Env,
	req Request,
	machines machineLister,
	client kubernetes.Interface,
) (observer, error) {
	limit, err := parseMaxUnavailable(req.MaxUnavailable)
	if err != nil {
		return observer{}, err
	}

	return observer{now: env.Now, machines: machines, client: client, maxUnavailable: limit}, nil
}

// showAndRun shows the plan, asks for approval, and replaces machines while it holds the lock.
func (u *updater) showAndRun(
	ctx context.Context,
	underLock func(context.Context, func(context.Context) error) error,
) (Result, error) {
	first, err := u.observer.observe(ctx)
	if err != nil {
		return Result{}, err
	}

	if !first.APIReady {
		return Result{}, diag.WithHint(
			errors.New("the Kubernetes API does not answer, so that nodes cannot be drained"),
			"slipway validate cluster "+u.request.Name+" shows why",
		)
	}

	options := u.options(first)
	planned := rollout.Plan(first, options)
	if err := u.request.Show(planned); err != nil {
		return Result{}, err
	}

	if len(planned) == 0 {
		return Result{UpToDate: true}, nil
	}

	if err := u.request.Approve(len(planned)); err != nil {
		return Result{}, err
	}

	start := u.env.Now()
	err = underLock(ctx, func(ctx context.Context) error { return u.replaceAll(ctx, options) })

	return Result{Replaced: u.replaced, Took: u.env.Now().Sub(start)}, err
}

// options returns the options of all decisions of this update.
func (u *updater) options(first rollout.Observation) rollout.Options {
	o := rollout.Options{JoinTimeout: u.request.JoinTimeout, Only: u.request.Groups}
	if u.request.Force {
		o.Force = first.Now
	}

	return o
}
