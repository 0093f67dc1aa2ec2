// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func boolValue(p *bool) bool { return p != nil && *p }

// stackHandlers serves the operations that start or change an operation of a stack.
type stackHandlers struct{ *Service }

func (s stackHandlers) ops() []wire.Operation {
	return []wire.Operation{
		wire.NewOperation("CreateStack", s.createStack),
		wire.NewOperation("UpdateStack", s.updateStack),
		wire.NewOperation("DeleteStack", s.deleteStack),
		wire.NewOperation("CancelUpdateStack", s.cancelUpdateStack),
		state.WriteOperation(s.store, "ContinueUpdateRollback", s.continueUpdateRollback),
		state.WriteOperation(s.store, "UpdateTerminationProtection", s.updateTerminationProtection),
	}
}

func (s stackHandlers) createStack(
	ctx context.Context,
	in *sdk.CreateStackInput,
) (*sdk.CreateStackOutput, error) {
	if in.DisableRollback != nil && in.OnFailure != nil {
		return nil, template.ValidationError("Only one of DisableRollback and OnFailure can be specified.")
	}

	c, err := templateHandlers(s).prepareContent(
		ctx,
		stackRequest{
			templateSource{in.TemplateBody, in.TemplateURL, nil},
			in.StackName,
			in.Parameters,
			in.Tags,
			in.Capabilities,
		},
		stackContent{},
	)
	if err != nil {
		return nil, err
	}

	caller, err := s.stackCaller(ctx, sdkshape.String(in.RoleARN))
	if err != nil {
		return nil, err
	}

	if err := checkPolicies(in.StackPolicyBody); err != nil {
		return nil, err
	}

	id := ""
	err = s.store.Update(func() error {
		st, err := s.addStack(in, c, caller)
		if err != nil {
			return err
		}

		id = st.ID

		return nil
	})
	if err != nil {
		return nil, err
	}

	s.wake.Send()

	return &sdk.CreateStackOutput{StackId: new(id)}, nil
}

// addStack adds a stack and starts its creation. The caller holds the store's lock.
func (s stackHandlers) addStack(
	in *sdk.CreateStackInput,
	c stackContent,
	caller wire.Caller,
) (*stack, error) {
	settings := stackSettings{
		name:    sdkshape.String(in.StackName),
		roleARN: sdkshape.String(in.RoleARN),
	}

	st, err := s.newStack(settings, "CREATE"+suffixInProgress)
	if err != nil {
		return nil, err
	}

	st.DisableRollback = boolValue(in.DisableRollback)
	st.OnFailure = sdkshape.String(in.OnFailure)
	st.Protected = boolValue(in.EnableTerminationProtection)
	st.Policy = sdkshape.String(in.StackPolicyBody)
	if in.TimeoutInMinutes != nil {
		st.Timeout = *in.TimeoutInMinutes
	}

	s.startOperation(st, stackOperation{
		Kind:   opCreate,
		Phase:  "forward",
		Token:  sdkshape.String(in.ClientRequestToken),
		Caller: caller,
		New:    c,
	})

	st.stackContent = c

	return st, nil
}

