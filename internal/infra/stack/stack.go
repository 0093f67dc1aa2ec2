// SPDX-License-Identifier: Apache-2.0

// Package stack creates, updates and deletes one CloudFormation stack, and reports changes and progress as
// package plan does. It does not know manifests, and of a template only its bytes and the logical ids of its
// resources.
//
// A [ChangeSet] is CloudFormation's preview of a change: its steps are shown like a plan, and it is then
// executed or discarded. A [Phase] says what can be done with a stack in its present status. While an
// operation runs, its events are polled and passed to the callbacks of [Stack].
package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Stack is one CloudFormation stack. All fields are required. It must not be used concurrently.
type Stack struct {
	API *cloudformation.Client
	// Name of the stack.
	Name string
	// Names translates logical ids and types.
	Names NameIndex
	// Now is the clock.
	Now func() time.Time
	// OnEvent receives the progress of each resource.
	OnEvent func(plan.Event)
	// OnNotice receives the progress of the stack itself, as a sentence.
	OnNotice func(string)
}

// Phase is what can be done with a stack in its present status.
type Phase string

// The phases.
const (
	PhaseAbsent         Phase = "absent"          // there is no stack: create it
	PhaseReview         Phase = "review"          // it has only a change set and no resources: create it
	PhaseInProgress     Phase = "in progress"     // an operation is running: wait for it
	PhaseUpdatable      Phase = "updatable"       // it can be updated
	PhaseDeleteOnly     Phase = "delete only"     // its creation failed: it can only be deleted
	PhaseRollbackFailed Phase = "rollback failed" // its rollback must be continued first
)

// PhaseOf returns the phase of a stack with this status; an empty status means that there is no stack.
func PhaseOf(s types.StackStatus) Phase {
	switch s {
	case "", types.StackStatusDeleteComplete:
		return PhaseAbsent
	case types.StackStatusReviewInProgress:
		return PhaseReview
	case types.StackStatusCreateFailed,
		types.StackStatusRollbackComplete,
		types.StackStatusRollbackFailed,
		types.StackStatusDeleteFailed:
		return PhaseDeleteOnly

	case types.StackStatusUpdateRollbackFailed, types.StackStatusUpdateFailed:
		return PhaseRollbackFailed
	default: // the suffix tells
	}

	if strings.HasSuffix(string(s), "_IN_PROGRESS") {
		return PhaseInProgress
	}

	return PhaseUpdatable
}

// IsSuccess reports whether an operation that ended in this status succeeded. An empty status, that of a
// deleted stack, is success.
func IsSuccess(s types.StackStatus) bool {
	return slices.Contains([]types.StackStatus{
		types.StackStatusCreateComplete,
		types.StackStatusUpdateComplete,
		types.StackStatusDeleteComplete,
		types.StackStatusImportComplete,
		"",
	}, s)
}

// Info describes a stack. The zero Info means that there is no stack.
type Info struct {
	// ID is the stack's ARN, which identifies it even after its deletion.
	ID     string
	Status types.StackStatus
	// Reason is CloudFormation's explanation of Status; may be empty.
	Reason string
	// Parameters are the values of the template's parameters.
	Parameters map[string]string
	// Tags of the stack.
	Tags map[string]string
	// Protected is true if termination protection is on.
	Protected bool
}

// Describe returns the stack's description; the zero Info if there is no stack.
func (s Stack) Describe(ctx context.Context) (Info, error) { return s.describeByID(ctx, s.Name) }

