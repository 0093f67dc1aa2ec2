// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// updateAll brings a stack to its new template.
func (s *Service) updateAll(ctx context.Context, st *stack, op *operation) error {
	sd, err := s.sideOf(st, op, op.New, op.Old)
	if err != nil {
		return err
	}
	failures, err := s.stage(ctx, sd)
	if err != nil {
		return err
	}
	return s.book.Do(func() error {
		if op.Cancelled != "" {
			failures = map[string]error{"": errors.New(op.Cancelled)}
		}
		if len(failures) == 0 {
			failures = s.conclude(sd)
		}
		if len(failures) == 0 {
			failures = s.mayDrop(sd)
		}
		if len(failures) == 0 {
			s.dropRemoved(sd)
			st.content, st.Updated, op.Phase = op.New, s.cfg.Now().UTC(), "cleanup"
			s.setStack(st, "UPDATE_COMPLETE_CLEANUP"+inProgress, "")
			return nil
		}
		why := reasonOfUpdate(st, failures)
		if op.KeepOnFailure {
			st.content, st.Op = op.New, nil
			s.setStack(st, "UPDATE"+failed, why)
			return nil
		}
		op.Phase, op.Done = "rollback", map[string]bool{}
		s.setStack(st, "UPDATE_ROLLBACK"+inProgress, why)
		return nil
	})
}

// mayDrop says which removals the stack policy or another stack's import forbids. The caller is inside the book.
func (s *Service) mayDrop(sd side) map[string]error {
	failures := map[string]error{}
	var gone []output
	for _, o := range sd.op.Old.Outputs {
		if !slices.ContainsFunc(sd.op.New.Outputs, func(n output) bool { return n.Export == o.Export && n.Value == o.Value }) {
			gone = append(gone, o)
		}
	}
	if export, by := s.needed(gone); export != "" {
		failures[""] = invalid("Export %s cannot be updated as it is in use by %s", export, strings.Join(by, ", "))
		return failures
	}
	nodes, err := s.nodes(sd)
	if err != nil {
		return map[string]error{"": err}
	}
	for _, name := range record.Keys(sd.st.Resources) {
		r := sd.st.Resources[name]
		if _, stays := nodes[name]; stays || r.Status == deleted {
			continue
		}
		if why := s.policyDenies(sd, r, "Update:Delete"); why != "" {
			failures[name] = errors.New(why)
			s.setResource(sd.st, r, "UPDATE"+failed, why)
		}
	}
	return failures
}

// dropRemoved moves what the new template no longer has to the things to delete. The caller is inside the book.
func (s *Service) dropRemoved(sd side) {
	nodes, err := s.nodes(sd)
	if err != nil {
		return // it was evaluated before
	}
	for _, name := range record.Keys(sd.st.Resources) {
		if _, stays := nodes[name]; stays {
			continue
		}
		r := sd.st.Resources[name]
		delete(sd.st.Resources, name)
		if r.Status != deleted {
			sd.op.Garbage = append(sd.op.Garbage, r)
		}
	}
}

// change brings a resource to new properties without replacing it.
func (s *Service) change(ctx context.Context, sd side, r *resource, m made) error {
	err := s.book.Do(func() error {
		if r.From == nil {
			r.From, r.Signals, r.Roll = orEmpty(r.Properties), nil, nil
			sd.op.Touched[r.Logical] = true
			r.Properties = m.props
			s.setResource(sd.st, r, "UPDATE"+inProgress, "")
		}
		return nil
	})
	if err != nil {
		return err
	}
	j := s.jobOf(ctx, sd.st, r)
	j.props, j.old, j.tags, j.oldTags, j.policy, j.rollback = m.props, r.From, sd.after.Tags, sd.before.Tags, m.spec.UpdatePolicy, sd.rollback
	if j.attributes == nil {
		j.attributes = tree{}
	}
	if c := types()[r.Type].change; c != nil {
		if err := c(j); err != nil {
			return errors.Join(s.fail(ctx, sd, r.Logical, "UPDATE", err), s.forget(r))
		}
	}
	return s.finish(sd, r, j, "UPDATE")
}

// forget ends a change that failed: what the resource has now is taken to be what it should have had.
func (s *Service) forget(r *resource) error {
	return s.book.Do(func() error {
		r.From, r.Roll = nil, nil // a rollback begins a rolling update of its own
		s.book.Dirty()
		return nil
	})
}

