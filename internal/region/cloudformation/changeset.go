// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"cmp"
	"context"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// changeSet is a proposed change of a stack.
type changeSet struct {
	ID, Name, Kind, Description string
	Status, Reason, Execution   string
	Created                     time.Time
	content
	Role      string
	Notify    []string
	OnFailure string
	Changes   []change
	Caller    wire.Caller
}

// proposed checks what a change set says of itself, and returns its type and what its stack is before it.
func (s *Service) proposed(in *sdk.CreateChangeSetInput) (string, content, error) {
	kind := cmp.Or(record.Str(in.ChangeSetType), sdk.ChangeSetTypeUpdate)
	if kind != sdk.ChangeSetTypeUpdate && kind != sdk.ChangeSetTypeCreate {
		return "", content{}, invalid("This region makes change sets of the types CREATE and UPDATE, not %s", kind)
	}
	if err := checkName("changeSetName", record.Str(in.ChangeSetName)); err != nil {
		return "", content{}, err
	}
	before, _, status, err := s.current(record.Str(in.StackName))
	switch {
	case kind == sdk.ChangeSetTypeUpdate:
		return kind, before, err
	case err == nil && status != review:
		return "", content{}, invalid("Stack [%s] already exists and cannot be created again with the changeSet [%s].", record.Str(in.StackName), record.Str(in.ChangeSetName))
	}
	return kind, content{}, nil
}

func (s *Service) createChangeSet(ctx context.Context, in *sdk.CreateChangeSetInput) (*sdk.CreateChangeSetOutput, error) {
	kind, before, err := s.proposed(in)
	if err != nil {
		return nil, err
	}
	c, err := s.prepare(ctx, request{source{in.TemplateBody, in.TemplateURL, in.UsePreviousTemplate}, in.Parameters, in.Tags, in.Capabilities}, before)
	if err != nil {
		return nil, err
	}
	caller, err := s.caller(ctx, record.Str(in.RoleARN))
	if err != nil {
		return nil, err
	}
	return record.Order(s.book, func(in *sdk.CreateChangeSetInput) (*sdk.CreateChangeSetOutput, error) {
		st, err := s.reviewed(in, kind)
		if err != nil {
			return nil, err
		}
		cs := &changeSet{
			ID: s.arn("changeSet/" + record.Str(in.ChangeSetName) + "/" + s.uuid()), Name: record.Str(in.ChangeSetName), Kind: kind,
			Description: record.Str(in.Description), Created: s.cfg.Now().UTC(), content: c, Role: record.Str(in.RoleARN), Notify: record.Strs(in.NotificationARNs),
			OnFailure: record.Str(in.OnStackFailure), Caller: caller,
		}
		s.fill(st, cs)
		st.ChangeSets[cs.ID] = cs
		return &sdk.CreateChangeSetOutput{Id: new(cs.ID), StackId: new(st.ID)}, nil
	}, in)
}

// reviewed is the stack that a change set is about; a new one is only reviewed. The caller is inside the book.
func (s *Service) reviewed(in *sdk.CreateChangeSetInput, kind string) (*stack, error) {
	st := s.named(record.Str(in.StackName))
	if st == nil && kind == sdk.ChangeSetTypeCreate {
		return s.newStack(settings{record.Str(in.StackName), record.Str(in.RoleARN), in.NotificationARNs}, review)
	}
	if st == nil {
		return nil, invalid("Stack [%s] does not exist", record.Str(in.StackName))
	}
	for _, cs := range st.ChangeSets {
		if cs.Name == record.Str(in.ChangeSetName) {
			return nil, wire.Errorf(sdk.ErrCodeAlreadyExistsException, "ChangeSet %s already exists", cs.Name)
		}
	}
	if kind == sdk.ChangeSetTypeUpdate {
		return st, mayUpdate(st)
	}
	return st, nil
}