func (s Stack) describeByID(ctx context.Context, nameOrID string) (Info, error) {
	out, err := s.API.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &nameOrID})
	if isStackMissing(err) {
		return Info{}, nil
	}

	if err != nil {
		return Info{}, fmt.Errorf("read stack %s: %w", s.Name, err)
	}

	if len(out.Stacks) == 0 {
		return Info{}, nil
	}

	d := out.Stacks[0]
	info := Info{
		ID:         aws.ToString(d.StackId),
		Status:     d.StackStatus,
		Reason:     aws.ToString(d.StackStatusReason),
		Protected:  aws.ToBool(d.EnableTerminationProtection),
		Parameters: map[string]string{},
		Tags:       map[string]string{},
	}

	for _, p := range d.Parameters {
		info.Parameters[aws.ToString(p.ParameterKey)] = aws.ToString(p.ParameterValue)
	}

	for _, t := range d.Tags {
		info.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	return info, nil
}

// isStackMissing reports whether err means that the stack does not exist. CloudFormation has no error code
// for that: it returns ValidationError, which is also the code of invalid input.
func isStackMissing(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" &&
		strings.Contains(api.ErrorMessage(), "does not exist")
}

// waitForEnd waits until the running operation has ended and returns the stack's description. If begin is
// set, the operation may not have started yet.
func (s Stack) waitForEnd(ctx context.Context, f *eventFollower, id string, begin bool) (Info, error) {
	for {
		// Events are read after the status, so that they include those that led to it.
		info, err := s.describeByID(ctx, id)
		if err != nil {
			return Info{}, err
		}

		if err := f.pollEvents(ctx); err != nil {
			return Info{}, err
		}

		over := !begin || slices.ContainsFunc(f.events, StartsOperation)
		if phase := PhaseOf(info.Status); phase == PhaseAbsent || over && phase != PhaseInProgress {
			return info, nil
		}

		if err := f.waitInterval(ctx); err != nil {
			return Info{}, err
		}
	}
}

// WaitForOperation waits for an operation that is already running, as after Slipway was killed, and reports
// all its events. A failed operation is not an error: the next change set has what remains to be done.
func (s Stack) WaitForOperation(ctx context.Context) (Info, error) {
	info, err := s.Describe(ctx)
	if err != nil || PhaseOf(info.Status) != PhaseInProgress {
		return info, err
	}

	s.OnNotice(fmt.Sprintf("stack %s is in %s: waiting for that operation first", s.Name, info.Status))
	f := s.followEvents(info.ID, 0)
	if err := f.replayOperation(ctx); err != nil {
		return Info{}, err
	}

	return s.waitForEnd(ctx, f, info.ID, false)
}

// ContinueRollback continues a failed rollback and waits for its end.
func (s Stack) ContinueRollback(ctx context.Context, info Info) error {
	f := s.followEvents(info.ID, 0)
	if err := f.skipExisting(ctx); err != nil {
		return err
	}

	in := &cloudformation.ContinueUpdateRollbackInput{StackName: &info.ID}
	if _, err := s.API.ContinueUpdateRollback(ctx, in); err != nil {
		return fmt.Errorf("continue the rollback of stack %s: %w", s.Name, err)
	}

	after, err := s.waitForEnd(ctx, f, info.ID, false)
	if err == nil && PhaseOf(after.Status) == PhaseRollbackFailed {
		err = s.failedError(f, after)
	}

	return err
}

// failedError returns the [FailedError] of an operation whose events f has read.
func (s Stack) failedError(f *eventFollower, info Info) error {
	return FailedError{
		Stack:  s.Name,
		Status: info.Status,
		Cause:  FirstFailure(f.events, s.Names, info.Reason),
	}
}

// Protect turns on termination protection and sets the stack policy, a JSON document.
func (s Stack) Protect(ctx context.Context, policy string) error {
	if _, err := s.API.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{
		StackName:                   &s.Name,
		EnableTerminationProtection: aws.Bool(true),
	}); err != nil {
		return fmt.Errorf("protect stack %s: %w", s.Name, err)
	}

	in := &cloudformation.SetStackPolicyInput{StackName: &s.Name, StackPolicyBody: &policy}
	if _, err := s.API.SetStackPolicy(ctx, in); err != nil {
		return fmt.Errorf("set the stack policy of stack %s: %w", s.Name, err)
	}

	return nil
}
