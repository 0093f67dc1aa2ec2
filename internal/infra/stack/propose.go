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

// prefix of the names of our change sets: what is left of them by a run that was killed is known by it.
const prefix = "slipway-"

// Template is what a stack is to become.
type Template struct {
	// Body of at most 51,200 bytes, or URL of an object in S3.
	Body, URL string
	// Name tells one template from another, such as a hash; letters, digits and dashes.
	Name       string
	Parameters map[string]string
	Tags       map[string]string
}

// Proposal is a change set that waits to be executed, or to be discarded.
type Proposal struct {
	// Steps that executing it would take; none: there is nothing to change.
	Steps []plan.Step

	stackID, changeSet string
	// made says that the stack came with the change set: it holds nothing yet.
	made bool
}

// Propose asks CloudFormation what would change. What a run that was killed left of this goes first. The stack must be
// absent, under review, or steady.
func (s Stack) Propose(ctx context.Context, t Template, info Info) (Proposal, error) {
	kind := types.ChangeSetTypeUpdate
	if PhaseOf(info.Status) != Steady {
		kind = types.ChangeSetTypeCreate
	}
	if PhaseOf(info.Status) != Absent {
		if err := s.sweep(ctx, info.ID); err != nil {
			return Proposal{}, err
		}
	}
	name := prefix + t.Name
	in := &cloudformation.CreateChangeSetInput{
		StackName: &s.Name, ChangeSetName: &name, ChangeSetType: kind, Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam},
	}
	if t.URL != "" {
		in.TemplateURL = &t.URL
	} else {
		in.TemplateBody = &t.Body
	}
	for _, k := range slices.Sorted(maps.Keys(t.Parameters)) {
		in.Parameters = append(in.Parameters, types.Parameter{ParameterKey: &k, ParameterValue: aws.String(t.Parameters[k])})
	}
	for _, k := range slices.Sorted(maps.Keys(t.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: &k, Value: aws.String(t.Tags[k])})
	}
	made, err := s.API.CreateChangeSet(ctx, in)
	if err != nil {
		return Proposal{}, fmt.Errorf("make a change set of stack %s: %w", s.Name, err)
	}
	p := Proposal{stackID: aws.ToString(made.StackId), changeSet: aws.ToString(made.Id), made: kind == types.ChangeSetTypeCreate}
	if err := s.read(ctx, &p); err != nil {
		return Proposal{}, errors.Join(err, s.Discard(context.WithoutCancel(ctx), p))
	}
	return p, nil
}

// sweep deletes change sets of ours that were never executed.
func (s Stack) sweep(ctx context.Context, id string) error {
	in := &cloudformation.ListChangeSetsInput{StackName: &id}
	for {
		page, err := s.API.ListChangeSets(ctx, in)
		if err != nil {
			return fmt.Errorf("list the change sets of stack %s: %w", s.Name, err)
		}
		for _, c := range page.Summaries {
			if !strings.HasPrefix(aws.ToString(c.ChangeSetName), prefix) {
				continue
			}
			if _, err := s.API.DeleteChangeSet(ctx, &cloudformation.DeleteChangeSetInput{ChangeSetName: c.ChangeSetId}); err != nil {
				return fmt.Errorf("delete change set %s of stack %s: %w", aws.ToString(c.ChangeSetName), s.Name, err)
			}
		}
		if page.NextToken == nil {
			return nil
		}
		in.NextToken = page.NextToken
	}
}

// read waits until the change set is computed, and reads its changes.
func (s Stack) read(ctx context.Context, p *Proposal) error {
	f := s.follow(p.stackID, 0)
	in := &cloudformation.DescribeChangeSetInput{ChangeSetName: &p.changeSet, IncludePropertyValues: aws.Bool(true)}
	var changes []types.Change
	for {
		out, err := s.API.DescribeChangeSet(ctx, in)
		if err != nil {
			return fmt.Errorf("read the change set of stack %s: %w", s.Name, err)
		}
		switch out.Status {
		case types.ChangeSetStatusCreatePending, types.ChangeSetStatusCreateInProgress:
			if err := f.pause(ctx); err != nil {
				return err
			}
			continue
		case types.ChangeSetStatusFailed:
			if reason := aws.ToString(out.StatusReason); !nothing(reason) {
				return fmt.Errorf("make a change set of stack %s: %s", s.Name, reason)
			}
			p.Steps = []plan.Step{}
			return nil
		default: // it is there to be read
		}
		changes = append(changes, out.Changes...)
		if out.NextToken == nil {
			p.Steps = Steps(changes, s.Names)
			return nil
		}
		in.NextToken = out.NextToken
	}
}

// nothing says whether a change set failed because there is nothing to change: that has no status of its own.
func nothing(reason string) bool {
	return strings.Contains(reason, "didn't contain changes") || strings.Contains(reason, "No updates are to be performed")
}

// Discard deletes a change set, and the empty stack that came with it.
func (s Stack) Discard(ctx context.Context, p Proposal) error {
	if p.changeSet == "" {
		return nil
	}
	if _, err := s.API.DeleteChangeSet(ctx, &cloudformation.DeleteChangeSetInput{ChangeSetName: &p.changeSet}); err != nil {
		return fmt.Errorf("delete the change set of stack %s: %w", s.Name, err)
	}
	if !p.made {
		return nil
	}
	info, err := s.describe(ctx, p.stackID)
	if err != nil || PhaseOf(info.Status) != Review {
		return err
	}
	if _, err := s.API.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &p.stackID}); err != nil {
		return fmt.Errorf("delete the empty stack %s: %w", s.Name, err)
	}
	return nil
}

// Execute carries a proposal out and waits for its end. An operation that CloudFormation rolled back is a [FailedError].
func (s Stack) Execute(ctx context.Context, p Proposal) error {
	f := s.follow(p.stackID, len(p.Steps))
	if err := f.skip(ctx); err != nil {
		return err
	}
	if _, err := s.API.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{ChangeSetName: &p.changeSet}); err != nil {
		return fmt.Errorf("execute the change set of stack %s: %w", s.Name, err)
	}
	info, err := s.settled(ctx, f, p.stackID, true)
	if err == nil && !WentWell(info.Status) {
		err = s.failure(f, info)
	}
	return err
}
