// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// changeSetHandlers serves change sets.
type changeSetHandlers struct{ *Service }

func (s changeSetHandlers) ops() []wire.Operation {
	return []wire.Operation{
		wire.NewOperation("CreateChangeSet", s.createChangeSet),
		state.ReadOperation(s.store, "DescribeChangeSet", s.describeChangeSet),
		state.ReadOperation(s.store, "ListChangeSets", s.listChangeSets),
		state.WriteOperation(s.store, "ExecuteChangeSet", s.executeChangeSet),
		state.WriteOperation(s.store, "DeleteChangeSet", s.deleteChangeSet),
	}
}

// changeSet is a proposed change of a stack. It is saved in the stack's record.
type changeSet struct {
	ID, Name, Kind, Description string
	Status, Reason, Execution   string
	Created                     time.Time
	stackContent
	Role      string
	OnFailure string
	Changes   []resourceChange
	// WithValues are the changes for IncludePropertyValues, and Warning is the reason with them if some are unknown.
	WithValues []resourceChange
	Warning    string `json:",omitempty"`
	Caller     wire.Caller
	// Token and Request are the client token of the request and the hash of its parameters; empty without a token.
	Token, Request string
}

// checkChangeSetInput checks the settings of a new change set. It returns the type of the change set and the
// content of its stack before it.
func (s changeSetHandlers) checkChangeSetInput(in *sdk.CreateChangeSetInput) (string, stackContent, error) {
	kind := cmp.Or(sdkshape.String(in.ChangeSetType), sdk.ChangeSetTypeUpdate)
	if kind != sdk.ChangeSetTypeUpdate && kind != sdk.ChangeSetTypeCreate {
		return "", stackContent{}, template.ValidationError(
			"This region supports change sets of the types CREATE and UPDATE, not %s",
			kind,
		)
	}

	if err := checkName("changeSetName", sdkshape.String(in.ChangeSetName)); err != nil {
		return "", stackContent{}, err
	}

	before, _, status, err := s.currentContent(sdkshape.String(in.StackName))

	switch {
	case kind == sdk.ChangeSetTypeUpdate:
		return kind, before, err
	case err == nil && status != statusReview:
		return "", stackContent{}, template.ValidationError(
			"Stack [%s] already exists and cannot be created again with the changeSet [%s].",
			sdkshape.String(in.StackName),
			sdkshape.String(in.ChangeSetName),
		)
	}

	return kind, stackContent{}, nil
}

func (s changeSetHandlers) createChangeSet(
	ctx context.Context,
	in *sdk.CreateChangeSetInput,
) (*sdk.CreateChangeSetOutput, error) {
	kind, before, err := s.checkChangeSetInput(in)
	if err != nil {
		return nil, err
	}

	c, err := templateHandlers(s).prepareContent(
		ctx,
		stackRequest{
			templateSource{in.TemplateBody, in.TemplateURL, in.UsePreviousTemplate},
			in.StackName,
			in.Parameters,
			in.Tags,
			in.Capabilities,
		},
		before,
	)
	if err != nil {
		return nil, err
	}

	caller, err := s.stackCaller(ctx, sdkshape.String(in.RoleARN))
	if err != nil {
		return nil, err
	}

	request := hashRequest(in)

	return state.RunWrite(s.store, func(in *sdk.CreateChangeSetInput) (*sdk.CreateChangeSetOutput, error) {
		if out := s.state.findRepeatedChangeSet(in, request); out != nil {
			return out, nil
		}

		st, err := s.stackForChangeSet(in, kind)
		if err != nil {
			return nil, err
		}

		cs := &changeSet{
			ID:           s.buildARN("changeSet/" + sdkshape.String(in.ChangeSetName) + "/" + sdkshape.RandomUUID(s.cfg.Rand)),
			Name:         sdkshape.String(in.ChangeSetName),
			Kind:         kind,
			Description:  sdkshape.String(in.Description),
			Created:      s.cfg.Now().UTC(),
			stackContent: c,
			Role:         sdkshape.String(in.RoleARN),
			OnFailure:    sdkshape.String(in.OnStackFailure),
			Caller:       caller,
			Token:        sdkshape.String(in.ClientToken),
			Request:      request,
		}

		s.computeChanges(st, cs)
		st.ChangeSets[cs.ID] = cs

		return &sdk.CreateChangeSetOutput{Id: new(cs.ID), StackId: new(st.ID)}, nil
	}, in)
}

// hashRequest returns a hash of the parameters of a request with a client token; empty without one.
func hashRequest(in *sdk.CreateChangeSetInput) string {
	if sdkshape.String(in.ClientToken) == "" {
		return ""
	}

	sum := sha256.Sum256([]byte(in.String())) // it has all members that are set

	return hex.EncodeToString(sum[:])
}

