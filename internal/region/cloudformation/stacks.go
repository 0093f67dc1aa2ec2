// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func on(p *bool) bool { return p != nil && *p }

// settings are what a stack has beside its contents.
type settings struct {
	name, role string
	notify     []*string
}

// checkName refuses what cannot be the name of a stack or of a change set.
func checkName(member, name string) error {
	if !regexp.MustCompile(`^[a-zA-Z][-a-zA-Z0-9]{0,127}$`).MatchString(name) {
		return invalid("1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*", name, member)
	}
	return nil
}

// newStack makes an empty stack. The caller is inside the book.
func (s *Service) newStack(in settings, status string) (*stack, error) {
	if err := checkName("stackName", in.name); err != nil {
		return nil, err
	}
	if s.named(in.name) != nil {
		return nil, wire.Errorf(sdk.ErrCodeAlreadyExistsException, "Stack [%s] already exists", in.name)
	}
	st := &stack{
		ID: s.arn("stack/" + in.name + "/" + s.uuid()), Name: in.name, Created: s.cfg.Now().UTC(), Resources: map[string]*resource{},
		ChangeSets: map[string]*changeSet{}, Role: in.role, Notify: record.Strs(in.notify),
	}
	s.st.Stacks[st.ID] = st
	s.setStack(st, status, "User Initiated")
	return st, nil
}