// fill computes what a change set would do.
func (s *Service) fill(st *stack, cs *changeSet) {
	before := st.content
	if cs.Kind == sdk.ChangeSetTypeCreate {
		before = content{}
	}
	changes, idle, err := s.compare(st, before, cs.content)
	switch {
	case err != nil:
		cs.Status, cs.Execution, cs.Reason = sdk.ChangeSetStatusFailed, sdk.ExecutionStatusUnavailable, messageOf(err)
	case cs.Kind == sdk.ChangeSetTypeUpdate && idle:
		cs.Status, cs.Execution, cs.Reason = sdk.ChangeSetStatusFailed, sdk.ExecutionStatusUnavailable, errNoChanges.Error()
	default:
		cs.Status, cs.Execution, cs.Changes = sdk.ChangeSetStatusCreateComplete, sdk.ExecutionStatusAvailable, changes
	}
}

func messageOf(err error) string {
	_, message, ok := strings.Cut(err.Error(), "ValidationError: ")
	if !ok {
		return err.Error()
	}
	return message
}

// set finds a change set by its ARN, or by its name and its stack.
func (s *Service) set(name, stackName *string) (*stack, *changeSet, error) {
	want := record.Str(name)
	if !strings.HasPrefix(want, "arn:") && record.Str(stackName) == "" {
		return nil, nil, invalid("StackName must be specified if ChangeSetName is not specified as an ARN.")
	}
	for _, id := range record.Keys(s.st.Stacks) {
		st := s.st.Stacks[id]
		if sn := record.Str(stackName); sn != "" && (st.Status == deleted || sn != st.Name && sn != st.ID) {
			continue
		}
		for _, cs := range st.ChangeSets {
			if cs.ID == want || cs.Name == want {
				return st, cs, nil
			}
		}
	}
	return nil, nil, &wire.Error{Code: "ChangeSetNotFound", Message: "ChangeSet [" + want + "] does not exist", Status: 404}
}

func (s *Service) describeChangeSet(in *sdk.DescribeChangeSetInput) (*sdk.DescribeChangeSetOutput, error) {
	st, cs, err := s.set(in.ChangeSetName, in.StackName)
	if err != nil {
		return nil, err
	}
	byName := map[string]change{}
	for _, c := range cs.Changes {
		byName[c.Logical+"\x00"+c.Action] = c
	}
	keys, next, err := record.Page(record.Keys(byName), pageSize, in.NextToken, badToken())
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeChangeSetOutput{
		ChangeSetId: new(cs.ID), ChangeSetName: new(cs.Name), StackId: new(st.ID), StackName: new(st.Name), Status: new(cs.Status),
		ExecutionStatus: new(cs.Execution), CreationTime: new(cs.Created), Capabilities: record.Refs(cs.Capability), Tags: showTags(cs.Tags),
		Parameters: showParameters(cs.Params), Changes: []*sdk.Change{}, NextToken: next, NotificationARNs: record.Refs(cs.Notify),
		IncludeNestedStacks: new(false), RollbackConfiguration: &sdk.RollbackConfiguration{},
	}
	optional(&out.StatusReason, cs.Reason)
	optional(&out.Description, cs.Description)
	optional(&out.OnStackFailure, cs.OnFailure)
	values := on(in.IncludePropertyValues)
	for _, k := range keys {
		out.Changes = append(out.Changes, showChange(byName[k], values))
	}
	return out, nil
}

// optional sets a member to a text that is not empty.
func optional(member **string, text string) {
	if text != "" {
		*member = &text
	}
}

// told is how properties are told with a change.
func told(properties string) string {
	if properties == "" {
		return ""
	}
	return `{"Properties":` + properties + `}`
}