// findRepeatedChangeSet returns the answer to an earlier request with the same client token and parameters, whose change set
// exists; nil for a new request. The caller holds the store's lock.
func (s *serviceState) findRepeatedChangeSet(in *sdk.CreateChangeSetInput, request string) *sdk.CreateChangeSetOutput {
	st := s.findActiveStack(sdkshape.String(in.StackName))
	if st == nil || request == "" {
		return nil
	}

	for _, cs := range st.ChangeSets {
		if cs.Token == sdkshape.String(in.ClientToken) && cs.Request == request {
			return &sdk.CreateChangeSetOutput{Id: new(cs.ID), StackId: new(st.ID)}
		}
	}

	return nil
}

// stackForChangeSet returns the stack of a change set; a new stack gets the status REVIEW_IN_PROGRESS. The
// caller holds the store's lock.
func (s changeSetHandlers) stackForChangeSet(in *sdk.CreateChangeSetInput, kind string) (*stack, error) {
	st := s.state.findActiveStack(sdkshape.String(in.StackName))
	if st == nil && kind == sdk.ChangeSetTypeCreate {
		return s.newStack(stackSettings{sdkshape.String(in.StackName), sdkshape.String(in.RoleARN)}, statusReview)
	}

	if st == nil {
		return nil, newMissingStackError(sdkshape.String(in.StackName))
	}

	for _, cs := range st.ChangeSets {
		if cs.Name == sdkshape.String(in.ChangeSetName) && !cs.isExecuted() {
			return nil, newErrorf(codeAlreadyExists, "ChangeSet %s already exists", cs.Name)
		}
	}

	if kind == sdk.ChangeSetTypeUpdate {
		return st, checkUpdatable(st)
	}

	return st, nil
}

// computeChanges computes the changes of a change set.
func (s changeSetHandlers) computeChanges(st *stack, cs *changeSet) {
	before := st.stackContent
	if cs.Kind == sdk.ChangeSetTypeCreate {
		before = stackContent{}
	}

	changes, idle, err := s.diffContent(st, before, cs.stackContent)
	var withValues []resourceChange
	if err == nil {
		withValues, err = s.diffContentWithValues(st, before, cs.stackContent)
	}

	switch {
	case err != nil:
		cs.Status = sdk.ChangeSetStatusFailed
		cs.Execution = sdk.ExecutionStatusUnavailable
		cs.Reason = validationMessage(err)

	case cs.Kind == sdk.ChangeSetTypeUpdate && idle:
		cs.Status = sdk.ChangeSetStatusFailed
		cs.Execution = sdk.ExecutionStatusUnavailable
		cs.Reason = errNoChanges.Error()
	default:
		cs.Status = sdk.ChangeSetStatusCreateComplete
		cs.Execution = sdk.ExecutionStatusAvailable
		cs.Changes = changes
		cs.WithValues = withValues
		cs.Warning = s.missingImports(cs.stackContent)
	}
}

func validationMessage(err error) string {
	_, message, ok := strings.Cut(err.Error(), "ValidationError: ")
	if !ok {
		return err.Error()
	}

	return message
}

// isExecuted reports whether a change set was executed. CloudFormation then deletes it: its name is free again, and
// lists do not show it. It can be described by its ARN.
func (c *changeSet) isExecuted() bool { return c.Execution == sdk.ExecutionStatusExecuteComplete }

// checkExecutable refuses to execute a change set that could not be computed, or that was executed or became obsolete.
func (c *changeSet) checkExecutable() error {
	switch {
	case c.Status != sdk.ChangeSetStatusCreateComplete:
		return newErrorf(
			codeInvalidChangeSetStatus,
			"ChangeSet [%s] cannot be executed in its current status of [%s]",
			c.ID,
			c.Status,
		)

	case c.Execution != sdk.ExecutionStatusAvailable:
		return newErrorf(
			codeInvalidChangeSetStatus,
			"ChangeSet [%s] cannot be executed in its current execution status of [%s]",
			c.ID,
			c.Execution,
		)
	}

	return nil
}

// makeChangeSetsObsolete marks the change sets of a stack that changes in another way: they were computed for what it was
// before.
func (st *stack) makeChangeSetsObsolete() {
	for _, cs := range st.ChangeSets {
		if cs.Execution == sdk.ExecutionStatusAvailable {
			cs.Execution = sdk.ExecutionStatusObsolete
		}
	}
}

// checkChangeSetName refuses a name of a change set without a stack, and a stack that does not exist.
func (s *serviceState) checkChangeSetName(name, stackName string) error {
	if stackName == "" {
		if strings.HasPrefix(name, "arn:") {
			return nil
		}

		return template.ValidationError(
			"StackName must be specified if ChangeSetName is not specified as an ARN.",
		)
	}

	if _, err := s.findStack(stackName); err != nil {
		return newMissingStackError(stackName)
	}

	return nil
}

