// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/base64"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// descriptionHandlers serves the descriptions of stacks, their events and their resources.
type descriptionHandlers struct{ *Service }

func (s descriptionHandlers) ops() []wire.Operation {
	return []wire.Operation{
		state.ReadOperation(s.store, "DescribeStacks", s.describeStacks),
		state.ReadOperation(s.store, "ListStacks", s.listStacks),
		state.ReadOperation(s.store, "DescribeStackEvents", s.describeStackEvents),
		state.ReadOperation(s.store, "DescribeStackResources", s.describeStackResources),
		state.ReadOperation(s.store, "DescribeStackResource", s.describeStackResource),
		state.ReadOperation(s.store, "ListStackResources", s.listStackResources),
	}
}

func showTags(tags map[string]string) []*sdk.Tag {
	out := []*sdk.Tag{}
	for _, k := range sdkshape.SortedKeys(tags) {
		out = append(out, &sdk.Tag{Key: new(k), Value: new(tags[k])})
	}

	return out
}

// showParameters returns the values of parameters; the value of a parameter with NoEcho is masked.
func showParameters(params map[string]template.ParameterValue) []*sdk.Parameter {
	out := []*sdk.Parameter{}
	for _, name := range sdkshape.SortedKeys(params) {
		v := params[name]
		p := &sdk.Parameter{ParameterKey: new(name), ParameterValue: new(v.Given)}
		if v.Resolved != nil {
			p.ResolvedValue = new(*v.Resolved)
		}

		if v.NoEcho {
			p.ParameterValue = new(template.NoEchoMask)
		}

		out = append(out, p)
	}

	return out
}

func showStack(st *stack) *sdk.Stack {
	out := &sdk.Stack{
		StackId:                     new(st.ID),
		StackName:                   new(st.Name),
		StackStatus:                 new(st.Status),
		CreationTime:                new(st.Created),
		DisableRollback:             new(st.DisableRollback),
		EnableTerminationProtection: new(st.Protected),
		Tags:                        showTags(st.Tags),
		NotificationARNs:            []*string{},
		DriftInformation: &sdk.StackDriftInformation{
			StackDriftStatus: new(sdk.StackDriftStatusNotChecked),
		},
		RollbackConfiguration: &sdk.RollbackConfiguration{},
	}
	if len(st.Params) > 0 && st.Body != "" {
		out.Parameters = showParameters(st.Params)
	}

	if len(st.Capability) > 0 {
		out.Capabilities = sdkshape.StringPointers(st.Capability)
	}

	setIfNotEmpty(&out.StackStatusReason, st.Reason)
	setIfNotEmpty(&out.Description, st.Described)
	setIfNotEmpty(&out.RoleARN, st.Role)
	if !st.Updated.IsZero() {
		out.LastUpdatedTime = new(st.Updated)
	}

	showDeletion(out, st)

	if st.Timeout > 0 {
		out.TimeoutInMinutes = new(st.Timeout)
	}

	for _, o := range st.Outputs {
		one := &sdk.Output{OutputKey: new(o.Key), OutputValue: new(o.Value)}
		setIfNotEmpty(&one.Description, o.Description)
		setIfNotEmpty(&one.ExportName, o.Export)
		out.Outputs = append(out.Outputs, one)
	}

	return out
}

// showDeletion sets what CloudFormation tells about the change set and the deletion of a stack. Once the deletion or the
// rollback of the creation has begun, a stack has the time of that and no change set. A deleted one has no protection.
func showDeletion(out *sdk.Stack, st *stack) {
	if st.Status == statusDeleted {
		out.EnableTerminationProtection = nil
	}

	if st.Deleted.IsZero() {
		setIfNotEmpty(&out.ChangeSetId, st.ChangeSetID)
		return
	}

	out.DeletionTime = new(st.Deleted)
}

