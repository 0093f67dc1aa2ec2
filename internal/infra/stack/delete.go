// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Resource is one resource of a stack.
type Resource struct {
	// LogicalID is the name in the template.
	LogicalID string
	// Type is CloudFormation's type, such as AWS::EC2::VPC.
	Type string
	// ID is the physical id.
	ID string
}

// ListResources returns the resources of the stack that are not deleted; none if there is no stack.
func (s Stack) ListResources(ctx context.Context) ([]Resource, error) {
	var out []Resource
	in := &cloudformation.ListStackResourcesInput{StackName: &s.Name}
	for {
		page, err := s.API.ListStackResources(ctx, in)
		if isStackMissing(err) {
			return nil, nil
		}

		if err != nil {
			return nil, fmt.Errorf("list the resources of stack %s: %w", s.Name, err)
		}

		for _, r := range page.StackResourceSummaries {
			if r.ResourceStatus == types.ResourceStatusDeleteComplete ||
				r.ResourceStatus == types.ResourceStatusDeleteSkipped {
				continue
			}

			out = append(out, Resource{
				LogicalID: aws.ToString(r.LogicalResourceId),
				Type:      aws.ToString(r.ResourceType),
				ID:        aws.ToString(r.PhysicalResourceId),
			})
		}

		if page.NextToken == nil {
			return out, nil
		}

		in.NextToken = page.NextToken
	}
}

// DeletionSteps returns the steps of the deletion of a stack with these resources.
func (s Stack) DeletionSteps(resources []Resource) []plan.Step {
	var changes []types.Change
	for _, r := range resources {
		changes = append(changes, types.Change{
			ResourceChange: &types.ResourceChange{
				Action:             types.ChangeActionRemove,
				LogicalResourceId:  &r.LogicalID,
				ResourceType:       &r.Type,
				PhysicalResourceId: &r.ID,
			},
		})
	}

	return StepsOf(changes, s.Names)
}

// ReadTemplate returns the stack's template as it was submitted; empty if there is no stack.
func (s Stack) ReadTemplate(ctx context.Context) (string, error) {
	out, err := s.API.GetTemplate(
		ctx,
		&cloudformation.GetTemplateInput{StackName: &s.Name, TemplateStage: types.TemplateStageOriginal},
	)
	if isStackMissing(err) {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("read the template of stack %s: %w", s.Name, err)
	}

	return aws.ToString(out.TemplateBody), nil
}

// Delete turns off termination protection, deletes the stack and waits for its end. total is the number of
// resources, for progress. The error names each resource that could not be deleted, with the reason, and
// wraps a [FailedError].
func (s Stack) Delete(ctx context.Context, info Info, total int) error {
	f := s.followEvents(info.ID, total)
	if err := f.skipExisting(ctx); err != nil {
		return err
	}

	if info.Protected {
		if _, err := s.API.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{
			StackName: &info.ID, EnableTerminationProtection: aws.Bool(false),
		}); err != nil {
			return fmt.Errorf("turn off termination protection of stack %s: %w", s.Name, err)
		}
	}

	if _, err := s.API.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &info.ID}); err != nil {
		return fmt.Errorf("delete stack %s: %w", s.Name, err)
	}

	after, err := s.waitForEnd(ctx, f, info.ID, true)
	if err != nil {
		return err
	}

	if PhaseOf(after.Status) == PhaseAbsent {
		return nil
	}

	return errors.Join(s.failedError(f, after), s.deletionErrors(f.events))
}

// deletionErrors returns an error for each resource that could not be deleted.
func (s Stack) deletionErrors(events []types.StackEvent) error {
	reasons := map[string]error{}
	var order []string
	for _, e := range events {
		id := aws.ToString(e.LogicalResourceId)
		if e.ResourceStatus != types.ResourceStatusDeleteFailed || aws.ToString(e.ResourceType) == stackType {
			continue
		}

		if reasons[id] == nil {
			order = append(order, id)
		}

		reasons[id] = fmt.Errorf(
			"delete %s (%s): %s",
			s.Names.AddrOf(aws.ToString(e.ResourceType), id),
			aws.ToString(e.PhysicalResourceId),
			aws.ToString(e.ResourceStatusReason),
		)
	}

	var errs []error
	for _, id := range order {
		errs = append(errs, reasons[id])
	}

	return errors.Join(errs...)
}