// findChangeSet finds a change set by its ARN, or by its name and its stack.
func (s *serviceState) findChangeSet(name, stackName *string) (*stack, *changeSet, error) {
	want := sdkshape.String(name)
	if err := s.checkChangeSetName(want, sdkshape.String(stackName)); err != nil {
		return nil, nil, err
	}

	for _, id := range sdkshape.SortedKeys(s.Stacks) {
		st := s.Stacks[id]
		if sn := sdkshape.String(stackName); sn != "" &&
			(st.Status == statusDeleted || sn != st.Name && sn != st.ID) {
			continue
		}

		for _, cs := range st.ChangeSets {
			if cs.ID == want || cs.Name == want && !cs.isExecuted() {
				return st, cs, nil
			}
		}
	}

	return nil, nil, newErrorf(codeChangeSetNotFound, "ChangeSet [%s] does not exist", want)
}

func (s changeSetHandlers) listChangeSets(in *sdk.ListChangeSetsInput) (*sdk.ListChangeSetsOutput, error) {
	st, err := s.state.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, newMissingStackError(sdkshape.String(in.StackName))
	}

	byName := map[string]*changeSet{}
	for _, cs := range st.ChangeSets {
		if !cs.isExecuted() {
			byName[cs.Name] = cs
		}
	}

	keys, next, err := sdkshape.Paginate(
		sdkshape.SortedKeys(byName),
		pageSize,
		in.NextToken,
		invalidTokenError(),
	)
	out := &sdk.ListChangeSetsOutput{NextToken: next, Summaries: []*sdk.ChangeSetSummary{}}

	for _, k := range keys {
		cs := byName[k]
		one := &sdk.ChangeSetSummary{
			ChangeSetId:     new(cs.ID),
			ChangeSetName:   new(cs.Name),
			StackId:         new(st.ID),
			StackName:       new(st.Name),
			Status:          new(cs.Status),
			ExecutionStatus: new(cs.Execution),
			CreationTime:    new(cs.Created),
		}

		setIfNotEmpty(&one.StatusReason, cs.Reason)
		setIfNotEmpty(&one.Description, cs.Description)
		out.Summaries = append(out.Summaries, one)
	}

	return out, err
}

func (s changeSetHandlers) executeChangeSet(
	in *sdk.ExecuteChangeSetInput,
) (*sdk.ExecuteChangeSetOutput, error) {
	st, cs, err := s.state.findChangeSet(in.ChangeSetName, in.StackName)
	if err != nil {
		return nil, err
	}

	if err := cs.checkExecutable(); err != nil {
		return nil, err
	}

	if cs.Kind == sdk.ChangeSetTypeUpdate {
		if err := checkUpdatable(st); err != nil {
			return nil, err
		}
	}

	cs.Execution = sdk.ExecutionStatusExecuteComplete
	st.ChangeSetID = cs.ID
	keep := boolValue(in.DisableRollback) || cs.OnFailure == "DO_NOTHING"
	op := stackOperation{
		Token:         sdkshape.String(in.ClientRequestToken),
		Caller:        cs.Caller,
		New:           cs.stackContent,
		KeepOnFailure: keep,
	}
	if cs.Role != "" {
		st.Role = cs.Role
	}

	if cs.Kind == sdk.ChangeSetTypeCreate {
		st.DisableRollback = keep
		st.OnFailure = cs.OnFailure
		st.stackContent = cs.stackContent
		st.Updated = s.cfg.Now().UTC() // an executed change set counts as an update, also the first one
		op.Kind = opCreate
		op.Phase = "forward"
		s.setStackStatus(st, "CREATE"+suffixInProgress, "User Initiated")
		s.startOperation(st, op)
	} else {
		s.startUpdate(st, op)
	}

	// The other change sets were computed for the content before this one.
	st.ChangeSets = map[string]*changeSet{cs.ID: cs}
	s.wake.Send()

	return &sdk.ExecuteChangeSetOutput{}, nil
}

func (s changeSetHandlers) deleteChangeSet(in *sdk.DeleteChangeSetInput) (*sdk.DeleteChangeSetOutput, error) {
	st, cs, err := s.state.findChangeSet(in.ChangeSetName, in.StackName)
	if err != nil {
		if strings.HasPrefix(sdkshape.String(in.ChangeSetName), "arn:") {
			return &sdk.DeleteChangeSetOutput{}, nil
		}

		return nil, err
	}

	delete(st.ChangeSets, cs.ID)

	return &sdk.DeleteChangeSetOutput{}, nil
}
