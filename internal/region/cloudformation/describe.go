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

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) ops() []wire.Op {
	return []wire.Op{
		wire.Operation("CreateStack", s.createStack), wire.Operation("UpdateStack", s.updateStack), wire.Operation("DeleteStack", s.deleteStack),
		wire.Operation("CreateChangeSet", s.createChangeSet), wire.Operation("ValidateTemplate", s.validateTemplate),
		wire.Operation("GetTemplateSummary", s.templateSummary),
		record.Read(s.book, "DescribeChangeSet", s.describeChangeSet), record.Read(s.book, "ListChangeSets", s.listChangeSets),
		record.Write(s.book, "ExecuteChangeSet", s.executeChangeSet), record.Write(s.book, "DeleteChangeSet", s.deleteChangeSet),
		record.Read(s.book, "DescribeStacks", s.describeStacks), record.Read(s.book, "ListStacks", s.listStacks),
		record.Read(s.book, "DescribeStackEvents", s.describeEvents), record.Read(s.book, "DescribeStackResources", s.describeResources),
		record.Read(s.book, "DescribeStackResource", s.describeResource), record.Read(s.book, "ListStackResources", s.listResources),
		record.Read(s.book, "GetTemplate", s.getTemplate), record.Write(s.book, "SignalResource", s.signalResource),
		record.Write(s.book, "SetStackPolicy", s.setPolicy), record.Read(s.book, "GetStackPolicy", s.getPolicy),
		record.Write(s.book, "UpdateTerminationProtection", s.protect), record.Read(s.book, "ListExports", s.listExports),
		record.Read(s.book, "ListImports", s.listImports), record.Write(s.book, "CancelUpdateStack", s.cancelUpdate),
		record.Write(s.book, "ContinueUpdateRollback", s.continueRollback),
	}
}

func showTags(tags map[string]string) []*sdk.Tag {
	out := []*sdk.Tag{}
	for _, k := range record.Keys(tags) {
		out = append(out, &sdk.Tag{Key: new(k), Value: new(tags[k])})
	}
	return out
}

// showParameters are the values of parameters; those with NoEcho are hidden.
func showParameters(params map[string]value) []*sdk.Parameter {
	out := []*sdk.Parameter{}
	for _, name := range record.Keys(params) {
		v := params[name]
		p := &sdk.Parameter{ParameterKey: new(name), ParameterValue: new(v.Given)}
		if v.Resolved != nil {
			p.ResolvedValue = new(*v.Resolved)
		}
		if v.NoEcho {
			p.ParameterValue = new(hidden)
		}
		out = append(out, p)
	}
	return out
}

func (s *Service) showStack(st *stack) *sdk.Stack {
	out := &sdk.Stack{
		StackId: new(st.ID), StackName: new(st.Name), StackStatus: new(st.Status), CreationTime: new(st.Created),
		DisableRollback: new(st.DisableRollback), EnableTerminationProtection: new(st.Protected), Tags: showTags(st.Tags),
		Capabilities: record.Refs(st.Capability), NotificationARNs: record.Refs(st.Notify), Outputs: []*sdk.Output{},
		DriftInformation:      &sdk.StackDriftInformation{StackDriftStatus: new(sdk.StackDriftStatusNotChecked)},
		RollbackConfiguration: &sdk.RollbackConfiguration{},
	}
	if st.Body != "" {
		out.Parameters = showParameters(st.Params)
	}
	optional(&out.StackStatusReason, st.Reason)
	optional(&out.Description, st.Described)
	optional(&out.RoleARN, st.Role)
	optional(&out.ChangeSetId, st.ChangeSetID)
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
		optional(&one.Description, o.Description)
		optional(&one.ExportName, o.Export)
		out.Outputs = append(out.Outputs, one)
	}
	return out
}