func showChange(c change, values bool) *sdk.Change { //revive:disable-line:flag-parameter
	r := &sdk.ResourceChange{Action: new(c.Action), LogicalResourceId: new(c.Logical), ResourceType: new(c.Type), Scope: record.Refs(c.Scope), Details: []*sdk.ResourceChangeDetail{}}
	optional(&r.PhysicalResourceId, c.Physical)
	optional(&r.PolicyAction, c.Policy)
	if c.Action == sdk.ChangeActionModify {
		r.Replacement = new(c.Replacement)
	}
	if values {
		optional(&r.BeforeContext, told(c.Before))
		optional(&r.AfterContext, told(c.After))
	}
	for _, d := range c.Details {
		one := &sdk.ResourceChangeDetail{
			Evaluation: new(d.Evaluation), ChangeSource: new(d.Source),
			Target: &sdk.ResourceTargetDefinition{Attribute: new(d.Attribute), RequiresRecreation: new(d.Recreation)},
		}
		optional(&one.CausingEntity, d.Cause)
		optional(&one.Target.Name, d.Name)
		r.Details = append(r.Details, one)
	}
	return &sdk.Change{Type: new(sdk.ChangeTypeResource), ResourceChange: r}
}

func (s *Service) listChangeSets(in *sdk.ListChangeSetsInput) (*sdk.ListChangeSetsOutput, error) {
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	byName := map[string]*changeSet{}
	for _, cs := range st.ChangeSets {
		byName[cs.Name] = cs
	}
	keys, next, err := record.Page(record.Keys(byName), pageSize, in.NextToken, badToken())
	out := &sdk.ListChangeSetsOutput{NextToken: next, Summaries: []*sdk.ChangeSetSummary{}}
	for _, k := range keys {
		cs := byName[k]
		one := &sdk.ChangeSetSummary{
			ChangeSetId: new(cs.ID), ChangeSetName: new(cs.Name), StackId: new(st.ID), StackName: new(st.Name), Status: new(cs.Status),
			ExecutionStatus: new(cs.Execution), CreationTime: new(cs.Created),
		}
		optional(&one.StatusReason, cs.Reason)
		optional(&one.Description, cs.Description)
		out.Summaries = append(out.Summaries, one)
	}
	return out, err
}

func (s *Service) executeChangeSet(in *sdk.ExecuteChangeSetInput) (*sdk.ExecuteChangeSetOutput, error) {
	st, cs, err := s.set(in.ChangeSetName, in.StackName)
	if err != nil {
		return nil, err
	}
	if cs.Execution != sdk.ExecutionStatusAvailable {
		return nil, wire.Errorf("InvalidChangeSetStatus", "ChangeSet [%s] cannot be executed in its current status of [%s]", cs.ID, cs.Status)
	}
	if cs.Kind == sdk.ChangeSetTypeUpdate {
		if err := mayUpdate(st); err != nil {
			return nil, err
		}
	}
	cs.Execution = sdk.ExecutionStatusExecuteComplete
	st.ChangeSetID = cs.ID
	keep := on(in.DisableRollback) || cs.OnFailure == "DO_NOTHING"
	op := operation{Token: record.Str(in.ClientRequestToken), Caller: cs.Caller, New: cs.content, KeepOnFailure: keep}
	if cs.Role != "" {
		st.Role = cs.Role
	}
	if cs.Kind == sdk.ChangeSetTypeCreate {
		st.DisableRollback, st.OnFailure, st.content = keep, cs.OnFailure, cs.content
		op.Kind, op.Phase = opCreate, "forward"
		s.setStack(st, "CREATE"+inProgress, "User Initiated")
		s.begin(st, op)
	} else {
		s.beginUpdate(st, op)
	}
	// The others were made for a stack that no longer is as it was.
	st.ChangeSets = map[string]*changeSet{cs.ID: cs}
	s.kick()
	return &sdk.ExecuteChangeSetOutput{}, nil
}

func (s *Service) deleteChangeSet(in *sdk.DeleteChangeSetInput) (*sdk.DeleteChangeSetOutput, error) {
	st, cs, err := s.set(in.ChangeSetName, in.StackName)
	if err != nil {
		if strings.HasPrefix(record.Str(in.ChangeSetName), "arn:") {
			return &sdk.DeleteChangeSetOutput{}, nil
		}
		return nil, err
	}
	delete(st.ChangeSets, cs.ID)
	return &sdk.DeleteChangeSetOutput{}, nil
}
