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
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// changeSetPrefix begins the names of Slipway's change sets, so that those of a killed run are recognized.
const changeSetPrefix = "slipway-"

// Template is the desired template of a stack, with its parameters and tags.
type Template struct {
	// Body is the template. With an URL it is what the object must contain: CloudFormation reads the object by
	// itself, and somebody else may have replaced it.
	Body string
	// URL of the template in S3; empty if the template is sent with the request, which has at most 51,200 bytes.
	URL string
	// Name distinguishes templates, such as by a hash. It consists of letters, digits and dashes.
	Name string
	// Parameters are values by name; a parameter without one has its default.
	Parameters map[string]string
	// Tags of the stack; CloudFormation adds them to its resources.
	Tags map[string]string
}

// ChangeSet is a change set that can be executed or discarded.
type ChangeSet struct {
	// Steps lists what executing it does; empty if nothing changes.
	Steps []plan.Step

	stackID, changeSetID string
	createdStack         bool // the stack was created with the change set and is empty
}

// CreateChangeSet creates a change set for t and returns it with its steps. It first deletes the change sets
// of killed runs. The stack must be in PhaseAbsent, PhaseReview or PhaseUpdatable.
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

	created, err := s.API.CreateChangeSet(ctx, in)
	if err != nil {
		return ChangeSet{}, withQuotaHint(fmt.Errorf("create a change set of stack %s: %w", s.Name, err))
	}

	p := ChangeSet{
		stackID:      aws.ToString(created.StackId),
		changeSetID:  aws.ToString(created.Id),
		createdStack: kind == types.ChangeSetTypeCreate,
	}

	err = s.readChangeSet(ctx, &p)
	if err == nil && t.URL != "" {
		err = s.compareTemplate(ctx, p, t.Body)
	}

	if err != nil {
		return ChangeSet{}, errors.Join(err, s.DiscardChangeSet(context.WithoutCancel(ctx), p))
	}

	return p, nil
}

// compareTemplate returns an error unless the change set was made of the template body. White space around the
// template does not count.
func (s Stack) compareTemplate(ctx context.Context, p ChangeSet, body string) error {
	out, err := s.API.GetTemplate(ctx, &cloudformation.GetTemplateInput{
		StackName:     &p.stackID,
		ChangeSetName: &p.changeSetID,
		TemplateStage: types.TemplateStageOriginal,
	})
	if err != nil {
		return fmt.Errorf("read the template of the change set of stack %s: %w", s.Name, err)
	}

	if strings.TrimSpace(aws.ToString(out.TemplateBody)) == strings.TrimSpace(body) {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf(
			"the change set of stack %s has another template than Slipway uploaded: the object was replaced before "+
				"CloudFormation read it",
			s.Name,
		),
		"find out who writes to the bucket of the machine store (CloudTrail, versions of the bucket), then rerun",
	)
}

// withQuotaHint adds to an error that there are too many stacks what to do about it.
func withQuotaHint(err error) error {
	if _, ok := errors.AsType[*types.LimitExceededException](err); !ok {
		return err
	}

	return diag.WithHint(
		err,
		"delete stacks that are not needed, or raise the quota \"Stack count\" (L-0485CB21) of CloudFormation in Service Quotas",
	)
}

// deleteStaleChangeSets deletes Slipway's change sets that were never executed.
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

			stale := &cloudformation.DeleteChangeSetInput{ChangeSetName: c.ChangeSetId}
			if _, err := s.API.DeleteChangeSet(ctx, stale); err != nil {
				name := aws.ToString(c.ChangeSetName)
				return fmt.Errorf("delete change set %s of stack %s: %w", name, s.Name, err)
			}
		}

		if page.NextToken == nil {
			return nil
		}

		in.NextToken = page.NextToken
	}
}

// readChangeSet waits until CloudFormation has computed the change set, and sets p.Steps.
func (s Stack) readChangeSet(ctx context.Context, p *ChangeSet) error {
	withValues, err := s.readChanges(ctx, p, true)
	if err != nil {
		return err
	}

	all, err := s.readChanges(ctx, p, false)
	if err != nil {
		return err
	}

	p.Steps = StepsOf(MergeChanges(withValues, all), s.Names)

	return nil
}

