// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// wireOperations lists the operations of the API.
func (s *Service) wireOperations() []wire.Op {
	return []wire.Op{
		wire.Operation("CreateStack", s.createStack),
		wire.Operation("UpdateStack", s.updateStack),
		wire.Operation("DeleteStack", s.deleteStack),
		wire.Operation("CreateChangeSet", s.createChangeSet),
		wire.Operation("ValidateTemplate", s.validateTemplate),
		wire.Operation("GetTemplateSummary", s.getTemplateSummary),
		state.ReadOperation(s.store, "DescribeChangeSet", s.describeChangeSet),
		state.ReadOperation(s.store, "ListChangeSets", s.listChangeSets),
		state.WriteOperation(s.store, "ExecuteChangeSet", s.executeChangeSet),
		state.WriteOperation(s.store, "DeleteChangeSet", s.deleteChangeSet),
		state.ReadOperation(s.store, "DescribeStacks", s.describeStacks),
		state.ReadOperation(s.store, "ListStacks", s.listStacks),
		state.ReadOperation(s.store, "DescribeStackEvents", s.describeStackEvents),
		state.ReadOperation(s.store, "DescribeStackResources", s.describeStackResources),
		state.ReadOperation(s.store, "DescribeStackResource", s.describeStackResource),
		state.ReadOperation(s.store, "ListStackResources", s.listStackResources),
		state.ReadOperation(s.store, "GetTemplate", s.getTemplate),
		state.WriteOperation(s.store, "SignalResource", s.signalResource),
		state.WriteOperation(s.store, "SetStackPolicy", s.setStackPolicy),
		state.ReadOperation(s.store, "GetStackPolicy", s.getStackPolicy),
		state.WriteOperation(s.store, "UpdateTerminationProtection", s.updateTerminationProtection),
		state.ReadOperation(s.store, "ListExports", s.listExports),
		state.ReadOperation(s.store, "ListImports", s.listImports),
		wire.Operation("CancelUpdateStack", s.cancelUpdateStack),
		state.WriteOperation(s.store, "ContinueUpdateRollback", s.continueUpdateRollback),
	}
}

func showTags(tags map[string]string) []*sdk.Tag {
	out := []*sdk.Tag{}
	for _, k := range sdkshape.SortedKeys(tags) {
		out = append(out, &sdk.Tag{Key: new(k), Value: new(tags[k])})
	}

	return out
}

// showParameters are the values of parameters; those with NoEcho are hidden.
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