func (s descriptionHandlers) describeStacks(in *sdk.DescribeStacksInput) (*sdk.DescribeStacksOutput, error) {
	if name := sdkshape.String(in.StackName); name != "" {
		st, err := s.state.findStack(name)
		if err != nil {
			return nil, err
		}

		return &sdk.DescribeStacksOutput{Stacks: []*sdk.Stack{showStack(st)}}, nil
	}

	var ids []string
	for _, id := range sdkshape.SortedKeys(s.state.Stacks) {
		if s.state.Stacks[id].Status != statusDeleted {
			ids = append(ids, id)
		}
	}

	ids, next, err := sdkshape.Paginate(ids, pageSize, in.NextToken, invalidTokenError())
	out := &sdk.DescribeStacksOutput{NextToken: next, Stacks: []*sdk.Stack{}}
	for _, id := range ids {
		out.Stacks = append(out.Stacks, showStack(s.state.Stacks[id]))
	}

	return out, err
}

func (s descriptionHandlers) listStacks(in *sdk.ListStacksInput) (*sdk.ListStacksOutput, error) {
	wanted := sdkshape.Strings(in.StackStatusFilter)
	var ids []string
	for _, id := range sdkshape.SortedKeys(s.state.Stacks) {
		if len(wanted) == 0 || slices.Contains(wanted, s.state.Stacks[id].Status) {
			ids = append(ids, id)
		}
	}

	ids, next, err := sdkshape.Paginate(ids, pageSize, in.NextToken, invalidTokenError())
	out := &sdk.ListStacksOutput{NextToken: next, StackSummaries: []*sdk.StackSummary{}}

	for _, id := range ids {
		full := showStack(s.state.Stacks[id])
		out.StackSummaries = append(out.StackSummaries, &sdk.StackSummary{
			StackId:             full.StackId,
			StackName:           full.StackName,
			StackStatus:         full.StackStatus,
			StackStatusReason:   full.StackStatusReason,
			CreationTime:        full.CreationTime,
			LastUpdatedTime:     full.LastUpdatedTime,
			DeletionTime:        full.DeletionTime,
			TemplateDescription: full.Description,
			DriftInformation: &sdk.StackDriftInformationSummary{
				StackDriftStatus: new(sdk.StackDriftStatusNotChecked),
			},
		})
	}

	return out, err
}

// describeStackEvents returns a page of a stack's events, newest first. The token is the index of the next
// event, so new events do not shift the pages.
func (s descriptionHandlers) describeStackEvents(
	in *sdk.DescribeStackEventsInput,
) (*sdk.DescribeStackEventsOutput, error) {
	name := sdkshape.String(in.StackName)
	st, err := s.state.findStack(name)
	if err != nil {
		return nil, newMissingStackError(name)
	}

	end := len(st.Events)
	if in.NextToken != nil {
		b, err := base64.RawURLEncoding.DecodeString(*in.NextToken)
		if err != nil {
			return nil, invalidTokenError()
		}

		if end, err = strconv.Atoi(string(b)); err != nil || end < 0 || end > len(st.Events) {
			return nil, invalidTokenError()
		}
	}

	begin := max(end-pageSize, 0)
	out := &sdk.DescribeStackEventsOutput{StackEvents: []*sdk.StackEvent{}}

	for _, e := range slices.Backward(st.Events[begin:end]) {
		one := &sdk.StackEvent{
			EventId:            new(e.ID),
			StackId:            new(st.ID),
			StackName:          new(st.Name),
			LogicalResourceId:  new(e.Logical),
			PhysicalResourceId: new(e.Physical),
			ResourceType:       new(e.Type),
			ResourceStatus:     new(e.Status),
			Timestamp:          new(e.At),
		}

		setIfNotEmpty(&one.ResourceStatusReason, e.Reason)
		setIfNotEmpty(&one.ClientRequestToken, e.Token)
		setIfNotEmpty(&one.ResourceProperties, e.Properties)
		out.StackEvents = append(out.StackEvents, one)
	}

	if begin > 0 {
		out.NextToken = new(base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(begin))))
	}

	return out, nil
}
