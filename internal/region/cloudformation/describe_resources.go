// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"fmt"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// resourcesByName returns the resources of a stack in the order of their logical IDs.
func resourcesByName(st *stack) []*resource {
	var out []*resource
	for _, name := range sdkshape.SortedKeys(st.Resources) {
		if st.Resources[name].Status != "" {
			out = append(out, st.Resources[name])
		}
	}

	return out
}

func (s descriptionHandlers) describeStackResources(
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
		if st, err = s.state.findStack(name); err != nil {
			return nil, err
		}
	} else if st = s.state.stackOwning(physical); st == nil {
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

// stackOwning returns the stack that has a resource with that physical ID; nil if there is none. The caller
// holds the store's lock.
func (s *serviceState) stackOwning(physical string) *stack {
	for _, st := range s.Stacks {
		for _, r := range st.Resources {
			if r.Physical == physical && st.Status != statusDeleted {
				return st
			}
		}
	}

	return nil
}

func (s descriptionHandlers) describeStackResource(
	in *sdk.DescribeStackResourceInput,
) (*sdk.DescribeStackResourceOutput, error) {
	st, err := s.state.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, template.ValidationError("Stack '%s' does not exist", sdkshape.String(in.StackName))
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
				return nil, fmt.Errorf("encode the metadata of %s: %w", r.Logical, err)
			}

			out.Metadata = new(string(b))
		}
	}

	return &sdk.DescribeStackResourceOutput{StackResourceDetail: out}, nil
}

func (s descriptionHandlers) listStackResources(
	in *sdk.ListStackResourcesInput,
) (*sdk.ListStackResourcesOutput, error) {
	st, err := s.state.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	byName := map[string]*resource{}
	for _, r := range resourcesByName(st) {
		byName[r.Logical] = r
	}

	keys, next, err := sdkshape.Paginate(
		sdkshape.SortedKeys(byName),
		pageSize,
		in.NextToken,
		invalidTokenError(),
	)
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