func (s *Service) showStack(st *stack) *sdk.Stack {
	out := &sdk.Stack{
		StackId:                     new(st.ID),
		StackName:                   new(st.Name),
		StackStatus:                 new(st.Status),
		CreationTime:                new(st.Created),
		DisableRollback:             new(st.DisableRollback),
		EnableTerminationProtection: new(st.Protected),
		Tags:                        showTags(st.Tags),
		Capabilities:                sdkshape.StringPointers(st.Capability),
		NotificationARNs:            sdkshape.StringPointers(st.Notify),
		Outputs:                     []*sdk.Output{},
		DriftInformation: &sdk.StackDriftInformation{
			StackDriftStatus: new(sdk.StackDriftStatusNotChecked),
		},
		RollbackConfiguration: &sdk.RollbackConfiguration{},
	}
	if st.Body != "" {
		out.Parameters = showParameters(st.Params)
	}

	setIfNotEmpty(&out.StackStatusReason, st.Reason)
	setIfNotEmpty(&out.Description, st.Described)
	setIfNotEmpty(&out.RoleARN, st.Role)
	setIfNotEmpty(&out.ChangeSetId, st.ChangeSetID)
	if !st.Updated.IsZero() {
		out.LastUpdatedTime = new(st.Updated)
	}

	if !st.Deleted.IsZero() {
		out.DeletionTime = new(st.Deleted)
	}

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

func (s *Service) describeStacks(in *sdk.DescribeStacksInput) (*sdk.DescribeStacksOutput, error) {
	if name := sdkshape.String(in.StackName); name != "" {
		st, err := s.findStack(name)
		if err != nil {
			return nil, err
		}

		return &sdk.DescribeStacksOutput{Stacks: []*sdk.Stack{s.showStack(st)}}, nil
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
		out.Stacks = append(out.Stacks, s.showStack(s.state.Stacks[id]))
	}

	return out, err
}

func (s *Service) listStacks(in *sdk.ListStacksInput) (*sdk.ListStacksOutput, error) {
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
		full := s.showStack(s.state.Stacks[id])
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

// describeStackEvents pages through a stack's history, newest first. The token is the number of the next event to show, so
// that new ones do no harm.
func (s *Service) describeStackEvents(
	in *sdk.DescribeStackEventsInput,
) (*sdk.DescribeStackEventsOutput, error) {
	st, err := s.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
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

// resourcesByName are a stack's resources in the order of their names.
func resourcesByName(st *stack) []*resource {
	var out []*resource
	for _, name := range sdkshape.SortedKeys(st.Resources) {
		if st.Resources[name].Status != "" {
			out = append(out, st.Resources[name])
		}
	}

	return out
}

func (s *Service) describeStackResources(
	in *sdk.DescribeStackResourcesInput,
) (*sdk.DescribeStackResourcesOutput, error) {
	name := sdkshape.String(in.StackName)
	physical := sdkshape.String(in.PhysicalResourceId)
	if name == "" && physical == "" {
		return nil, template.ValidationError("Either stackName or physicalResourceId must be specified")
	}

	var st *stack
	var err error
	if name != "" {
		if st, err = s.findStack(name); err != nil {
			return nil, err
		}
	} else if st = s.stackOwning(physical); st == nil {
		return nil, template.ValidationError("Stack for %s does not exist", physical)
	}

	out := &sdk.DescribeStackResourcesOutput{StackResources: []*sdk.StackResource{}}

	for _, r := range resourcesByName(st) {
		if l := sdkshape.String(in.LogicalResourceId); l != "" && l != r.Logical {
			continue
		}

		one := &sdk.StackResource{
			StackId:           new(st.ID),
			StackName:         new(st.Name),
			LogicalResourceId: new(r.Logical),
			ResourceType:      new(r.Type),
			ResourceStatus:    new(r.Status),
			Timestamp:         new(r.Changed),
			DriftInformation: &sdk.StackResourceDriftInformation{
				StackResourceDriftStatus: new(sdk.StackResourceDriftStatusNotChecked),
			},
		}

		setIfNotEmpty(&one.PhysicalResourceId, r.Physical)
		setIfNotEmpty(&one.ResourceStatusReason, r.Reason)
		out.StackResources = append(out.StackResources, one)
	}

	return out, nil
}

// stackOwning is the stack that has a resource with that physical id.
func (s *Service) stackOwning(physical string) *stack {
	for _, st := range s.state.Stacks {
		for _, r := range st.Resources {
			if r.Physical == physical && st.Status != statusDeleted {
				return st
			}
		}
	}

	return nil
}

func (s *Service) describeStackResource(
	in *sdk.DescribeStackResourceInput,
) (*sdk.DescribeStackResourceOutput, error) {
	st, err := s.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	r := st.Resources[sdkshape.String(in.LogicalResourceId)]
	if r == nil {
		return nil, template.ValidationError(
			"Resource %s does not exist for stack %s",
			sdkshape.String(in.LogicalResourceId),
			st.Name,
		)
	}

	out := &sdk.StackResourceDetail{
		StackId:              new(st.ID),
		StackName:            new(st.Name),
		LogicalResourceId:    new(r.Logical),
		ResourceType:         new(r.Type),
		ResourceStatus:       new(r.Status),
		LastUpdatedTimestamp: new(r.Changed),
		DriftInformation: &sdk.StackResourceDriftInformation{
			StackResourceDriftStatus: new(sdk.StackResourceDriftStatusNotChecked),
		},
	}

	setIfNotEmpty(&out.PhysicalResourceId, r.Physical)
	setIfNotEmpty(&out.ResourceStatusReason, r.Reason)
	if t, err := parseTemplate(st.Body); err == nil {
		if m := t.Resources[r.Logical].Metadata; m != nil {
			b, err := json.Marshal(m)
			if err != nil {
				return nil, fmt.Errorf("write the metadata of %s: %w", r.Logical, err)
			}

			out.Metadata = new(string(b))
		}
	}

	return &sdk.DescribeStackResourceOutput{StackResourceDetail: out}, nil
}

func (s *Service) listStackResources(in *sdk.ListStackResourcesInput) (*sdk.ListStackResourcesOutput, error) {
	st, err := s.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	byName := map[string]*resource{}
	for _, r := range resourcesByName(st) {
		byName[r.Logical] = r
	}

	keys, next, err := sdkshape.Paginate(sdkshape.SortedKeys(byName), pageSize, in.NextToken, invalidTokenError())
	out := &sdk.ListStackResourcesOutput{
		NextToken:              next,
		StackResourceSummaries: []*sdk.StackResourceSummary{},
	}

	for _, k := range keys {
		r := byName[k]
		one := &sdk.StackResourceSummary{
			LogicalResourceId:    new(r.Logical),
			ResourceType:         new(r.Type),
			ResourceStatus:       new(r.Status),
			LastUpdatedTimestamp: new(r.Changed),
			DriftInformation: &sdk.StackResourceDriftInformationSummary{
				StackResourceDriftStatus: new(sdk.StackResourceDriftStatusNotChecked),
			},
		}

		setIfNotEmpty(&one.PhysicalResourceId, r.Physical)
		setIfNotEmpty(&one.ResourceStatusReason, r.Reason)
		out.StackResourceSummaries = append(out.StackResourceSummaries, one)
	}

	return out, err
}

func (s *Service) getTemplate(in *sdk.GetTemplateInput) (*sdk.GetTemplateOutput, error) {
	stages := sdkshape.StringPointers([]string{sdk.TemplateStageOriginal, sdk.TemplateStageProcessed})
	if in.ChangeSetName != nil {
		_, cs, err := s.findChangeSet(in.ChangeSetName, in.StackName)
		if err != nil {
			return nil, err
		}

		return &sdk.GetTemplateOutput{TemplateBody: new(cs.Body), StagesAvailable: stages}, nil
	}

	st, err := s.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	return &sdk.GetTemplateOutput{TemplateBody: new(st.Body), StagesAvailable: stages}, nil
}

func (s *Service) validateTemplate(
	ctx context.Context,
	in *sdk.ValidateTemplateInput,
) (*sdk.ValidateTemplateOutput, error) {
	body, err := s.loadTemplate(ctx, templateSource{in.TemplateBody, in.TemplateURL, nil}, "")
	if err != nil {
		return nil, err
	}

	t, err := parseTemplate(body)
	if err != nil {
		return nil, err
	}

	out := &sdk.ValidateTemplateOutput{Parameters: []*sdk.TemplateParameter{}}
	setIfNotEmpty(&out.Description, t.Description)
	if need, because := requiredCapabilities(t); need != "" {
		out.Capabilities, out.CapabilitiesReason = sdkshape.StringPointers(
			[]string{need},
		), new(
			fmt.Sprintf("The following resource(s) require capabilities: %v", because),
		)
	}

	for _, name := range sdkshape.SortedKeys(t.Parameters) {
		p := t.Parameters[name]
		one := &sdk.TemplateParameter{ParameterKey: new(name), NoEcho: new(p.NoEcho), DefaultValue: p.Default}
		setIfNotEmpty(&one.Description, p.Description)
		out.Parameters = append(out.Parameters, one)
	}

	return out, nil
}

func (s *Service) getTemplateSummary(
	ctx context.Context,
	in *sdk.GetTemplateSummaryInput,
) (*sdk.GetTemplateSummaryOutput, error) {
	var body string
	var err error
	if in.StackName != nil {
		var before stackContent
		before, _, _, err = s.currentContent(*in.StackName)
		body = before.Body
	} else {
		body, err = s.loadTemplate(ctx, templateSource{in.TemplateBody, in.TemplateURL, nil}, "")
	}

	if err != nil {
		return nil, err
	}

	t, err := parseTemplate(body)
	if err != nil {
		return nil, err
	}

	out := &sdk.GetTemplateSummaryOutput{
		Parameters: []*sdk.ParameterDeclaration{},
		Version:    new("2010-09-09"),
	}

	setIfNotEmpty(&out.Description, t.Description)
	if need, because := requiredCapabilities(t); need != "" {
		out.Capabilities, out.CapabilitiesReason = sdkshape.StringPointers(
			[]string{need},
		), new(
			fmt.Sprintf("The following resource(s) require capabilities: %v", because),
		)
	}

	if t.Metadata != nil {
		b, err := json.Marshal(t.Metadata)
		if err != nil {
			return nil, fmt.Errorf("write the template's metadata: %w", err)
		}

		out.Metadata = new(string(b))
	}

	kinds := map[string]bool{}
	for _, r := range t.Resources {
		kinds[r.Type] = true
	}

	out.ResourceTypes = sdkshape.StringPointers(sdkshape.SortedKeys(kinds))

	for _, name := range sdkshape.SortedKeys(t.Parameters) {
		p := t.Parameters[name]
		one := &sdk.ParameterDeclaration{
			ParameterKey:         new(name),
			ParameterType:        new(p.Type),
			NoEcho:               new(p.NoEcho),
			DefaultValue:         p.Default,
			ParameterConstraints: &sdk.ParameterConstraints{AllowedValues: sdkshape.StringPointers(p.Allowed)},
		}

		setIfNotEmpty(&one.Description, p.Description)
		out.Parameters = append(out.Parameters, one)
	}

	return out, nil
}

// authorizeRequest asks IAM about the stack that a request names.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	if wire.CallerFrom(ctx).IsUnrestricted() {
		return nil
	}

	c := wire.Check{Action: "cloudformation:" + op, Resource: "*", Context: map[string][]string{}}
	name := wire.Member(in, "StackName")
	set := wire.Member(in, "ChangeSetName")
	if name == "" && set == "" {
		return wire.Authorize(ctx, c)
	}

	c.Resource = s.buildARN("stack/" + name + "/*")
	err := s.store.WithLock(func() error {
		if st := s.requestedStack(name, set); st != nil {
			c.Resource = st.ID
			sdkshape.AddResourceTags(c.Context, st.Tags)
		}

		return nil
	})
	if err != nil {
		return err
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	sdkshape.AddRequestTags(c.Context, tree["Tags"])

	for key, v := range map[string]string{
		"cloudformation:RoleArn": wire.Member(in, "RoleARN"), "cloudformation:TemplateUrl": wire.Member(in, "TemplateURL"),
		"cloudformation:ChangeSetName": set,
	} {
		if v != "" {
			c.Context[key] = []string{v}
		}
	}

	return wire.Authorize(ctx, c)
}

// requestedStack is the stack that a request names by itself or by a change set; nil if there is none, which has no tags either. The
// caller is inside the book.
func (s *Service) requestedStack(name, set string) *stack {
	st := s.findActiveStack(name)
	if st == nil && name == "" {
		st, _, _ = s.findChangeSet(&set, nil)
	}

	if st == nil {
		st = s.state.Stacks[name]
	}

	return st
}