// replace makes a new resource in the place of one that cannot be changed; the old one goes at the end.
func (s *Service) replace(ctx context.Context, sd side, r *resource, m made) error {
	t := types()[r.Type]
	name, _ := text(m.props[t.name])
	if old, _ := text(r.Properties[t.name]); t.name != "" && name != "" && name == old {
		return s.fail(ctx, sd, r.Logical, "UPDATE", invalid("CloudFormation cannot update a stack when a custom-named resource requires replacing. Rename %s and update the stack again.", name))
	}
	err := s.book.Do(func() error {
		old := r.clone()
		sd.op.Garbage = append(sd.op.Garbage, old)
		s.setResource(sd.st, r, "UPDATE"+inProgress, "Requested update requires the creation of a new physical resource; hence creating one.")
		r.Physical, r.Attributes, r.Begun = "", nil, false
		sd.op.Touched[r.Logical] = true
		return nil
	})
	if err != nil {
		return err
	}
	return s.create(ctx, sd, r.Logical, made{m.props, m.spec, nil, "UPDATE"})
}

// cleanUp deletes what an update has replaced or removed. What cannot be deleted is only told.
func (s *Service) cleanUp(ctx context.Context, st *stack, op *operation) error {
	if err := s.burn(ctx, st, op); err != nil {
		return err
	}
	return s.book.Do(func() error {
		st.Op = nil
		s.setStack(st, "UPDATE"+complete, "")
		return nil
	})
}

// burn takes away an operation's garbage, those first that others do not need.
func (s *Service) burn(ctx context.Context, st *stack, op *operation) error {
	after, byKey := map[string][]string{}, map[string]*resource{}
	for _, r := range op.Garbage {
		after[r.Logical], byKey[r.Logical] = r.After, r
	}
	order{after: reversed(after)}.walk(ctx, func(ctx context.Context, name string) error {
		r := byKey[name]
		policy := r.UpdateReplacePolicy
		if st.Resources[name] == nil {
			policy = r.DeletionPolicy
		}
		young := op.OldResources[name] == nil || op.OldResources[name].Physical != r.Physical
		keep := policy == "Retain" || policy == "RetainExceptOnCreate"
		return s.removeOne(ctx, st, r, keep && (!young || op.Phase != "undo"))
	})
	if ctx.Err() != nil {
		return errStopping
	}
	return nil
}

// rollbackUpdate brings a stack back to what it was before an update.
func (s *Service) rollbackUpdate(ctx context.Context, st *stack, op *operation) error {
	if err := s.book.Do(func() error { s.restore(st, op); return nil }); err != nil {
		return err
	}
	sd, err := s.sideOf(st, op, op.Old, op.New)
	if err != nil {
		return err
	}
	sd.rollback = true
	failures, err := s.stage(ctx, sd)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errStopping
	}
	return s.book.Do(func() error {
		for _, name := range op.Skip {
			delete(failures, name)
		}
		if len(failures) > 0 {
			st.Op, st.Stuck = nil, op
			s.setStack(st, "UPDATE_ROLLBACK"+failed, reasonOf("update", failures))
			return nil
		}
		st.content, op.Phase = op.Old, "undo"
		s.setStack(st, "UPDATE_ROLLBACK_COMPLETE_CLEANUP"+inProgress, "")
		return nil
	})
}

// restore puts replaced resources back into their places, and what the update made among the garbage. It may run twice.
func (s *Service) restore(st *stack, op *operation) {
	isOld := func(r *resource) bool {
		o := op.OldResources[r.Logical]
		return o != nil && o.Physical == r.Physical
	}
	op.Garbage = slices.DeleteFunc(op.Garbage, isOld)
	for _, name := range record.Keys(st.Resources) {
		if r := st.Resources[name]; r.Physical == "" || !isOld(r) {
			s.restoreOne(st, op, r)
		}
	}
	for _, name := range record.Keys(op.OldResources) {
		if st.Resources[name] == nil {
			st.Resources[name] = op.OldResources[name].clone()
		}
	}
	s.book.Dirty()
}

// restoreOne puts what was in a resource's place back, if there was something, and r among the garbage, if it was made.
func (s *Service) restoreOne(st *stack, op *operation, r *resource) {
	name, old := r.Logical, op.OldResources[r.Logical]
	if old == nil && r.Begun || r.Physical != "" {
		op.Garbage = append(op.Garbage, r)
	}
	delete(st.Resources, name)
	if old == nil {
		return
	}
	st.Resources[name] = old.clone()
	s.setResource(st, st.Resources[name], "UPDATE"+complete, "")
	op.Done[name] = false
	delete(op.Touched, name)
}

// cleanUpRollback deletes what a rolled back update had made.
func (s *Service) cleanUpRollback(ctx context.Context, st *stack, op *operation) error {
	if err := s.burn(ctx, st, op); err != nil {
		return err
	}
	return s.book.Do(func() error {
		st.Op, st.Stuck = nil, nil
		s.setStack(st, "UPDATE_ROLLBACK"+complete, "")
		return nil
	})
}
