// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

const (
	stackType = "AWS::CloudFormation::Stack"
	// CloudFormation is asked often at first, since a small change is done in seconds, and then as often as a person wants
	// to see that something happens. Its API bears a few calls a second.
	firstPause = 200 * time.Millisecond
	lastPause  = 3 * time.Second
)

// follower tells the events of one operation, each once.
type follower struct {
	s     Stack
	id    string
	total int
	last  string // the newest event that was told
	seen  []types.StackEvent
	begun map[string]time.Time // by logical id
	done  map[string]bool      // has ended once
	ended map[string]bool      // has ended, and not begun again since
	wait  time.Duration
}

// follow begins to follow an operation of total steps; 0 if that is not known.
func (s Stack) follow(id string, total int) *follower {
	return &follower{s: s, id: id, total: total, begun: map[string]time.Time{}, done: map[string]bool{}, ended: map[string]bool{}, wait: firstPause}
}

// newer reads the events until stop says that one is not wanted any more, oldest first.
func (f *follower) newer(ctx context.Context, stop func(types.StackEvent) bool) ([]types.StackEvent, error) {
	var out []types.StackEvent
	in := &cloudformation.DescribeStackEventsInput{StackName: &f.id}
	for {
		page, err := f.s.API.DescribeStackEvents(ctx, in)
		if missing(err) {
			return nil, nil // a stack that only just begins
		}
		if err != nil {
			return nil, fmt.Errorf("read the events of stack %s: %w", f.s.Name, err)
		}
		for _, e := range page.StackEvents {
			if stop(e) {
				slices.Reverse(out)
				return out, nil
			}
			out = append(out, e)
		}
		if page.NextToken == nil {
			slices.Reverse(out)
			return out, nil
		}
		in.NextToken = page.NextToken
	}
}

// skip passes over all events that there are.
func (f *follower) skip(ctx context.Context) error {
	first := true
	events, err := f.newer(ctx, func(types.StackEvent) bool { defer func() { first = false }(); return !first })
	if len(events) > 0 {
		f.last = aws.ToString(events[0].EventId)
	}
	return err
}

// rewind goes back to where the operation that goes on began.
func (f *follower) rewind(ctx context.Context) error {
	began := false
	events, err := f.newer(ctx, func(e types.StackEvent) bool {
		was := began
		began = began || Begins(e)
		return was
	})
	if err != nil {
		return err
	}
	f.tell(events)
	return nil
}

// Begins says whether an event is the first of an operation that somebody asked for.
func Begins(e types.StackEvent) bool {
	return aws.ToString(e.ResourceType) == stackType && aws.ToString(e.PhysicalResourceId) == aws.ToString(e.StackId) &&
		slices.Contains([]types.ResourceStatus{"CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS"}, e.ResourceStatus)
}

// poll tells what is new.
func (f *follower) poll(ctx context.Context) error {
	events, err := f.newer(ctx, func(e types.StackEvent) bool { return aws.ToString(e.EventId) == f.last })
	if err != nil {
		return err
	}
	if len(events) > 0 {
		f.wait = firstPause
	}
	f.tell(events)
	return nil
}

func (f *follower) pause(ctx context.Context) error {
	timer := time.NewTimer(f.wait)
	defer timer.Stop()
	f.wait = min(f.wait*3/2, lastPause)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stack %s goes on without us; run it again to look on: %w", f.s.Name, ctx.Err())
	}
}

func (f *follower) tell(events []types.StackEvent) {
	for _, e := range events {
		f.last = aws.ToString(e.EventId)
		f.seen = append(f.seen, e)
		if aws.ToString(e.ResourceType) == stackType {
			f.tellStack(e)
			continue
		}
		f.s.Events(f.event(e))
	}
}

func (f *follower) tellStack(e types.StackEvent) {
	text := "stack " + f.s.Name + ": " + string(e.ResourceStatus)
	if reason := aws.ToString(e.ResourceStatusReason); reason != "" {
		text += ": " + reason
	}
	f.s.Notes(text)
}

// event is what an event of a resource says, in the terms of a plan.
func (f *follower) event(e types.StackEvent) plan.Event {
	id := aws.ToString(e.LogicalResourceId)
	action, state := Progress(e.ResourceStatus)
	at := aws.ToTime(e.Timestamp)
	if begun := f.begun[id]; begun.IsZero() || f.ended[id] && state == plan.Started {
		f.begun[id], f.ended[id] = at, false
	}
	reason := aws.ToString(e.ResourceStatusReason)
	if state == plan.Started && reason != "" && reason != "Resource creation Initiated" {
		state = plan.Waiting // news of something that goes on, such as a signal
	}
	if state == plan.Done || state == plan.Failed {
		f.done[id], f.ended[id] = true, true
	}
	cfn := aws.ToString(e.ResourceType)
	return plan.Event{
		Step:  plan.Step{Action: action, Addr: f.s.Names.Addr(cfn, id), Kind: f.s.Names.KindOf(cfn), ID: aws.ToString(e.PhysicalResourceId)},
		State: state, Elapsed: at.Sub(f.begun[id]), Detail: reason, Index: len(f.done), Total: max(f.total, len(f.begun)),
	}
}

// Progress says what a status of a resource is in the terms of a plan.
func Progress(s types.ResourceStatus) (plan.Action, plan.State) {
	action := plan.Update
	switch text := strings.TrimPrefix(string(s), "ROLLBACK_"); {
	case strings.HasPrefix(text, "CREATE_"), strings.HasPrefix(text, "IMPORT_"):
		action = plan.Create
	case strings.HasPrefix(text, "DELETE_"):
		action = plan.Delete
	}
	switch {
	case strings.HasSuffix(string(s), "_FAILED"):
		return action, plan.Failed
	case strings.HasSuffix(string(s), "_IN_PROGRESS"):
		return action, plan.Started
	}
	return action, plan.Done
}