func (s *Service) describeStacks(in *sdk.DescribeStacksInput) (*sdk.DescribeStacksOutput, error) {
	if name := record.Str(in.StackName); name != "" {
		st, err := s.find(name)
		if err != nil {
			return nil, err
		}
		return &sdk.DescribeStacksOutput{Stacks: []*sdk.Stack{s.showStack(st)}}, nil
	}
	var ids []string
	for _, id := range record.Keys(s.st.Stacks) {
		if s.st.Stacks[id].Status != deleted {
			ids = append(ids, id)
		}
	}
	ids, next, err := record.Page(ids, pageSize, in.NextToken, badToken())
	out := &sdk.DescribeStacksOutput{NextToken: next, Stacks: []*sdk.Stack{}}
	for _, id := range ids {
		out.Stacks = append(out.Stacks, s.showStack(s.st.Stacks[id]))
	}
	return out, err
}

func (s *Service) listStacks(in *sdk.ListStacksInput) (*sdk.ListStacksOutput, error) {
	wanted := record.Strs(in.StackStatusFilter)
	var ids []string
	for _, id := range record.Keys(s.st.Stacks) {
		if len(wanted) == 0 || slices.Contains(wanted, s.st.Stacks[id].Status) {
			ids = append(ids, id)
		}
	}
	ids, next, err := record.Page(ids, pageSize, in.NextToken, badToken())
	out := &sdk.ListStacksOutput{NextToken: next, StackSummaries: []*sdk.StackSummary{}}
	for _, id := range ids {
		full := s.showStack(s.st.Stacks[id])
		out.StackSummaries = append(out.StackSummaries, &sdk.StackSummary{
			StackId: full.StackId, StackName: full.StackName, StackStatus: full.StackStatus, StackStatusReason: full.StackStatusReason,
			CreationTime: full.CreationTime, LastUpdatedTime: full.LastUpdatedTime, DeletionTime: full.DeletionTime, TemplateDescription: full.Description,
			DriftInformation: &sdk.StackDriftInformationSummary{StackDriftStatus: new(sdk.StackDriftStatusNotChecked)},
		})
	}
	return out, err
}

// describeEvents pages through a stack's history, newest first. The token is the number of the next event to show, so
// that new ones do no harm.
func (s *Service) describeEvents(in *sdk.DescribeStackEventsInput) (*sdk.DescribeStackEventsOutput, error) {
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	end := len(st.Events)
	if in.NextToken != nil {
		b, err := base64.RawURLEncoding.DecodeString(*in.NextToken)
		if err != nil {
			return nil, badToken()
		}
		if end, err = strconv.Atoi(string(b)); err != nil || end < 0 || end > len(st.Events) {
			return nil, badToken()
		}
	}
	begin := max(end-pageSize, 0)
	out := &sdk.DescribeStackEventsOutput{StackEvents: []*sdk.StackEvent{}}
	for _, e := range slices.Backward(st.Events[begin:end]) {
		one := &sdk.StackEvent{
			EventId: new(e.ID), StackId: new(st.ID), StackName: new(st.Name), LogicalResourceId: new(e.Logical),
			PhysicalResourceId: new(e.Physical), ResourceType: new(e.Type), ResourceStatus: new(e.Status), Timestamp: new(e.At),
		}
		optional(&one.ResourceStatusReason, e.Reason)
		optional(&one.ClientRequestToken, e.Token)
		optional(&one.ResourceProperties, e.Properties)
		out.StackEvents = append(out.StackEvents, one)
	}
	if begin > 0 {
		out.NextToken = new(base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(begin))))
	}
	return out, nil
}

// listed are a stack's resources in the order of their names.
func listed(st *stack) []*resource {
	var out []*resource
	for _, name := range record.Keys(st.Resources) {
		if st.Resources[name].Status != "" {
			out = append(out, st.Resources[name])
		}
	}
	return out
}

