// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// updateAll is the forward phase of an update.
func (s *Service) updateAll(ctx context.Context, st *stack, op *stackOperation) error {
	sd, err := s.newTransition(st, op, op.New, op.Old)
	if err != nil {
		return err
	}

	failures, err := s.applyResources(ctx, sd)
	if err != nil {
		return err
	}

	return s.store.WithLock(func() error {
		if op.Cancelled != "" {
			failures = map[string]error{"": errors.New(op.Cancelled)}
		}

		if len(failures) == 0 {
			failures = s.storeOutputs(sd)
		}

		if len(failures) == 0 {
			failures = s.checkRemovals(sd)
		}

		if len(failures) == 0 {
			s.queueRemoved(sd)
			st.stackContent = op.New
			st.Updated = s.cfg.Now().UTC()
			op.Phase = "cleanup"
			s.setStackStatus(st, "UPDATE_COMPLETE_CLEANUP"+suffixInProgress, "")

			return nil
		}

		why := updateFailureReason(st, failures)
		if op.KeepOnFailure {
			st.stackContent = op.New
			st.Op = nil
			s.setStackStatus(st, "UPDATE"+suffixFailed, why)

			return nil
		}

		op.Phase = "rollback"
		op.Done = map[string]bool{}
		s.setStackStatus(st, "UPDATE_ROLLBACK"+suffixInProgress, why)

		return nil
	})
}

// checkRemovals returns the removals that the stack policy or an import by another stack forbids. The caller
// holds the store's lock.
func (s *Service) checkRemovals(sd stackTransition) map[string]error {
	failures := map[string]error{}
	var gone []stackOutput
	for _, o := range sd.operation.Old.Outputs {
		if !slices.ContainsFunc(
			sd.operation.New.Outputs,
			func(n stackOutput) bool { return n.Export == o.Export && n.Value == o.Value },
		) {
			gone = append(gone, o)
		}
	}

	if export, by := s.state.exportInUse(gone); export != "" {
		failures[""] = template.ValidationError(
			"Export %s cannot be updated as it is in use by %s",
			export,
			strings.Join(by, ", "),
		)

		return failures
	}

	nodes, err := s.enabledResources(sd)
	if err != nil {
		return map[string]error{"": err}
	}

	for _, name := range sdkshape.SortedKeys(sd.stack.Resources) {
		r := sd.stack.Resources[name]
		if _, stays := nodes[name]; stays || r.Status == statusDeleted {
			continue
		}

		if why := deniedByPolicy(sd, r, "Update:Delete"); why != "" {
			failures[name] = errors.New(why)
			s.setResourceStatus(sd.stack, r, "UPDATE"+suffixFailed, why)
		}
	}

	return failures
}

// queueRemoved moves the resources that the new template does not have to the operation's garbage. The caller
// holds the store's lock.
func (s *Service) queueRemoved(sd stackTransition) {
	nodes, err := s.enabledResources(sd)
	if err != nil {
		return // cannot happen: it was evaluated before
	}

	for _, name := range sdkshape.SortedKeys(sd.stack.Resources) {
		if _, stays := nodes[name]; stays {
			continue
		}

		r := sd.stack.Resources[name]
		delete(sd.stack.Resources, name)
		if r.Status != statusDeleted {
			sd.operation.Garbage = append(sd.operation.Garbage, r)
		}
	}
}

// updateResource updates a resource in place.
func (s *Service) updateResource(
	ctx context.Context,
	sd stackTransition,
	r *resource,
	m evaluatedResource,
) error {
	err := s.store.WithLock(func() error {
		if r.PreviousProperties == nil {
			r.PreviousProperties = emptyIfNil(r.Properties)
			r.Signals = nil
			r.RollingUpdate = nil
			sd.operation.Touched[r.Logical] = true
			r.Properties = m.props
			s.setResourceStatus(sd.stack, r, "UPDATE"+suffixInProgress, "")
		}

		return nil
	})
	if err != nil {
		return err
	}

	updateCtx, req := s.newRequest(ctx, sd.stack, r)
	req.Properties = m.props
	req.OldProperties = r.PreviousProperties
	req.StackTags = sd.after.Tags
	req.OldStackTags = sd.before.Tags
	req.Policy = m.spec.UpdatePolicy
	req.Rollback = sd.rollback
	if req.Attributes == nil {
		req.Attributes = template.Object{}
	}

	if update := req.Type.Update; update != nil {
		if err := update(expectUnseen(updateCtx), req); err != nil {
			return errors.Join(
				s.failResource(ctx, sd, r.Logical, "UPDATE", err),
				s.clearPreviousProperties(r),
			)
		}
	}

	return s.completeResource(sd, r, req, "UPDATE")
}

// clearPreviousProperties ends a failed update of a resource: its new properties count as its properties.
func (s *Service) clearPreviousProperties(r *resource) error {
	return s.store.WithLock(func() error {
		r.PreviousProperties = nil
		r.RollingUpdate = nil // a rollback starts its own rolling update
		s.store.MarkChanged()

		return nil
	})
}

