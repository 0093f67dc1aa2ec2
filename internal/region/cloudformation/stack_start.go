// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"regexp"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// stackSettings are the settings of a stack that are not part of its content.
type stackSettings struct {
	name, roleARN string
}

// checkName refuses an invalid name of a stack or a change set.
func checkName(member, name string) error {
	if !regexp.MustCompile(`^[a-zA-Z][-a-zA-Z0-9]{0,127}$`).MatchString(name) {
		return template.ValidationError(
			"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*",
			name,
			member,
		)
	}

	return nil
}

// newStack adds an empty stack, or takes one that has only change sets. The caller holds the store's lock.
func (s *Service) newStack(in stackSettings, status string) (*stack, error) {
	if err := checkName("stackName", in.name); err != nil {
		return nil, err
	}

	old := s.state.findActiveStack(in.name)
	if old != nil && old.Status == statusReview && status != statusReview {
		old.Role = in.roleARN
		old.makeChangeSetsObsolete()
		s.setStackStatus(old, status, "User Initiated")

		return old, nil
	}

	if old != nil {
		return nil, newErrorf(codeAlreadyExists, "Stack [%s] already exists", in.name)
	}

	if s.state.countStacks() >= s.cfg.MaxStacks {
		return nil, newError(codeLimitExceeded)
	}

	st := &stack{
		ID:         s.buildARN("stack/" + in.name + "/" + sdkshape.RandomUUID(s.cfg.Rand)),
		Name:       in.name,
		Created:    s.cfg.Now().UTC(),
		Resources:  map[string]*resource{},
		ChangeSets: map[string]*changeSet{},
		Role:       in.roleARN,
	}

	s.state.Stacks[st.ID] = st
	s.setStackStatus(st, status, "User Initiated")

	return st, nil
}

// currentContent returns a copy of a stack's content, its ID and its status.
func (s *Service) currentContent(
	name string,
) (before stackContent, id, status string, err error) { //revive:disable-line:function-result-limit
	err = s.store.WithLock(func() error {
		st := s.state.findActiveStack(name)
		if st == nil {
			return newMissingStackError(name)
		}

		before = st.clone()
		id = st.ID
		status = st.Status

		return nil
	})

	return before, id, status, err
}

// startOperation starts an operation of a stack. The caller holds the store's lock.
func (s *Service) startOperation(st *stack, op stackOperation) {
	op.Begun = s.cfg.Now().UTC()
	op.Done = map[string]bool{}
	op.Touched = map[string]bool{}
	st.Op = &op
	st.Stuck = nil
	if n := len(st.Events); n > 0 && st.Events[n-1].Token == "" {
		st.Events[n-1].Token = op.Token
	}

	s.store.MarkChanged()
}

// checkUpdatable refuses an update in a status that does not allow one.
func checkUpdatable(st *stack) error {
	switch st.Status {
	case "CREATE_COMPLETE",
		"UPDATE_COMPLETE",
		"UPDATE_ROLLBACK_COMPLETE",
		"UPDATE_FAILED",
		"CREATE_FAILED",
		"IMPORT_COMPLETE":
		return nil
	}

	return template.ValidationError("Stack:%s is in %s state and can not be updated.", st.ID, st.Status)
}

// startUpdate starts the update of a stack to op.New. The caller holds the store's lock.
func (s *Service) startUpdate(st *stack, op stackOperation) {
	op.Kind = opUpdate
	op.Phase = "forward"
	op.Old = st.clone()
	op.OldResources = map[string]*resource{}

	for name, r := range cloneResources(st.Resources) {
		if r.Status == statusDeleted || r.Status == "DELETE_SKIPPED" {
			delete(st.Resources, name)
			continue
		}

		op.OldResources[name] = r
	}

	s.setStackStatus(st, "UPDATE"+suffixInProgress, "User Initiated")
	st.Updated = s.cfg.Now().UTC()
	s.startOperation(st, op)
}
