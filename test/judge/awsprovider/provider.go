// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// provider implements the calls of the protocol that Terraform makes for resources. Terraform makes
// no other calls.
type provider struct {
	tfprotov5.ProviderServer
	schemas map[string]*tfprotov5.Schema
	// lost is the tag slipway.dev/address of the resources that somebody has deleted, set by the configuration.
	lost *string
}

// resourceType returns the type of the values of a resource type.
func (p provider) resourceType(name string) (tftypes.Type, error) {
	s := p.schemas[name]
	if s == nil {
		return nil, fmt.Errorf("unknown resource type %s", name)
	}

	return s.Block.ValueType(), nil
}

// GetMetadata implements the protocol.
func (p provider) GetMetadata(
	context.Context,
	*tfprotov5.GetMetadataRequest,
) (*tfprotov5.GetMetadataResponse, error) {
	out := &tfprotov5.GetMetadataResponse{}
	for name := range p.schemas {
		out.Resources = append(out.Resources, tfprotov5.ResourceMetadata{TypeName: name})
	}

	return out, nil
}

// GetProviderSchema implements the protocol.
func (p provider) GetProviderSchema(
	context.Context,
	*tfprotov5.GetProviderSchemaRequest,
) (*tfprotov5.GetProviderSchemaResponse, error) {
	return &tfprotov5.GetProviderSchemaResponse{
		Provider: &tfprotov5.Schema{Block: &tfprotov5.SchemaBlock{
			Attributes: []*tfprotov5.SchemaAttribute{
				{Name: "lost", Type: tftypes.String, Optional: true},
				{Name: "region", Type: tftypes.String, Optional: true},
			},
		}},
		ResourceSchemas: p.schemas,
	}, nil
}

// GetResourceIdentitySchemas implements the protocol.
func (p provider) GetResourceIdentitySchemas(
	context.Context,
	*tfprotov5.GetResourceIdentitySchemasRequest,
) (*tfprotov5.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov5.GetResourceIdentitySchemasResponse{}, nil
}

// PrepareProviderConfig implements the protocol.
func (p provider) PrepareProviderConfig(
	_ context.Context,
	r *tfprotov5.PrepareProviderConfigRequest,
) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: r.Config}, nil
}

// ConfigureProvider implements the protocol. It sets which resources are lost.
func (p provider) ConfigureProvider(
	_ context.Context,
	r *tfprotov5.ConfigureProviderRequest,
) (*tfprotov5.ConfigureProviderResponse, error) {
	config, err := r.Config.Unmarshal(tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"lost":   tftypes.String,
		"region": tftypes.String,
	}})
	if err != nil {
		return nil, err
	}

	values := map[string]tftypes.Value{}
	if err := config.As(&values); err != nil {
		return nil, err
	}

	return &tfprotov5.ConfigureProviderResponse{}, values["lost"].As(p.lost)
}

// StopProvider implements the protocol.
func (p provider) StopProvider(
	context.Context,
	*tfprotov5.StopProviderRequest,
) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

// ValidateResourceTypeConfig implements the protocol. Terraform itself checks a configuration
// against the schema.
func (p provider) ValidateResourceTypeConfig(
	context.Context,
	*tfprotov5.ValidateResourceTypeConfigRequest,
) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

// UpgradeResourceState implements the protocol.
func (p provider) UpgradeResourceState(
	_ context.Context,
	r *tfprotov5.UpgradeResourceStateRequest,
) (*tfprotov5.UpgradeResourceStateResponse, error) {
	typ, err := p.resourceType(r.TypeName)
	if err != nil {
		return nil, err
	}

	v, err := r.RawState.Unmarshal(typ)
	if err != nil {
		return nil, err
	}

	state, err := tfprotov5.NewDynamicValue(typ, v)
	return &tfprotov5.UpgradeResourceStateResponse{UpgradedState: &state}, err
}

// ReadResource implements the protocol. Resources do not drift, so it returns the current state, or nothing for one that is
// lost.
func (p provider) ReadResource(
	_ context.Context,
	r *tfprotov5.ReadResourceRequest,
) (*tfprotov5.ReadResourceResponse, error) {
	if *p.lost == "" {
		return &tfprotov5.ReadResourceResponse{NewState: r.CurrentState}, nil
	}

	typ, err := p.resourceType(r.TypeName)
	if err != nil {
		return nil, err
	}

	current, err := r.CurrentState.Unmarshal(typ)
	if err != nil {
		return nil, err
	}

	address, err := addressOf(current)
	if err != nil || address != *p.lost {
		return &tfprotov5.ReadResourceResponse{NewState: r.CurrentState}, err
	}

	state, err := tfprotov5.NewDynamicValue(typ, tftypes.NewValue(typ, nil))

	return &tfprotov5.ReadResourceResponse{NewState: &state}, err
}

// addressOf returns the tag slipway.dev/address of a resource; empty if it has none.
func addressOf(resource tftypes.Value) (string, error) {
	attributes := map[string]tftypes.Value{}
	if err := resource.As(&attributes); err != nil {
		return "", err
	}

	tags := map[string]tftypes.Value{}
	if value, ok := attributes["tags"]; !ok || value.As(&tags) != nil {
		return "", nil // tags in blocks, as of Auto Scaling groups
	}

	address := ""
	if value, ok := tags["slipway.dev/address"]; ok {
		return address, value.As(&address)
	}

	return address, nil
}

