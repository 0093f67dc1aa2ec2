// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The operations are methods of small types such as changeSetHandlers, which embed the service. Their method
// ops lists them: one line for each operation, with the handler of the same name. The handlers of
// [state.ReadOperation] and [state.WriteOperation] run under the lock of the store and must not lock it again.
// Lookups that need only the state are methods of serviceState.

// wireOperations lists the operations of the API.
func (s *Service) wireOperations() []wire.Operation {
	return slices.Concat(
		stackHandlers{s}.ops(),
		changeSetHandlers{s}.ops(),
		templateHandlers{s}.ops(),
		descriptionHandlers{s}.ops(),
		signalHandlers{s}.ops(),
		stackPolicyHandlers{s}.ops(),
		exportHandlers{s}.ops(),
	)
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
		if st := s.state.requestedStack(name, set); st != nil {
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
func (s *serviceState) requestedStack(name, set string) *stack {
	st := s.findActiveStack(name)
	if st == nil && name == "" {
		st, _, _ = s.findChangeSet(&set, nil)
	}

	if st == nil {
		st = s.Stacks[name]
	}

	return st
}