func (s stackHandlers) updateStack(
	ctx context.Context,
	in *sdk.UpdateStackInput,
) (*sdk.UpdateStackOutput, error) {
	before, id, _, err := s.currentContent(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	c, err := templateHandlers(s).prepareContent(
		ctx,
		stackRequest{
			templateSource{in.TemplateBody, in.TemplateURL, in.UsePreviousTemplate},
			in.StackName,
			in.Parameters,
			in.Tags,
			in.Capabilities,
		},
		before,
	)
	if err != nil {
		return nil, err
	}

	if err := checkPolicies(in.StackPolicyBody, in.StackPolicyDuringUpdateBody); err != nil {
		return nil, err
	}

	caller, err := s.stackCaller(ctx, sdkshape.String(in.RoleARN))
	if err != nil {
		return nil, err
	}

	err = s.store.WithLock(func() error {
		return s.beginUpdate(s.state.Stacks[id], in, c, caller)
	})
	if err != nil {
		return nil, err
	}

	s.wake.Send()

	return &sdk.UpdateStackOutput{StackId: new(id)}, nil
}

// beginUpdate starts the update that a request asks for, if it is allowed and changes the stack. The caller
// holds the store's lock.
func (s stackHandlers) beginUpdate(
	st *stack,
	in *sdk.UpdateStackInput,
	c stackContent,
	caller wire.Caller,
) error {
	if err := checkUpdatable(st); err != nil {
		return err
	}

	if err := s.checkHasChanges(st, in, c); err != nil {
		return err
	}

	if in.StackPolicyBody != nil {
		st.Policy = *in.StackPolicyBody
	}

	st.makeChangeSetsObsolete()
	s.startUpdate(st, stackOperation{
		Token:         sdkshape.String(in.ClientRequestToken),
		Caller:        caller,
		New:           c,
		KeepOnFailure: boolValue(in.DisableRollback),
		DuringPolicy:  sdkshape.String(in.StackPolicyDuringUpdateBody),
	})

	return nil
}

// checkHasChanges refuses an update without changes. The caller holds the store's lock.
func (s stackHandlers) checkHasChanges(st *stack, in *sdk.UpdateStackInput, c stackContent) error {
	_, idle, err := s.diffContent(st, st.stackContent, c)
	_, invalid := errors.AsType[invalidPropertiesError](err)
	switch {
	case idle && in.StackPolicyBody == nil:
		return template.ValidationError("No updates are to be performed.")
	case invalid:
		return nil // the update will fail at that resource
	}

	return err
}

// checkPolicies refuses invalid stack policies; nil bodies are ignored.
func checkPolicies(bodies ...*string) error {
	for _, b := range bodies {
		if b == nil {
			continue
		}

		if _, err := parseStackPolicy(*b); err != nil {
			return err
		}
	}

	return nil
}

func (s stackHandlers) deleteStack(
	ctx context.Context,
	in *sdk.DeleteStackInput,
) (*sdk.DeleteStackOutput, error) {
	caller, err := s.stackCaller(ctx, sdkshape.String(in.RoleARN))
	if err != nil {
		return nil, err
	}

	id := ""
	err = s.store.WithLock(func() error {
		st := s.state.findActiveStack(sdkshape.String(in.StackName))
		if st == nil {
			return nil // deleting a stack that does not exist succeeds
		}

		if st.Role != "" &&
			in.RoleARN == nil { // a caller who may delete the stack may use its role for that
			if caller, err = s.stackCaller(wire.WithCaller(ctx, wire.SystemCaller()), st.Role); err != nil {
				return err
			}
		}

		id = st.ID

		return s.startDelete(st, in, caller)
	})
	if err != nil {
		return nil, err
	}

	if id != "" {
		s.cancelRunning(id, errCancelled)
		s.wake.Send()
	}

	return &sdk.DeleteStackOutput{}, nil
}

// startDelete starts the deletion of a stack, if it is allowed. The caller holds the store's lock.
func (s stackHandlers) startDelete(st *stack, in *sdk.DeleteStackInput, caller wire.Caller) error {
	if err := checkDeletable(st, sdkshape.Strings(in.RetainResources)); err != nil {
		return err
	}

	switch {
	case st.Op != nil && st.Op.Kind == opDelete:
		return nil
	case st.Op != nil && st.Op.Kind == opUpdate:
		return template.ValidationError("Stack [%s] cannot be deleted while in status %s", st.Name, st.Status)
	}

	if export, by := s.state.exportInUse(st.Outputs); export != "" && !slices.Equal(by, []string{st.Name}) {
		s.setStackStatus(
			st,
			"DELETE"+suffixFailed,
			"Delete canceled. Cannot delete export "+export+" as it is in use by "+strings.Join(by, ", "),
		)

		return nil
	}

	op := stackOperation{
		Kind:   opDelete,
		Phase:  "delete",
		Token:  sdkshape.String(in.ClientRequestToken),
		Caller: caller,
		Retain: sdkshape.Strings(in.RetainResources),
	}
	if st.Status == statusReview {
		st.Resources = map[string]*resource{}
	}

	s.setStackStatus(st, "DELETE"+suffixInProgress, "User Initiated")
	s.startOperation(st, op)

	return nil
}

// checkDeletable refuses the deletion of a protected stack, and RetainResources where they are not allowed.
func checkDeletable(st *stack, retain []string) error {
	if st.Protected {
		return template.ValidationError(
			"Stack [%s] cannot be deleted while TerminationProtection is enabled",
			st.Name,
		)
	}

	if len(retain) > 0 && st.Status != "DELETE"+suffixFailed {
		return template.ValidationError(
			"Invalid operation on stack [%s]. Specifying RetainResources is only allowed for stacks in DELETE_FAILED state.",
			st.ID,
		)
	}

	for _, name := range retain {
		if st.Resources[name] == nil {
			return template.ValidationError(
				"The following resources %s do not exist in stack %s",
				name,
				st.Name,
			)
		}
	}

	return nil
}

// cancelUpdateStack makes a running update roll back. It cancels the running work after it has released the
// store's lock: the runner takes the store's lock while it holds its own, so the reverse order could
// deadlock.
func (s stackHandlers) cancelUpdateStack(
	_ context.Context,
	in *sdk.CancelUpdateStackInput,
) (*sdk.CancelUpdateStackOutput, error) {
	id := ""
	err := s.store.Update(func() error {
		st, err := s.state.findStack(sdkshape.String(in.StackName))
		if err != nil {
			return err
		}

		if st.Status != "UPDATE"+suffixInProgress || st.Op == nil {
			return template.ValidationError("CancelUpdateStack cannot be called from current stack status")
		}

		id = st.ID
		st.Op.Cancelled = "User Initiated"

		return nil
	})
	if err != nil {
		return nil, err
	}

	s.cancelRunning(id, errCancelled)

	return &sdk.CancelUpdateStackOutput{}, nil
}

func (s stackHandlers) continueUpdateRollback(
	in *sdk.ContinueUpdateRollbackInput,
) (*sdk.ContinueUpdateRollbackOutput, error) {
	st, err := s.state.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	if st.Status != "UPDATE_ROLLBACK"+suffixFailed || st.Stuck == nil {
		return nil, template.ValidationError(
			"Stack:%s is in %s state and can not continue an update rollback.",
			st.ID,
			st.Status,
		)
	}

	for _, name := range sdkshape.Strings(in.ResourcesToSkip) {
		if r := st.Resources[name]; r == nil || r.Status != "UPDATE"+suffixFailed {
			return nil, template.ValidationError(
				"Resource %s is not in UPDATE_FAILED state and cannot be skipped",
				name,
			)
		}
	}

	op := *st.Stuck
	op.Phase = "rollback"
	op.Skip = sdkshape.Strings(in.ResourcesToSkip)
	op.Token = sdkshape.String(in.ClientRequestToken)

	s.setStackStatus(st, "UPDATE_ROLLBACK"+suffixInProgress, "User Initiated")
	s.startOperation(st, op)
	s.wake.Send()

	return &sdk.ContinueUpdateRollbackOutput{}, nil
}

func (s stackHandlers) updateTerminationProtection(
	in *sdk.UpdateTerminationProtectionInput,
) (*sdk.UpdateTerminationProtectionOutput, error) {
	st := s.state.findActiveStack(sdkshape.String(in.StackName))
	if st == nil {
		return nil, newMissingStackError(sdkshape.String(in.StackName))
	}

	st.Protected = boolValue(in.EnableTerminationProtection)

	return &sdk.UpdateTerminationProtectionOutput{StackId: new(st.ID)}, nil
}

var errNoChanges = errors.New(
	"The submitted information didn't contain changes. Submit different information to create a change set.",
)
