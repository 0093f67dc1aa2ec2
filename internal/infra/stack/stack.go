// SPDX-License-Identifier: Apache-2.0

// Package stack makes, changes and deletes one CloudFormation stack, and tells how that goes in the terms of a plan.
// It knows no manifest, and of a template only its bytes and what its resources are called.
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

// Stack is one stack. Its fields are what it touches.
type Stack struct {
	API   *cloudformation.Client
	Name  string
	Names NameIndex
	Now   func() time.Time
	// OnEvent is told how resources go; Notes is told what the stack itself does, in a sentence.
	OnEvent  func(plan.Event)
	OnNotice func(string)
}

// Phase is what can be done with a stack in a state.
type Phase string

// The phases.
const (
	PhaseAbsent         Phase = "absent" // there is none: it can be made
	PhaseReview         Phase = "review" // it holds a change set only: it can be made
	PhaseInProgress     Phase = "moving" // an operation goes on: it can only be waited for
	PhaseUpdatable      Phase = "steady" // it can be changed
	PhaseDeleteOnly     Phase = "dead"   // it can only be deleted
	PhaseRollbackFailed Phase = "stuck"  // its rollback has to be gone on with first
)

// PhaseOf says what can be done with a stack of this status; empty is no stack.
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
	default: // the rest is told by its ending
	}

	if strings.HasSuffix(string(s), "_IN_PROGRESS") {
		return PhaseInProgress
	}

	return PhaseUpdatable
}

// IsSuccess says whether an operation that ended in this status did what it was to do.
func IsSuccess(s types.StackStatus) bool {
	return slices.Contains([]types.StackStatus{
		types.StackStatusCreateComplete, types.StackStatusUpdateComplete, types.StackStatusDeleteComplete, types.StackStatusImportComplete, "",
	}, s)
}

// Info is what a stack says of itself. The zero Info is no stack.
type Info struct {
	ID         string
	Status     types.StackStatus
	Reason     string
	Parameters map[string]string
	Protected  bool
}

// Describe reads the stack; the zero Info if there is none.
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
	}

	for _, p := range d.Parameters {
		info.Parameters[aws.ToString(p.ParameterKey)] = aws.ToString(p.ParameterValue)
	}

	return info, nil
}

// isStackMissing says whether CloudFormation knows no such stack: it has no code of its own for that.
func isStackMissing(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" &&
		strings.Contains(api.ErrorMessage(), "does not exist")
}

// waitForEnd waits for an operation that goes on, or is about to begin if begin is set, and says how it ended.
func (s Stack) waitForEnd(ctx context.Context, f *eventFollower, id string, begin bool) (Info, error) {
	for {
		// Events are read after the state: those that the state comes of are then among them.
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

// WaitForOperation waits for an operation that goes on already, as when this program was killed, and tells what it has done so far.
// How that ends is no error: what is left to do is a matter of the next change set.
func (s Stack) WaitForOperation(ctx context.Context) (Info, error) {
	info, err := s.Describe(ctx)
	if err != nil || PhaseOf(info.Status) != PhaseInProgress {
		return info, err
	}

	s.OnNotice(fmt.Sprintf("stack %s is in %s: waiting for that first", s.Name, info.Status))
	f := s.followEvents(info.ID, 0)
	if err := f.replayOperation(ctx); err != nil {
		return Info{}, err
	}

	return s.waitForEnd(ctx, f, info.ID, false)
}

// ContinueRollback goes on with a rollback that failed, and waits for it.
func (s Stack) ContinueRollback(ctx context.Context, info Info) error {
	f := s.followEvents(info.ID, 0)
	if err := f.skipExisting(ctx); err != nil {
		return err
	}

	if _, err := s.API.ContinueUpdateRollback(ctx, &cloudformation.ContinueUpdateRollbackInput{StackName: &info.ID}); err != nil {
		return fmt.Errorf("go on with the rollback of stack %s: %w", s.Name, err)
	}

	after, err := s.waitForEnd(ctx, f, info.ID, false)
	if err == nil && PhaseOf(after.Status) == PhaseRollbackFailed {
		err = s.failedError(f, after)
	}

	return err
}

// failedError is the error of an operation that ended badly: its first failed resource and why.
func (s Stack) failedError(f *eventFollower, info Info) error {
	return FailedError{
		Stack:  s.Name,
		Status: info.Status,
		Cause:  FirstFailure(f.events, s.Names, info.Reason),
	}
}

// Protect forbids to delete the stack, and to replace or remove what policy names.
func (s Stack) Protect(ctx context.Context, policy string) error {
	if _, err := s.API.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{
		StackName: &s.Name, EnableTerminationProtection: aws.Bool(true),
	}); err != nil {
		return fmt.Errorf("protect stack %s: %w", s.Name, err)
	}

	if _, err := s.API.SetStackPolicy(ctx, &cloudformation.SetStackPolicyInput{StackName: &s.Name, StackPolicyBody: &policy}); err != nil {
		return fmt.Errorf("set the policy of stack %s: %w", s.Name, err)
	}

	return nil
}
