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

// provider answers what Terraform asks of resources; the rest of the protocol is not asked of it.
type provider struct {
	tfprotov5.ProviderServer
	schemas map[string]*tfprotov5.Schema
}

func (p provider) typeOf(name string) (tftypes.Type, error) {
	s := p.schemas[name]
	if s == nil {
		return nil, fmt.Errorf("there is no resource type %s", name)
	}
	return s.Block.ValueType(), nil
}

// GetMetadata implements the protocol.
func (p provider) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	out := &tfprotov5.GetMetadataResponse{}
	for name := range p.schemas {
		out.Resources = append(out.Resources, tfprotov5.ResourceMetadata{TypeName: name})
	}
	return out, nil
}

// GetProviderSchema implements the protocol.
func (p provider) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	return &tfprotov5.GetProviderSchemaResponse{
		Provider: &tfprotov5.Schema{Block: &tfprotov5.SchemaBlock{
			Attributes: []*tfprotov5.SchemaAttribute{{Name: "region", Type: tftypes.String, Optional: true}},
		}},
		ResourceSchemas: p.schemas,
	}, nil
}

// GetResourceIdentitySchemas implements the protocol.
func (p provider) GetResourceIdentitySchemas(context.Context, *tfprotov5.GetResourceIdentitySchemasRequest) (*tfprotov5.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov5.GetResourceIdentitySchemasResponse{}, nil
}

// PrepareProviderConfig implements the protocol.
func (p provider) PrepareProviderConfig(_ context.Context, r *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: r.Config}, nil
}

// ConfigureProvider implements the protocol.
func (p provider) ConfigureProvider(context.Context, *tfprotov5.ConfigureProviderRequest) (*tfprotov5.ConfigureProviderResponse, error) {
	return &tfprotov5.ConfigureProviderResponse{}, nil
}

// StopProvider implements the protocol.
func (p provider) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

// ValidateResourceTypeConfig implements the protocol: Terraform itself checks a configuration against the schema.
func (p provider) ValidateResourceTypeConfig(context.Context, *tfprotov5.ValidateResourceTypeConfigRequest) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

// UpgradeResourceState implements the protocol.
func (p provider) UpgradeResourceState(_ context.Context, r *tfprotov5.UpgradeResourceStateRequest) (*tfprotov5.UpgradeResourceStateResponse, error) {
	typ, err := p.typeOf(r.TypeName)
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

// ReadResource implements the protocol: nothing changes behind Terraform's back.
func (p provider) ReadResource(_ context.Context, r *tfprotov5.ReadResourceRequest) (*tfprotov5.ReadResourceResponse, error) {
	return &tfprotov5.ReadResourceResponse{NewState: r.CurrentState}, nil
}

// PlanResourceChange implements the protocol: of a new resource, what the provider computes is not known yet.
func (p provider) PlanResourceChange(_ context.Context, r *tfprotov5.PlanResourceChangeRequest) (*tfprotov5.PlanResourceChangeResponse, error) {
	typ, err := p.typeOf(r.TypeName)
	if err != nil {
		return nil, err
	}
	prior, err := r.PriorState.Unmarshal(typ)
	if err != nil {
		return nil, err
	}
	proposed, err := r.ProposedNewState.Unmarshal(typ)
	if err != nil || proposed.IsNull() || !prior.IsNull() {
		return &tfprotov5.PlanResourceChangeResponse{PlannedState: r.ProposedNewState}, err
	}
	return p.planned(r.TypeName, proposed, func(a *tfprotov5.SchemaAttribute, v tftypes.Value) tftypes.Value {
		if a.Computed && v.IsNull() {
			return tftypes.NewValue(a.Type, tftypes.UnknownValue)
		}
		return v
	})
}

func (p provider) planned(name string, v tftypes.Value, change func(*tfprotov5.SchemaAttribute, tftypes.Value) tftypes.Value) (*tfprotov5.PlanResourceChangeResponse, error) {
	state, err := p.each(name, v, change)
	return &tfprotov5.PlanResourceChangeResponse{PlannedState: state}, err
}

// each changes the attributes of a resource, not those of its blocks.
func (p provider) each(name string, v tftypes.Value, change func(*tfprotov5.SchemaAttribute, tftypes.Value) tftypes.Value) (*tfprotov5.DynamicValue, error) {
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

// ApplyResourceChange implements the protocol: what was unknown gets a value of its type.
func (p provider) ApplyResourceChange(_ context.Context, r *tfprotov5.ApplyResourceChangeRequest) (*tfprotov5.ApplyResourceChangeResponse, error) {
	typ, err := p.typeOf(r.TypeName)
	if err != nil {
		return nil, err
	}
	v, err := r.PlannedState.Unmarshal(typ)
	if err != nil || v.IsNull() {
		return &tfprotov5.ApplyResourceChangeResponse{NewState: r.PlannedState}, err
	}
	state, err := p.each(r.TypeName, v, func(a *tfprotov5.SchemaAttribute, v tftypes.Value) tftypes.Value {
		if v.IsKnown() {
			return v
		}
		return invented(r.TypeName, a)
	})
	return &tfprotov5.ApplyResourceChangeResponse{NewState: state}, err
}

func invented(name string, a *tfprotov5.SchemaAttribute) tftypes.Value {
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