func (s *Service) describeResources(in *sdk.DescribeStackResourcesInput) (*sdk.DescribeStackResourcesOutput, error) {
	name, physical := record.Str(in.StackName), record.Str(in.PhysicalResourceId)
	if name == "" && physical == "" {
		return nil, invalid("Either stackName or physicalResourceId must be specified")
	}
	var st *stack
	var err error
	if name != "" {
		if st, err = s.find(name); err != nil {
			return nil, err
		}
	} else if st = s.owner(physical); st == nil {
		return nil, invalid("Stack for %s does not exist", physical)
	}
	out := &sdk.DescribeStackResourcesOutput{StackResources: []*sdk.StackResource{}}
	for _, r := range listed(st) {
		if l := record.Str(in.LogicalResourceId); l != "" && l != r.Logical {
			continue
		}
		one := &sdk.StackResource{
			StackId: new(st.ID), StackName: new(st.Name), LogicalResourceId: new(r.Logical), ResourceType: new(r.Type),
			ResourceStatus: new(r.Status), Timestamp: new(r.Changed),
			DriftInformation: &sdk.StackResourceDriftInformation{StackResourceDriftStatus: new(sdk.StackResourceDriftStatusNotChecked)},
		}
		optional(&one.PhysicalResourceId, r.Physical)
		optional(&one.ResourceStatusReason, r.Reason)
		out.StackResources = append(out.StackResources, one)
	}
	return out, nil
}

// owner is the stack that has a resource with that physical id.
func (s *Service) owner(physical string) *stack {
	for _, st := range s.st.Stacks {
		for _, r := range st.Resources {
			if r.Physical == physical && st.Status != deleted {
				return st
			}
		}
	}
	return nil
}

