// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/planfile"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// SavedRequest asks to apply a saved plan.
type SavedRequest struct {
	// File is the plan.
	File planfile.File
	// Path is where it was read from, for messages.
	Path string
	// Provisioner that the caller asked for; a saved plan is always executed directly.
	Provisioner clusterstate.Provisioner
}

// RefusedError is returned for a saved plan that is for another cluster, or that is stale.
type RefusedError struct {
	// Reasons why, one line each.
	Reasons []string

	err error
}

// Error implements error.
func (e *RefusedError) Error() string { return e.err.Error() }

// Unwrap returns the error with its hint.
func (e *RefusedError) Unwrap() error { return e.err }

// RunSaved applies a saved plan if nothing that it depends on has changed. It computes the plan again under
// the lock and compares the two, so the content of the file is not trusted. Errors may be a [RefusedError].
func RunSaved(ctx context.Context, env *cluster.Env, req SavedRequest) (Result, error) {
	name := req.File.Identity.Cluster
	result := Result{Cluster: name}
	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return result, err
	}

	if err := checkIdentity(ctx, env, state, req); err != nil {
		return result, err
	}

	if env.ReadOnly {
		return runSavedLocked(ctx, env, nil, state, req)
	}

	kind := "apply"
	if req.File.Destroy {
		kind = "delete"
	}

	err = env.RunOperation(
		ctx,
		cluster.OperationRequest{Store: state, Cluster: name, Kind: kind},
		func(ctx context.Context, op *operation.Operation, guarded store.Store) (err error) {
			result, err = runSavedLocked(ctx, env, op, guarded, req)
			return err
		},
	)

	return result, err
}

// checkIdentity compares the account, region and state store of the plan with ours, before anything is
// locked or read.
func checkIdentity(ctx context.Context, env *cluster.Env, state store.Store, req SavedRequest) error {
	session, err := cluster.Open(ctx, env, req.File.Identity.Cluster, req.File.Identity.Region)
	if err != nil {
		return err
	}

	id, err := identify(ctx, session, state)
	if err != nil {
		return err
	}

	if reasons := req.File.IdentityMismatches(id); len(reasons) > 0 {
		return &RefusedError{reasons, diag.WithHint(
			fmt.Errorf("the plan %s is for another account, region or state store; nothing was changed", req.Path),
			"apply it with its own account, region and state store, or plan again",
		)}
	}

	return nil
}

// runSavedLocked is RunSaved under the lock of op; without an operation it cannot get past the approval.
func runSavedLocked(
	ctx context.Context,
	env *cluster.Env,
	op *operation.Operation,
	guarded store.Store,
	req SavedRequest,
) (Result, error) {
	result := Result{Cluster: req.File.Identity.Cluster}
	planned, planErr := planAgain(ctx, env, guarded, req)
	if planned == nil {
		return result, planErr
	}

	now, err := planned.File(ctx)
	if err != nil {
		return result, err
	}

	if reasons := req.File.StaleReasons(now); len(reasons) > 0 {
		return result, newStaleError(req, reasons)
	}

	if planErr != nil {
		return result, planErr
	}

	if planned.destruction != nil {
		result.Destroyed, err = planned.destruction.Run(ctx, op, guarded)
		return result, err
	}

	planned.session.UseOperation(op, guarded)
	if op != nil { // the plan was computed without one, and did not open the key
		if err := cluster.CheckAuthority(ctx, planned.session, planned.run.desired); err != nil {
			return result, err
		}
	}

	return planned.run.execute(ctx, planned.Review)
}

// planAgain computes the plan of a file anew.
func planAgain(
	ctx context.Context,
	env *cluster.Env,
	state store.Store,
	req SavedRequest,
) (*Planned, error) {
	request := Request{
		Name:        req.File.Identity.Cluster,
		Provisioner: req.Provisioner,
		Options: cluster.PlanOptions{
			DestroyData:         req.File.DestroyData,
			RecreateLostVolumes: req.File.RecreateLostVolumes,
		},
	}

	if req.File.Destroy {
		return planDestroy(ctx, env, state, request)
	}

	r, err := load(ctx, env, request)
	if err != nil {
		return nil, err
	}

	if r.usesStack {
		return nil, fmt.Errorf(
			"cluster %s is created by CloudFormation: a saved plan cannot be applied to it",
			request.Name,
		)
	}

	return r.plan(ctx, state, request.Options)
}

// newStaleError refuses a plan that does not match what was planned now.
func newStaleError(req SavedRequest, reasons []string) error {
	err := fmt.Errorf(
		"the plan %s, saved by %s at %s, is stale; nothing was changed",
		req.Path,
		req.File.CreatedBy,
		cluster.FormatTime(req.File.CreatedAt),
	)

	return &RefusedError{reasons, diag.WithHint(err, fmt.Sprintf(
		"review what changed, then plan again: slipway plan %s --out %s",
		req.File.Identity.Cluster,
		req.Path,
	))}
}
