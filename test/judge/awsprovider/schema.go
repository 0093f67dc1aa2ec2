// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// attribute is the schema of one attribute in the file.
type attribute struct {
	Name string
	// Type such as set(string); object for one with Fields.
	Type                         string
	Required, Optional, Computed bool
	Fields                       []attribute
}

// block is the schema of a resource type or of a nested block in the file.
type block struct {
	Name string
	// Nesting of a nested block: list, set or single.
	Nesting string
	// Min and Max are the allowed numbers of nested blocks.
	Min, Max   int64
	Attributes []attribute
	Blocks     []block
}

// readSchemas reads the schemas of all resource types, by type name.
func readSchemas(path string) (map[string]*tfprotov5.Schema, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the provider's schema: %w", err)
	}

	var doc struct{ Resources map[string]block }
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("read the provider's schema in %s: %w", path, err)
	}

	out := map[string]*tfprotov5.Schema{}
	for name, b := range doc.Resources {
		inner, err := b.buildSchema()
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}

		out[name] = &tfprotov5.Schema{Block: inner}
	}

	return out, nil
}

func (b block) buildSchema() (*tfprotov5.SchemaBlock, error) {
	out := &tfprotov5.SchemaBlock{}
	for _, a := range b.Attributes {
		typ, err := a.parseType(a.Type)
		if err != nil {
			return nil, err
		}

		out.Attributes = append(out.Attributes, &tfprotov5.SchemaAttribute{
			Name:     a.Name,
			Type:     typ,
			Required: a.Required,
			Optional: a.Optional,
			Computed: a.Computed,
		})
	}

	for _, n := range b.Blocks {
		inner, err := n.buildSchema()
		if err != nil {
			return nil, err
		}

		nested := &tfprotov5.SchemaNestedBlock{
			TypeName: n.Name,
			Block:    inner,
			MinItems: n.Min,
			MaxItems: n.Max,
		}

		switch n.Nesting {
		case "list":
			nested.Nesting = tfprotov5.SchemaNestedBlockNestingModeList
		case "set":
			nested.Nesting = tfprotov5.SchemaNestedBlockNestingModeSet
		case "single":
			nested.Nesting = tfprotov5.SchemaNestedBlockNestingModeSingle
		default:
			return nil, fmt.Errorf("block %s: nesting %q is unknown", n.Name, n.Nesting)
		}

		out.BlockTypes = append(out.BlockTypes, nested)
	}

	return out, nil
}

// parseType parses the name of a type, such as set(string). The members of an object are the
// attribute's Fields.
func (a attribute) parseType(text string) (tftypes.Type, error) {
	if outer, inner, nested := strings.Cut(strings.TrimSuffix(text, ")"), "("); nested {
		element, err := a.parseType(inner)
		if err != nil {
			return nil, err
		}

		switch outer {
		case "list":
			return tftypes.List{ElementType: element}, nil
		case "set":
			return tftypes.Set{ElementType: element}, nil
		case "map":
			return tftypes.Map{ElementType: element}, nil
		}
	}

	switch text {
	case "string":
		return tftypes.String, nil
	case "number":
		return tftypes.Number, nil
	case "bool":
		return tftypes.Bool, nil
	case "object":
		members := map[string]tftypes.Type{}
		for _, f := range a.Fields {
			typ, err := f.parseType(f.Type)
			if err != nil {
				return nil, err
			}

			members[f.Name] = typ
		}

		return tftypes.Object{AttributeTypes: members}, nil
	}

	return nil, fmt.Errorf("attribute %s: type %q is unknown", a.Name, text)
}
