// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// wireOperations lists the operations of the API.
func (s *Service) wireOperations() []wire.Operation {
	return []wire.Operation{
		wire.NewOperation("CreateStack", s.createStack),
		wire.NewOperation("UpdateStack", s.updateStack),
		wire.NewOperation("DeleteStack", s.deleteStack),
		wire.NewOperation("CreateChangeSet", s.createChangeSet),
		wire.NewOperation("ValidateTemplate", s.validateTemplate),
		wire.NewOperation("GetTemplateSummary", s.getTemplateSummary),
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
		wire.NewOperation("CancelUpdateStack", s.cancelUpdateStack),
		state.WriteOperation(s.store, "ContinueUpdateRollback", s.continueUpdateRollback),
	}
}

// authorizeRequest asks IAM whether the caller may do an operation on the stack that the request names.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	if wire.CallerFrom(ctx).IsUnrestricted() {
		return nil
	}

	c := wire.AccessCheck{Action: "cloudformation:" + op, Resource: "*", Context: map[string][]string{}}
	name := wire.StringMember(in, "StackName")
	set := wire.StringMember(in, "ChangeSetName")
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
		"cloudformation:RoleArn": wire.StringMember(in, "RoleARN"), "cloudformation:TemplateUrl": wire.StringMember(in, "TemplateURL"),
		"cloudformation:ChangeSetName": set,
	} {
		if v != "" {
			c.Context[key] = []string{v}
		}
	}

	return wire.Authorize(ctx, c)
}

// requestedStack returns the stack that a request names, by itself or by a change set; nil if it does not
// exist, in which case it has no tags to check. The caller holds the store's lock.
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
