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
	Names Names
	Now   func() time.Time
	// Events is told how resources go; Notes is told what the stack itself does, in a sentence.
	Events func(plan.Event)
	Notes  func(string)
}

// Phase is what can be done with a stack in a state.
type Phase string

// The phases.
const (
	Absent Phase = "absent" // there is none: it can be made
	Review Phase = "review" // it holds a change set only: it can be made
	Moving Phase = "moving" // an operation goes on: it can only be waited for
	Steady Phase = "steady" // it can be changed
	Dead   Phase = "dead"   // it can only be deleted
	Stuck  Phase = "stuck"  // its rollback has to be gone on with first
)

// PhaseOf says what can be done with a stack of this status; empty is no stack.
func PhaseOf(s types.StackStatus) Phase {
	switch s {
	case "", types.StackStatusDeleteComplete:
		return Absent
	case types.StackStatusReviewInProgress:
		return Review
	case types.StackStatusCreateFailed, types.StackStatusRollbackComplete, types.StackStatusRollbackFailed, types.StackStatusDeleteFailed:
		return Dead
	case types.StackStatusUpdateRollbackFailed, types.StackStatusUpdateFailed:
		return Stuck
	default: // the rest is told by its ending
	}
	if strings.HasSuffix(string(s), "_IN_PROGRESS") {
		return Moving
	}
	return Steady
}

// WentWell says whether an operation that ended in this status did what it was to do.
func WentWell(s types.StackStatus) bool {
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
func (s Stack) Describe(ctx context.Context) (Info, error) { return s.describe(ctx, s.Name) }

func (s Stack) describe(ctx context.Context, nameOrID string) (Info, error) {
	out, err := s.API.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &nameOrID})
	if missing(err) {
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
		ID: aws.ToString(d.StackId), Status: d.StackStatus, Reason: aws.ToString(d.StackStatusReason),
		Protected: aws.ToBool(d.EnableTerminationProtection), Parameters: map[string]string{},
	}
	for _, p := range d.Parameters {
		info.Parameters[aws.ToString(p.ParameterKey)] = aws.ToString(p.ParameterValue)
	}
	return info, nil
}

// missing says whether CloudFormation knows no such stack: it has no code of its own for that.
func missing(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "does not exist")
}

// settled waits for an operation that goes on, or is about to begin if begin is set, and says how it ended.
func (s Stack) settled(ctx context.Context, f *follower, id string, begin bool) (Info, error) {
	for {
		// Events are read after the state: those that the state comes of are then among them.
		info, err := s.describe(ctx, id)
		if err != nil {
			return Info{}, err
		}
		if err := f.poll(ctx); err != nil {
			return Info{}, err
		}
		over := !begin || slices.ContainsFunc(f.seen, Begins)
		if phase := PhaseOf(info.Status); phase == Absent || over && phase != Moving {
			return info, nil
		}
		if err := f.pause(ctx); err != nil {
			return Info{}, err
		}
	}
}

// Attach waits for an operation that goes on already, as when this program was killed, and tells what it has done so far.
// How that ends is no error: what is left to do is a matter of the next change set.
func (s Stack) Attach(ctx context.Context) (Info, error) {
	info, err := s.Describe(ctx)
	if err != nil || PhaseOf(info.Status) != Moving {
		return info, err
	}
	s.Notes(fmt.Sprintf("stack %s is in %s: waiting for that first", s.Name, info.Status))
	f := s.follow(info.ID, 0)
	if err := f.rewind(ctx); err != nil {
		return Info{}, err
	}
	return s.settled(ctx, f, info.ID, false)
}

// Unstick goes on with a rollback that failed, and waits for it.
func (s Stack) Unstick(ctx context.Context, info Info) error {
	f := s.follow(info.ID, 0)
	if err := f.skip(ctx); err != nil {
		return err
	}
	if _, err := s.API.ContinueUpdateRollback(ctx, &cloudformation.ContinueUpdateRollbackInput{StackName: &info.ID}); err != nil {
		return fmt.Errorf("go on with the rollback of stack %s: %w", s.Name, err)
	}
	after, err := s.settled(ctx, f, info.ID, false)
	if err == nil && PhaseOf(after.Status) == Stuck {
		err = s.failure(f, after)
	}
	return err
}

// failure is the error of an operation that ended badly: its first failed resource and why.
func (s Stack) failure(f *follower, info Info) error {
	return FailedError{Stack: s.Name, Status: info.Status, Cause: FirstFailure(f.seen, s.Names, info.Reason)}
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