// PlanResourceChange implements the protocol. The computed attributes of a new resource are unknown
// in the plan.
func (p provider) PlanResourceChange(
	_ context.Context,
	r *tfprotov5.PlanResourceChangeRequest,
) (*tfprotov5.PlanResourceChangeResponse, error) {
	typ, err := p.resourceType(r.TypeName)
	if err != nil {
		return nil, err
	}

	prior, err := r.PriorState.Unmarshal(typ)
	if err != nil {
		return nil, err
	}

	proposed, err := r.ProposedNewState.Unmarshal(typ)
	isChanged := err == nil && !prior.IsNull() && !proposed.IsNull() && !prior.Equal(proposed)
	if isChanged && r.TypeName == "aws_launch_template" {
		return p.planNewVersion(r.TypeName, proposed)
	}

	if isChanged {
		replaced, err := replacedBy(r.TypeName, prior, proposed)
		return &tfprotov5.PlanResourceChangeResponse{PlannedState: r.ProposedNewState, RequiresReplace: replaced}, err
	}

	if err != nil || proposed.IsNull() || !prior.IsNull() {
		return &tfprotov5.PlanResourceChangeResponse{PlannedState: r.ProposedNewState}, err
	}

	return p.newPlanResponse(r.TypeName, proposed, func(a attributeSchema, v tftypes.Value) tftypes.Value {
		if a.Computed && v.IsNull() {
			return tftypes.NewValue(a.Type, tftypes.UnknownValue)
		}

		return v
	})
}

// immutableAttributes returns the attributes of a resource type whose change makes the AWS provider replace the resource. It
// has those about which a test asks.
func immutableAttributes(resourceType string) []string {
	switch resourceType {
	case "aws_autoscaling_group":
		return []string{"name", "initial_lifecycle_hook"}
	case "aws_autoscaling_lifecycle_hook":
		return []string{"name", "autoscaling_group_name"}
	}

	return nil
}

// replacedBy returns the changed attributes that make Terraform replace a resource.
func replacedBy(resourceType string, prior, proposed tftypes.Value) ([]*tftypes.AttributePath, error) {
	before, after := map[string]tftypes.Value{}, map[string]tftypes.Value{}
	if err := prior.As(&before); err != nil {
		return nil, err
	}

	if err := proposed.As(&after); err != nil {
		return nil, err
	}

	var out []*tftypes.AttributePath
	for _, name := range immutableAttributes(resourceType) {
		if !before[name].Equal(after[name]) {
			out = append(out, tftypes.NewAttributePath().WithAttributeName(name))
		}
	}

	return out, nil
}

// planNewVersion plans a change of a launch template: as in the AWS provider, it gets another latest version, which is
// known after the change.
func (p provider) planNewVersion(name string, proposed tftypes.Value) (*tfprotov5.PlanResourceChangeResponse, error) {
	return p.newPlanResponse(name, proposed, func(a attributeSchema, v tftypes.Value) tftypes.Value {
		if a.Name == "latest_version" {
			return tftypes.NewValue(a.Type, tftypes.UnknownValue)
		}

		return v
	})
}

// attributeSchema is the schema of one attribute.
type attributeSchema = *tfprotov5.SchemaAttribute

// newPlanResponse returns a plan for v with its attributes changed.
func (p provider) newPlanResponse(
	name string,
	v tftypes.Value,
	change func(attributeSchema, tftypes.Value) tftypes.Value,
) (*tfprotov5.PlanResourceChangeResponse, error) {
	state, err := p.changeAttributes(name, v, change)
	return &tfprotov5.PlanResourceChangeResponse{PlannedState: state}, err
}

// changeAttributes changes the attributes of a resource, but not those of its blocks.
func (p provider) changeAttributes(
	name string,
	v tftypes.Value,
	change func(attributeSchema, tftypes.Value) tftypes.Value,
) (*tfprotov5.DynamicValue, error) {
	members := map[string]tftypes.Value{}
	if err := v.As(&members); err != nil {
		return nil, err
	}

	for _, a := range p.schemas[name].Block.Attributes {
		members[a.Name] = change(a, members[a.Name])
	}

	state, err := tfprotov5.NewDynamicValue(v.Type(), tftypes.NewValue(v.Type(), members))
	return &state, err
}

// ApplyResourceChange implements the protocol. It replaces unknown attributes by invented values of
// their types.
func (p provider) ApplyResourceChange(
	_ context.Context,
	r *tfprotov5.ApplyResourceChangeRequest,
) (*tfprotov5.ApplyResourceChangeResponse, error) {
	typ, err := p.resourceType(r.TypeName)
	if err != nil {
		return nil, err
	}

	v, err := r.PlannedState.Unmarshal(typ)
	if err != nil || v.IsNull() {
		return &tfprotov5.ApplyResourceChangeResponse{NewState: r.PlannedState}, err
	}

	state, err := p.changeAttributes(r.TypeName, v, func(a attributeSchema, v tftypes.Value) tftypes.Value {
		if v.IsKnown() {
			return v
		}

		return inventValue(r.TypeName, a)
	})
	return &tfprotov5.ApplyResourceChangeResponse{NewState: state}, err
}

// inventValue returns a value for a computed attribute of a resource of type name.
func inventValue(name string, a attributeSchema) tftypes.Value {
	switch {
	case a.Type.Is(tftypes.String):
		return tftypes.NewValue(a.Type, name+"."+a.Name+"-"+rand.Text())
	case a.Type.Is(tftypes.Number):
		return tftypes.NewValue(a.Type, big.NewFloat(1))
	case a.Type.Is(tftypes.Bool):
		return tftypes.NewValue(a.Type, false)
	default:
		return tftypes.NewValue(a.Type, nil)
	}
}