// replaceResource creates the replacement of a resource that cannot be updated in place. The old resource is
// deleted at the end of the operation.
func (s *Service) replaceResource(
	ctx context.Context,
	sd stackTransition,
	r *resource,
	m evaluatedResource,
) error {
	t := lookupType(r.Type)
	name, _ := template.ScalarText(m.props[t.NameProperty])
	if old, _ := template.ScalarText(
		r.Properties[t.NameProperty],
	); t.NameProperty != "" && name != "" && name == old {
		return s.failResource(
			ctx,
			sd,
			r.Logical,
			"UPDATE",
			template.ValidationError(
				"CloudFormation cannot update a stack when a custom-named resource requires replacing. Rename %s and update the stack again.",
				name,
			),
		)
	}

	err := s.store.WithLock(func() error {
		old := r.clone()
		sd.operation.Garbage = append(sd.operation.Garbage, old)
		s.setResourceStatus(
			sd.stack,
			r,
			"UPDATE"+suffixInProgress,
			"Requested update requires the creation of a new physical resource; hence creating one.",
		)

		r.Physical = ""
		r.Attributes = nil
		r.CreationStarted = false
		sd.operation.Touched[r.Logical] = true

		return nil
	})
	if err != nil {
		return err
	}

	return s.createResource(ctx, sd, r.Logical, m)
}

// cleanUp is the last phase of an update: it deletes what the update has replaced or removed. A deletion that
// fails only adds an event.
func (s *Service) cleanUp(ctx context.Context, st *stack, op *stackOperation) error {
	if err := s.deleteGarbage(ctx, st, op); err != nil {
		return err
	}

	return s.store.WithLock(func() error {
		st.Op = nil
		s.setStackStatus(st, "UPDATE"+suffixComplete, "")
		return nil
	})
}

// deleteGarbage deletes the garbage of an operation, in the reverse order of the dependencies.
func (s *Service) deleteGarbage(ctx context.Context, st *stack, op *stackOperation) error {
	after := map[string][]string{}
	byKey := map[string]*resource{}
	for _, r := range op.Garbage {
		after[r.Logical] = r.After
		byKey[r.Logical] = r
	}

	dependencyGraph{
		dependencies: reverseEdges(after),
	}.walk(
		ctx,
		func(ctx context.Context, name string) error {
			r := byKey[name]
			policy := r.UpdateReplacePolicy
			if st.Resources[name] == nil {
				policy = r.DeletionPolicy
			}

			young := op.OldResources[name] == nil || op.OldResources[name].Physical != r.Physical
			keep := policy == "Retain" || policy == "RetainExceptOnCreate"

			return s.deleteResource(ctx, st, r, keep && (!young || op.Phase != "undo"))
		},
	)
	if ctx.Err() != nil {
		return errStopping
	}

	return nil
}

// rollBackUpdate is the phase that restores the content of a stack from before a failed update.
func (s *Service) rollBackUpdate(ctx context.Context, st *stack, op *stackOperation) error {
	if err := s.store.WithLock(func() error { s.restoreResources(st, op); return nil }); err != nil {
		return err
	}

	sd, err := s.newTransition(st, op, op.Old, op.New)
	if err != nil {
		return err
	}

	sd.rollback = true
	failures, err := s.applyResources(ctx, sd)
	if err != nil {
		return err
	}

	if ctx.Err() != nil {
		return errStopping
	}

	return s.store.WithLock(func() error {
		for _, name := range op.Skip {
			delete(failures, name)
		}

		if len(failures) > 0 {
			st.Op = nil
			st.Stuck = op
			s.setStackStatus(st, "UPDATE_ROLLBACK"+suffixFailed, failureReason("update", failures))

			return nil
		}

		st.stackContent = op.Old
		op.Phase = "undo"
		s.setStackStatus(st, "UPDATE_ROLLBACK_COMPLETE_CLEANUP"+suffixInProgress, "")

		return nil
	})
}

// restoreResources puts replaced resources back in place, and moves what the update created to the garbage.
// It is idempotent. The caller holds the store's lock.
func (s *Service) restoreResources(st *stack, op *stackOperation) {
	isOld := func(r *resource) bool {
		o := op.OldResources[r.Logical]
		return o != nil && o.Physical == r.Physical
	}

	op.Garbage = slices.DeleteFunc(op.Garbage, isOld)
	for _, name := range sdkshape.SortedKeys(st.Resources) {
		if r := st.Resources[name]; r.Physical == "" || !isOld(r) {
			s.restoreResource(st, op, r)
		}
	}

	for _, name := range sdkshape.SortedKeys(op.OldResources) {
		if st.Resources[name] == nil {
			st.Resources[name] = op.OldResources[name].clone()
		}
	}

	s.store.MarkChanged()
}

// restoreResource puts the old resource back in place of r, if there was one, and moves r to the garbage, if
// it was created. The caller holds the store's lock.
func (s *Service) restoreResource(st *stack, op *stackOperation, r *resource) {
	name := r.Logical
	old := op.OldResources[r.Logical]
	if old == nil && r.CreationStarted || r.Physical != "" {
		op.Garbage = append(op.Garbage, r)
	}

	delete(st.Resources, name)
	if old == nil {
		return
	}

	st.Resources[name] = old.clone()
	s.setResourceStatus(st, st.Resources[name], "UPDATE"+suffixComplete, "")
	op.Done[name] = false
	delete(op.Touched, name)
}

// cleanUpRollback is the last phase of a rollback: it deletes what the update created.
func (s *Service) cleanUpRollback(ctx context.Context, st *stack, op *stackOperation) error {
	if err := s.deleteGarbage(ctx, st, op); err != nil {
		return err
	}

	return s.store.WithLock(func() error {
		st.Op = nil
		st.Stuck = nil
		s.setStackStatus(st, "UPDATE_ROLLBACK"+suffixComplete, "")

		return nil
	})
}