// readChanges waits until CloudFormation has computed the change set, and returns its changes; nil if nothing
// changes.
func (s Stack) readChanges(ctx context.Context, p *ChangeSet, values bool) ([]types.Change, error) {
	f := s.followEvents(p.stackID, 0)
	in := &cloudformation.DescribeChangeSetInput{
		ChangeSetName:         &p.changeSetID,
		IncludePropertyValues: &values,
	}

	var changes []types.Change

	for {
		out, err := s.API.DescribeChangeSet(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("read the change set of stack %s: %w", s.Name, err)
		}

		switch out.Status {
		case types.ChangeSetStatusCreatePending, types.ChangeSetStatusCreateInProgress:
			if err := f.waitInterval(ctx); err != nil {
				return nil, err
			}

			continue

		case types.ChangeSetStatusFailed:
			if reason := aws.ToString(out.StatusReason); !hasNoChanges(reason) {
				return nil, fmt.Errorf("create a change set of stack %s: %s", s.Name, reason)
			}

			return nil, nil

		default: // it is complete
		}

		changes = append(changes, out.Changes...)
		if out.NextToken == nil {
			return changes, nil
		}

		in.NextToken = out.NextToken
	}
}

// MergeChanges returns the changes that CloudFormation describes with property values, followed by those that
// it describes only without: changes of resources that depend on an attribute of a resource that changes in
// place. For example, a group depends on the version of its launch template.
func MergeChanges(withValues, all []types.Change) []types.Change {
	known := map[string]bool{}
	for _, c := range withValues {
		if c.ResourceChange != nil {
			known[aws.ToString(c.ResourceChange.LogicalResourceId)] = true
		}
	}

	out := slices.Clone(withValues)

	for _, c := range all {
		if c.ResourceChange != nil && !known[aws.ToString(c.ResourceChange.LogicalResourceId)] {
			out = append(out, c)
		}
	}

	return out
}

// hasNoChanges reports whether a change set failed because nothing changes. CloudFormation has no status for
// that, only the reason's text.
func hasNoChanges(reason string) bool {
	return strings.Contains(reason, "didn't contain changes") ||
		strings.Contains(reason, "No updates are to be performed")
}

// DiscardChangeSet deletes a change set, and the empty stack that was created with it.
func (s Stack) DiscardChangeSet(ctx context.Context, p ChangeSet) error {
	if p.changeSetID == "" {
		return nil
	}

	in := &cloudformation.DeleteChangeSetInput{ChangeSetName: &p.changeSetID}
	if _, err := s.API.DeleteChangeSet(ctx, in); err != nil {
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

// ExecuteChangeSet executes a change set and waits for its end. An operation that failed or was rolled back
// is a [FailedError].
func (s Stack) ExecuteChangeSet(ctx context.Context, p ChangeSet) error {
	f := s.followEvents(p.stackID, len(p.Steps))
	if err := f.skipExisting(ctx); err != nil {
		return err
	}

	in := &cloudformation.ExecuteChangeSetInput{ChangeSetName: &p.changeSetID}
	if _, err := s.API.ExecuteChangeSet(ctx, in); err != nil {
		return fmt.Errorf("execute the change set of stack %s: %w", s.Name, err)
	}

	info, err := s.waitForEnd(ctx, f, p.stackID, true)
	if err == nil && !IsSuccess(info.Status) {
		err = s.failedError(f, info)
	}

	if err != nil && ctx.Err() != nil {
		return f.interruption(ctx.Err())
	}

	return err
}

// interruption returns how far an operation got that CloudFormation continues.
func (f *eventFollower) interruption(cause error) error {
	running := 0
	for id := range f.startedAt {
		if !f.ended[id] {
			running++
		}
	}

	return &plan.InterruptedError{
		Done:     len(f.completed),
		InFlight: running,
		Total:    f.total,
		Follow:   "CloudFormation continues; rerun to follow it",
		Cause:    cause,
	}
}