func (s *Service) describeResource(in *sdk.DescribeStackResourceInput) (*sdk.DescribeStackResourceOutput, error) {
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	r := st.Resources[record.Str(in.LogicalResourceId)]
	if r == nil {
		return nil, invalid("Resource %s does not exist for stack %s", record.Str(in.LogicalResourceId), st.Name)
	}
	out := &sdk.StackResourceDetail{
		StackId: new(st.ID), StackName: new(st.Name), LogicalResourceId: new(r.Logical), ResourceType: new(r.Type),
		ResourceStatus: new(r.Status), LastUpdatedTimestamp: new(r.Changed),
		DriftInformation: &sdk.StackResourceDriftInformation{StackResourceDriftStatus: new(sdk.StackResourceDriftStatusNotChecked)},
	}
	optional(&out.PhysicalResourceId, r.Physical)
	optional(&out.ResourceStatusReason, r.Reason)
	if t, err := Parse(st.Body); err == nil {
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

func (s *Service) listResources(in *sdk.ListStackResourcesInput) (*sdk.ListStackResourcesOutput, error) {
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	byName := map[string]*resource{}
	for _, r := range listed(st) {
		byName[r.Logical] = r
	}
	keys, next, err := record.Page(record.Keys(byName), pageSize, in.NextToken, badToken())
	out := &sdk.ListStackResourcesOutput{NextToken: next, StackResourceSummaries: []*sdk.StackResourceSummary{}}
	for _, k := range keys {
		r := byName[k]
		one := &sdk.StackResourceSummary{
			LogicalResourceId: new(r.Logical), ResourceType: new(r.Type), ResourceStatus: new(r.Status), LastUpdatedTimestamp: new(r.Changed),
			DriftInformation: &sdk.StackResourceDriftInformationSummary{StackResourceDriftStatus: new(sdk.StackResourceDriftStatusNotChecked)},
		}
		optional(&one.PhysicalResourceId, r.Physical)
		optional(&one.ResourceStatusReason, r.Reason)
		out.StackResourceSummaries = append(out.StackResourceSummaries, one)
	}
	return out, err
}

func (s *Service) getTemplate(in *sdk.GetTemplateInput) (*sdk.GetTemplateOutput, error) {
	stages := record.Refs([]string{sdk.TemplateStageOriginal, sdk.TemplateStageProcessed})
	if in.ChangeSetName != nil {
		_, cs, err := s.set(in.ChangeSetName, in.StackName)
		if err != nil {
			return nil, err
		}
		return &sdk.GetTemplateOutput{TemplateBody: new(cs.Body), StagesAvailable: stages}, nil
	}
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	return &sdk.GetTemplateOutput{TemplateBody: new(st.Body), StagesAvailable: stages}, nil
}

func (s *Service) validateTemplate(ctx context.Context, in *sdk.ValidateTemplateInput) (*sdk.ValidateTemplateOutput, error) {
	body, err := s.fetch(ctx, source{in.TemplateBody, in.TemplateURL, nil}, "")
	if err != nil {
		return nil, err
	}
	t, err := Parse(body)
	if err != nil {
		return nil, err
	}
	out := &sdk.ValidateTemplateOutput{Parameters: []*sdk.TemplateParameter{}}
	optional(&out.Description, t.Description)
	if need, because := needs(t); need != "" {
		out.Capabilities, out.CapabilitiesReason = record.Refs([]string{need}), new(fmt.Sprintf("The following resource(s) require capabilities: %v", because))
	}
	for _, name := range record.Keys(t.Parameters) {
		p := t.Parameters[name]
		one := &sdk.TemplateParameter{ParameterKey: new(name), NoEcho: new(p.NoEcho), DefaultValue: p.Default}
		optional(&one.Description, p.Description)
		out.Parameters = append(out.Parameters, one)
	}
	return out, nil
}

func (s *Service) templateSummary(ctx context.Context, in *sdk.GetTemplateSummaryInput) (*sdk.GetTemplateSummaryOutput, error) {
	var body string
	var err error
	if in.StackName != nil {
		var before content
		before, _, _, err = s.current(*in.StackName)
		body = before.Body
	} else {
		body, err = s.fetch(ctx, source{in.TemplateBody, in.TemplateURL, nil}, "")
	}
	if err != nil {
		return nil, err
	}
	t, err := Parse(body)
	if err != nil {
		return nil, err
	}
	out := &sdk.GetTemplateSummaryOutput{Parameters: []*sdk.ParameterDeclaration{}, Version: new("2010-09-09")}
	optional(&out.Description, t.Description)
	if need, because := needs(t); need != "" {
		out.Capabilities, out.CapabilitiesReason = record.Refs([]string{need}), new(fmt.Sprintf("The following resource(s) require capabilities: %v", because))
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
	out.ResourceTypes = record.Refs(record.Keys(kinds))
	for _, name := range record.Keys(t.Parameters) {
		p := t.Parameters[name]
		one := &sdk.ParameterDeclaration{
			ParameterKey: new(name), ParameterType: new(p.Type), NoEcho: new(p.NoEcho), DefaultValue: p.Default,
			ParameterConstraints: &sdk.ParameterConstraints{AllowedValues: record.Refs(p.Allowed)},
		}
		optional(&one.Description, p.Description)
		out.Parameters = append(out.Parameters, one)
	}
	return out, nil
}

// authorize asks IAM about the stack that a request names.
func (s *Service) authorize(ctx context.Context, op string, in any) error {
	caller := wire.CallerFrom(ctx)
	if caller.Root || caller == (wire.Caller{}) {
		return nil
	}
	c := wire.Check{Action: "cloudformation:" + op, Resource: "*", Context: map[string][]string{}}
	name := wire.Member(in, "StackName")
	set := wire.Member(in, "ChangeSetName")
	if name == "" && set == "" {
		return wire.Authorize(ctx, c)
	}
	c.Resource = s.arn("stack/" + name + "/*")
	err := s.book.Do(func() error {
		if st := s.meant(name, set); st != nil {
			c.Resource = st.ID
			record.ResourceTags(c.Context, st.Tags)
		}
		return nil
	})
	if err != nil {
		return err
	}
	tree, err := record.Fields(in)
	if err != nil {
		return err
	}
	record.RequestTags(c.Context, tree["Tags"])
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

// meant is the stack that a request names by itself or by a change set; nil if there is none, which has no tags either. The
// caller is inside the book.
func (s *Service) meant(name, set string) *stack {
	st := s.named(name)
	if st == nil && name == "" {
		st, _, _ = s.set(&set, nil)
	}
	if st == nil {
		st = s.st.Stacks[name]
	}
	return st
}
