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
	// Events are polled often at first, since a small change takes seconds, and then less often.
	// CloudFormation allows a few calls per second.
	minPollInterval = 200 * time.Millisecond
	maxPollInterval = 3 * time.Second
)

// eventFollower reports the events of one operation, each once.
type eventFollower struct {
	stack        Stack
	stackID      string
	total        int
	lastEventID  string // the newest event that was reported
	events       []types.StackEvent
	startedAt    map[string]time.Time // by logical id
	completed    map[string]bool      // by logical id; has ended at least once
	ended        map[string]bool      // by logical id; has ended and not started again
	pollInterval time.Duration
}

// followEvents returns a follower for an operation of total steps; 0 if that is unknown.
func (s Stack) followEvents(id string, total int) *eventFollower {
	return &eventFollower{
		stack:        s,
		stackID:      id,
		total:        total,
		startedAt:    map[string]time.Time{},
		completed:    map[string]bool{},
		ended:        map[string]bool{},
		pollInterval: minPollInterval,
	}
}

// readEventsUntil returns the events after the newest one for which stop returns true, oldest first. stop is
// called from the newest event on.
func (f *eventFollower) readEventsUntil(
	ctx context.Context,
	stop func(types.StackEvent) bool,
) ([]types.StackEvent, error) {
	var out []types.StackEvent
	in := &cloudformation.DescribeStackEventsInput{StackName: &f.stackID}
	for {
		page, err := f.stack.API.DescribeStackEvents(ctx, in)
		if isStackMissing(err) {
			return nil, nil // the stack is being created
		}

		if err != nil {
			return nil, fmt.Errorf("read the events of stack %s: %w", f.stack.Name, err)
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

// skipExisting skips the events of earlier operations.
func (f *eventFollower) skipExisting(ctx context.Context) error {
	count := 0
	events, err := f.readEventsUntil(ctx, func(types.StackEvent) bool {
		count++
		return count > 1
	})
	if len(events) > 0 {
		f.lastEventID = aws.ToString(events[0].EventId)
	}

	return err
}

// replayOperation reports all events of the running operation.
func (f *eventFollower) replayOperation(ctx context.Context) error {
	started := false
	events, err := f.readEventsUntil(ctx, func(e types.StackEvent) bool {
		before := started
		started = started || StartsOperation(e)
		return before
	})
	if err != nil {
		return err
	}

	f.reportEvents(events)

	return nil
}

// StartsOperation reports whether an event is the first one of an operation: a creation, an update or a
// deletion, not a rollback.
func StartsOperation(e types.StackEvent) bool {
	return aws.ToString(e.ResourceType) == stackType &&
		aws.ToString(e.PhysicalResourceId) == aws.ToString(e.StackId) &&
		slices.Contains([]types.ResourceStatus{
			types.ResourceStatusCreateInProgress,
			types.ResourceStatusUpdateInProgress,
			types.ResourceStatusDeleteInProgress,
		}, e.ResourceStatus)
}

// pollEvents reports the new events.
func (f *eventFollower) pollEvents(ctx context.Context) error {
	events, err := f.readEventsUntil(
		ctx,
		func(e types.StackEvent) bool { return aws.ToString(e.EventId) == f.lastEventID },
	)
	if err != nil {
		return err
	}

	if len(events) > 0 {
		f.pollInterval = minPollInterval
	}

	f.reportEvents(events)

	return nil
}

// waitInterval waits for the poll interval, which grows by half each time.
func (f *eventFollower) waitInterval(ctx context.Context) error {
	timer := time.NewTimer(f.pollInterval)
	defer timer.Stop()
	f.pollInterval = min(f.pollInterval*3/2, maxPollInterval)

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf(
			"stopped watching stack %s, whose operation continues; rerun to watch it: %w",
			f.stack.Name,
			ctx.Err(),
		)
	}
}

func (f *eventFollower) reportEvents(events []types.StackEvent) {
	for _, e := range events {
		f.lastEventID = aws.ToString(e.EventId)
		f.events = append(f.events, e)
		if aws.ToString(e.ResourceType) == stackType {
			f.reportStackEvent(e)
			continue
		}

		f.stack.OnEvent(f.planEvent(e))
	}
}

func (f *eventFollower) reportStackEvent(e types.StackEvent) {
	text := "stack " + f.stack.Name + ": " + string(e.ResourceStatus)
	if reason := aws.ToString(e.ResourceStatusReason); reason != "" {
		text += ": " + reason
	}

	f.stack.OnNotice(text)
}

// planEvent converts an event of a resource to one of package plan.
func (f *eventFollower) planEvent(e types.StackEvent) plan.Event {
	id := aws.ToString(e.LogicalResourceId)
	action, state := ProgressOf(e.ResourceStatus)
	at := aws.ToTime(e.Timestamp)
	if start := f.startedAt[id]; start.IsZero() || f.ended[id] && state == plan.Started {
		f.startedAt[id] = at
		f.ended[id] = false
	}

	reason := aws.ToString(e.ResourceStatusReason)
	if state == plan.Started && reason != "" && reason != "Resource creation Initiated" {
		state = plan.Waiting // progress of a running operation, such as a signal
	}

	if state == plan.Done || state == plan.Failed {
		f.completed[id] = true
		f.ended[id] = true
	}

	cfn := aws.ToString(e.ResourceType)

	return plan.Event{
		Step: plan.Step{
			Action: action,
			Addr:   f.stack.Names.AddrOf(cfn, id),
			Kind:   f.stack.Names.KindOf(cfn),
			ID:     aws.ToString(e.PhysicalResourceId),
		},
		State:   state,
		Elapsed: at.Sub(f.startedAt[id]),
		Detail:  reason,
		Index:   len(f.completed),
		Total:   max(f.total, len(f.startedAt)),
	}
}

// ProgressOf converts a status of a resource to an action and a state of package plan.
func ProgressOf(s types.ResourceStatus) (plan.Action, plan.State) {
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
