// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"cmp"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

func (s changeSetHandlers) describeChangeSet(
	in *sdk.DescribeChangeSetInput,
) (*sdk.DescribeChangeSetOutput, error) {
	st, cs, err := s.state.findChangeSet(in.ChangeSetName, in.StackName)
	if err != nil {
		return nil, err
	}

	changes := cs.Changes
	reason := cs.Reason
	if boolValue(in.IncludePropertyValues) {
		changes = cs.WithValues
		reason = cmp.Or(reason, cs.Warning)
	}

	byName := map[string]resourceChange{}
	for _, c := range changes {
		byName[c.Logical+"\x00"+c.Action] = c
	}

	keys, next, err := sdkshape.Paginate(
		sdkshape.SortedKeys(byName),
		pageSize,
		in.NextToken,
		invalidTokenError(),
	)
	if err != nil {
		return nil, err
	}

	out := &sdk.DescribeChangeSetOutput{
		ChangeSetId:           new(cs.ID),
		ChangeSetName:         new(cs.Name),
		StackId:               new(st.ID),
		StackName:             new(st.Name),
		Status:                new(cs.Status),
		ExecutionStatus:       new(cs.Execution),
		CreationTime:          new(cs.Created),
		Capabilities:          sdkshape.StringPointers(cs.Capability),
		Tags:                  showTags(cs.Tags),
		Parameters:            showParameters(cs.Params),
		Changes:               []*sdk.Change{},
		NextToken:             next,
		NotificationARNs:      []*string{},
		IncludeNestedStacks:   new(false),
		RollbackConfiguration: &sdk.RollbackConfiguration{},
	}

	setIfNotEmpty(&out.StatusReason, reason)
	setIfNotEmpty(&out.Description, cs.Description)
	setIfNotEmpty(&out.OnStackFailure, cs.OnFailure)
	for _, k := range keys {
		out.Changes = append(out.Changes, showChange(byName[k]))
	}

	return out, nil
}

// setIfNotEmpty sets a field of an answer unless the text is empty.
func setIfNotEmpty(member **string, text string) {
	if text != "" {
		*member = &text
	}
}

func showChange(c resourceChange) *sdk.Change {
	r := &sdk.ResourceChange{
		Action:            new(c.Action),
		LogicalResourceId: new(c.Logical),
		ResourceType:      new(c.Type),
		Scope:             sdkshape.StringPointers(c.Scope),
		Details:           []*sdk.ResourceChangeDetail{},
	}

	setIfNotEmpty(&r.PhysicalResourceId, c.Physical)
	setIfNotEmpty(&r.PolicyAction, c.Policy)
	setIfNotEmpty(&r.Replacement, c.Replacement)
	setIfNotEmpty(&r.BeforeContext, c.Before)
	setIfNotEmpty(&r.AfterContext, c.After)
	for _, d := range c.Details {
		r.Details = append(r.Details, showDetail(d))
	}

	return &sdk.Change{Type: new(sdk.ChangeTypeResource), ResourceChange: r}
}

func showDetail(d changeDetail) *sdk.ResourceChangeDetail {
	target := &sdk.ResourceTargetDefinition{
		Attribute:          new(d.Attribute),
		RequiresRecreation: new(d.Recreation),
	}

	setIfNotEmpty(&target.Name, d.Name)
	setIfNotEmpty(&target.Path, d.Path)
	setIfNotEmpty(&target.AttributeChangeType, d.ChangeType)
	if d.ChangeType == sdk.AttributeChangeTypeModify || d.ChangeType == sdk.AttributeChangeTypeRemove {
		target.BeforeValue = new(d.BeforeValue)
	}

	if d.ChangeType == sdk.AttributeChangeTypeModify || d.ChangeType == sdk.AttributeChangeTypeAdd {
		target.AfterValue = new(d.AfterValue)
	}

	out := &sdk.ResourceChangeDetail{
		Evaluation:   new(d.Evaluation),
		ChangeSource: new(d.Source),
		Target:       target,
	}
	setIfNotEmpty(&out.CausingEntity, d.Cause)

	return out
}