func (s *Service) createStack(ctx context.Context, in *sdk.CreateStackInput) (*sdk.CreateStackOutput, error) {
	if in.DisableRollback != nil && in.OnFailure != nil {
		return nil, invalid("Only one of DisableRollback and OnFailure can be specified.")
	}
	c, err := s.prepare(ctx, request{source{in.TemplateBody, in.TemplateURL, nil}, in.Parameters, in.Tags, in.Capabilities}, content{})
	if err != nil {
		return nil, err
	}
	caller, err := s.caller(ctx, record.Str(in.RoleARN))
	if err != nil {
		return nil, err
	}
	if err := validPolicies(in.StackPolicyBody); err != nil {
		return nil, err
	}
	var id string
	err = s.book.Do(func() error {
		st, err := s.newStack(settings{record.Str(in.StackName), record.Str(in.RoleARN), in.NotificationARNs}, "CREATE"+inProgress)
		if err != nil {
			return err
		}
		st.DisableRollback, st.OnFailure, st.Protected = on(in.DisableRollback), record.Str(in.OnFailure), on(in.EnableTerminationProtection)
		st.Policy = record.Str(in.StackPolicyBody)
		if in.TimeoutInMinutes != nil {
			st.Timeout = *in.TimeoutInMinutes
		}
		s.begin(st, operation{Kind: opCreate, Phase: "forward", Token: record.Str(in.ClientRequestToken), Caller: caller, New: c})
		st.content = c
		id = st.ID
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.kick()
	return &sdk.CreateStackOutput{StackId: new(id)}, nil
}

// begin gives a stack an operation. The caller is inside the book.
func (s *Service) begin(st *stack, op operation) {
	op.Begun, op.Done, op.Touched = s.cfg.Now().UTC(), map[string]bool{}, map[string]bool{}
	st.Op, st.Stuck = &op, nil
	if n := len(st.Events); n > 0 && st.Events[n-1].Token == "" {
		st.Events[n-1].Token = op.Token
	}
	s.book.Dirty()
}

// mayUpdate refuses to update a stack in a status that does not allow it.
func mayUpdate(st *stack) error {
	switch st.Status {
	case "CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "UPDATE_FAILED", "CREATE_FAILED", "IMPORT_COMPLETE":
		return nil
	}
	return invalid("Stack:%s is in %s state and can not be updated.", st.ID, st.Status)
}

// current is a copy of what a stack is now.
func (s *Service) current(name string) (before content, id, status string, err error) { //revive:disable-line:function-result-limit
	err = s.book.Do(func() error {
		st := s.named(name)
		if st == nil {
			return invalid("Stack [%s] does not exist", name)
		}
		before, id, status = st.clone(), st.ID, st.Status
		return nil
	})
	return before, id, status, err
}

func (s *Service) updateStack(ctx context.Context, in *sdk.UpdateStackInput) (*sdk.UpdateStackOutput, error) {
	before, id, _, err := s.current(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	c, err := s.prepare(ctx, request{source{in.TemplateBody, in.TemplateURL, in.UsePreviousTemplate}, in.Parameters, in.Tags, in.Capabilities}, before)
	if err != nil {
		return nil, err
	}
	if err := validPolicies(in.StackPolicyBody, in.StackPolicyDuringUpdateBody); err != nil {
		return nil, err
	}
	caller, err := s.caller(ctx, record.Str(in.RoleARN))
	if err != nil {
		return nil, err
	}
	err = s.book.Do(func() error {
		st := s.st.Stacks[id]
		if err := mayUpdate(st); err != nil {
			return err
		}
		if err := s.worthwhile(st, in, c); err != nil {
			return err
		}
		if in.StackPolicyBody != nil {
			st.Policy = *in.StackPolicyBody
		}
		s.beginUpdate(st, operation{
			Token: record.Str(in.ClientRequestToken), Caller: caller, New: c, KeepOnFailure: on(in.DisableRollback),
			DuringPolicy: record.Str(in.StackPolicyDuringUpdateBody),
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.kick()
	return &sdk.UpdateStackOutput{StackId: new(id)}, nil
}

// worthwhile refuses an update that would do nothing. The caller is inside the book.
func (s *Service) worthwhile(st *stack, in *sdk.UpdateStackInput, c content) error {
	_, idle, err := s.compare(st, st.content, c)
	switch {
	case idle && in.StackPolicyBody == nil:
		return invalid("No updates are to be performed.")
	case err != nil && strings.Contains(err.Error(), "Properties validation failed"):
		return nil // the update fails at the resource that is wrong
	}
	return err
}

// validPolicies refuses those of bodies that are given and are no stack policies.
func validPolicies(bodies ...*string) error {
	for _, b := range bodies {
		if b == nil {
			continue
		}
		if _, err := parsePolicy(*b); err != nil {
			return err
		}
	}
	return nil
}

// beginUpdate begins to bring a stack to op.New. The caller is inside the book.
func (s *Service) beginUpdate(st *stack, op operation) {
	op.Kind, op.Phase, op.Old, op.OldResources = opUpdate, "forward", st.clone(), map[string]*resource{}
	for name, r := range cloneResources(st.Resources) {
		if r.Status == deleted || r.Status == "DELETE_SKIPPED" {
			delete(st.Resources, name)
			continue
		}
		op.OldResources[name] = r
	}
	s.setStack(st, "UPDATE"+inProgress, "User Initiated")
	st.Updated = s.cfg.Now().UTC()
	s.begin(st, op)
}

func (s *Service) deleteStack(ctx context.Context, in *sdk.DeleteStackInput) (*sdk.DeleteStackOutput, error) {
	caller, err := s.caller(ctx, record.Str(in.RoleARN))
	if err != nil {
		return nil, err
	}
	id := ""
	err = s.book.Do(func() error {
		st := s.named(record.Str(in.StackName))
		if st == nil {
			return nil // deleting what is not there is a success
		}
		if st.Role != "" && in.RoleARN == nil { // whoever may delete the stack may have it deleted by the stack's role
			if caller, err = s.caller(wire.WithCaller(ctx, nobody()), st.Role); err != nil {
				return err
			}
		}
		id = st.ID
		return s.beginDelete(st, in, caller)
	})
	if err != nil {
		return nil, err
	}
	if id != "" {
		s.interrupt(id, errCancelled)
		s.kick()
	}
	return &sdk.DeleteStackOutput{}, nil
}

// beginDelete begins to delete a stack, if it may be. The caller is inside the book.
func (s *Service) beginDelete(st *stack, in *sdk.DeleteStackInput, caller wire.Caller) error {
	if err := mayDelete(st, record.Strs(in.RetainResources)); err != nil {
		return err
	}
	switch {
	case st.Op != nil && st.Op.Kind == opDelete:
		return nil
	case st.Op != nil && st.Op.Kind == opUpdate:
		return invalid("Stack [%s] cannot be deleted while in status %s", st.Name, st.Status)
	}
	if export, by := s.needed(st.Outputs); export != "" && !slices.Equal(by, []string{st.Name}) {
		s.setStack(st, "DELETE"+failed, "Delete canceled. Cannot delete export "+export+" as it is in use by "+strings.Join(by, ", "))
		return nil
	}
	op := operation{Kind: opDelete, Phase: "delete", Token: record.Str(in.ClientRequestToken), Caller: caller, Retain: record.Strs(in.RetainResources)}
	if st.Status == review {
		st.Resources = map[string]*resource{}
	}
	s.setStack(st, "DELETE"+inProgress, "User Initiated")
	s.begin(st, op)
	return nil
}

// mayDelete refuses the deletion of a protected stack, and one that leaves alone what it may not.
func mayDelete(st *stack, retain []string) error {
	if st.Protected {
		return invalid("Stack [%s] cannot be deleted while TerminationProtection is enabled", st.Name)
	}
	if len(retain) > 0 && st.Status != "DELETE"+failed {
		return invalid("Invalid operation on stack [%s]. Specifying RetainResources is only allowed for stacks in DELETE_FAILED state.", st.ID)
	}
	for _, name := range retain {
		if st.Resources[name] == nil {
			return invalid("The following resources %s do not exist in stack %s", name, st.Name)
		}
	}
	return nil
}

func (s *Service) cancelUpdate(in *sdk.CancelUpdateStackInput) (*sdk.CancelUpdateStackOutput, error) {
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	if st.Status != "UPDATE"+inProgress || st.Op == nil {
		return nil, invalid("CancelUpdateStack cannot be called from current stack status")
	}
	st.Op.Cancelled = "User Initiated"
	s.book.Dirty()
	go s.interrupt(st.ID, errCancelled)
	return &sdk.CancelUpdateStackOutput{}, nil
}

func (s *Service) continueRollback(in *sdk.ContinueUpdateRollbackInput) (*sdk.ContinueUpdateRollbackOutput, error) {
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	if st.Status != "UPDATE_ROLLBACK"+failed || st.Stuck == nil {
		return nil, invalid("Stack:%s is in %s state and can not continue an update rollback.", st.ID, st.Status)
	}
	for _, name := range record.Strs(in.ResourcesToSkip) {
		if r := st.Resources[name]; r == nil || r.Status != "UPDATE"+failed {
			return nil, invalid("Resource %s is not in UPDATE_FAILED state and cannot be skipped", name)
		}
	}
	op := *st.Stuck
	op.Phase, op.Skip, op.Token = "rollback", record.Strs(in.ResourcesToSkip), record.Str(in.ClientRequestToken)
	s.setStack(st, "UPDATE_ROLLBACK"+inProgress, "User Initiated")
	s.begin(st, op)
	s.kick()
	return &sdk.ContinueUpdateRollbackOutput{}, nil
}

func (s *Service) protect(in *sdk.UpdateTerminationProtectionInput) (*sdk.UpdateTerminationProtectionOutput, error) {
	st := s.named(record.Str(in.StackName))
	if st == nil {
		return nil, invalid("Stack [%s] does not exist", record.Str(in.StackName))
	}
	st.Protected = on(in.EnableTerminationProtection)
	return &sdk.UpdateTerminationProtectionOutput{StackId: new(st.ID)}, nil
}

var errNoChanges = errors.New("The submitted information didn't contain changes. Submit different information to create a change set.") //nolint:staticcheck,revive // CloudFormation's words
