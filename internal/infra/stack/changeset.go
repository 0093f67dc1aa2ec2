// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// changeSetPrefix of the names of our change sets: what is left of them by a run that was killed is known by it.
const changeSetPrefix = "slipway-"

// Template is what a stack is to become.
type Template struct {
	// Body of at most 51,200 bytes, or URL of an object in S3.
	Body, URL string
	// Name tells one template from another, such as a hash; letters, digits and dashes.
	Name       string
	Parameters map[string]string
	Tags       map[string]string
}

// ChangeSet is a change set that waits to be executed, or to be discarded.
type ChangeSet struct {
	// Steps that executing it would take; none: there is nothing to change.
	Steps []plan.Step

	stackID, changeSetID string
	// createdStack says that the stack came with the change set: it holds nothing yet.
	createdStack bool
}

// CreateChangeSet asks CloudFormation what would change. What a run that was killed left of this goes first. The stack must be
// absent, under review, or steady.
func (s Stack) CreateChangeSet(ctx context.Context, t Template, info Info) (ChangeSet, error) {
	kind := types.ChangeSetTypeUpdate
	if PhaseOf(info.Status) != PhaseUpdatable {
		kind = types.ChangeSetTypeCreate
	}

	if PhaseOf(info.Status) != PhaseAbsent {
		if err := s.deleteStaleChangeSets(ctx, info.ID); err != nil {
			return ChangeSet{}, err
		}
	}

	name := changeSetPrefix + t.Name
	in := &cloudformation.CreateChangeSetInput{
		StackName:     &s.Name,
		ChangeSetName: &name,
		ChangeSetType: kind,
		Capabilities:  []types.Capability{types.CapabilityCapabilityNamedIam},
	}
	if t.URL != "" {
		in.TemplateURL = &t.URL
	} else {
		in.TemplateBody = &t.Body
	}

	for _, k := range slices.Sorted(maps.Keys(t.Parameters)) {
		in.Parameters = append(
			in.Parameters,
			types.Parameter{ParameterKey: &k, ParameterValue: aws.String(t.Parameters[k])},
		)
	}

	for _, k := range slices.Sorted(maps.Keys(t.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: &k, Value: aws.String(t.Tags[k])})
	}

	made, err := s.API.CreateChangeSet(ctx, in)
	if err != nil {
		return ChangeSet{}, fmt.Errorf("make a change set of stack %s: %w", s.Name, err)
	}

	p := ChangeSet{
		stackID:      aws.ToString(made.StackId),
		changeSetID:  aws.ToString(made.Id),
		createdStack: kind == types.ChangeSetTypeCreate,
	}
	if err := s.readChangeSet(ctx, &p); err != nil {
		return ChangeSet{}, errors.Join(err, s.DiscardChangeSet(context.WithoutCancel(ctx), p))
	}

	return p, nil
}

// deleteStaleChangeSets deletes change sets of ours that were never executed.
func (s Stack) deleteStaleChangeSets(ctx context.Context, id string) error {
	in := &cloudformation.ListChangeSetsInput{StackName: &id}
	for {
		page, err := s.API.ListChangeSets(ctx, in)
		if err != nil {
			return fmt.Errorf("list the change sets of stack %s: %w", s.Name, err)
		}

		for _, c := range page.Summaries {
			if !strings.HasPrefix(aws.ToString(c.ChangeSetName), changeSetPrefix) {
				continue
			}

			if _, err := s.API.DeleteChangeSet(ctx, &cloudformation.DeleteChangeSetInput{ChangeSetName: c.ChangeSetId}); err != nil {
				return fmt.Errorf(
					"delete change set %s of stack %s: %w",
					aws.ToString(c.ChangeSetName),
					s.Name,
					err,
				)
			}
		}

		if page.NextToken == nil {
			return nil
		}

		in.NextToken = page.NextToken
	}
}

// readChangeSet waits until the change set is computed, and reads its changes.
func (s Stack) readChangeSet(ctx context.Context, p *ChangeSet) error {
	f := s.followEvents(p.stackID, 0)
	in := &cloudformation.DescribeChangeSetInput{
		ChangeSetName:         &p.changeSetID,
		IncludePropertyValues: aws.Bool(true),
	}

	var changes []types.Change

	for {
		out, err := s.API.DescribeChangeSet(ctx, in)
		if err != nil {
			return fmt.Errorf("read the change set of stack %s: %w", s.Name, err)
		}

		switch out.Status {
		case types.ChangeSetStatusCreatePending, types.ChangeSetStatusCreateInProgress:
			if err := f.waitInterval(ctx); err != nil {
				return err
			}

			continue

		case types.ChangeSetStatusFailed:
			if reason := aws.ToString(out.StatusReason); !hasNoChanges(reason) {
				return fmt.Errorf("make a change set of stack %s: %s", s.Name, reason)
			}

			p.Steps = []plan.Step{}
			return nil

		default: // it is there to be read
		}

		changes = append(changes, out.Changes...)
		if out.NextToken == nil {
			p.Steps = StepsOf(changes, s.Names)
			return nil
		}

		in.NextToken = out.NextToken
	}
}

// hasNoChanges says whether a change set failed because there is nothing to change: that has no status of its own.
func hasNoChanges(reason string) bool {
	return strings.Contains(reason, "didn't contain changes") ||
		strings.Contains(reason, "No updates are to be performed")
}

// DiscardChangeSet deletes a change set, and the empty stack that came with it.
func (s Stack) DiscardChangeSet(ctx context.Context, p ChangeSet) error {
	if p.changeSetID == "" {
		return nil
	}

	if _, err := s.API.DeleteChangeSet(ctx, &cloudformation.DeleteChangeSetInput{ChangeSetName: &p.changeSetID}); err != nil {
		return fmt.Errorf("delete the change set of stack %s: %w", s.Name, err)
	}

	if !p.createdStack {
		return nil
	}

	info, err := s.describeByID(ctx, p.stackID)
	if err != nil || PhaseOf(info.Status) != PhaseReview {
		return err
	}

	if _, err := s.API.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &p.stackID}); err != nil {
		return fmt.Errorf("delete the empty stack %s: %w", s.Name, err)
	}

	return nil
}

// ExecuteChangeSet carries a proposal out and waits for its end. An operation that CloudFormation rolled back is a [FailedError].
func (s Stack) ExecuteChangeSet(ctx context.Context, p ChangeSet) error {
	f := s.followEvents(p.stackID, len(p.Steps))
	if err := f.skipExisting(ctx); err != nil {
		return err
	}

	if _, err := s.API.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{ChangeSetName: &p.changeSetID}); err != nil {
		return fmt.Errorf("execute the change set of stack %s: %w", s.Name, err)
	}

	info, err := s.waitForEnd(ctx, f, p.stackID, true)
	if err == nil && !IsSuccess(info.Status) {
		err = s.failedError(f, info)
	}

	return err
}
