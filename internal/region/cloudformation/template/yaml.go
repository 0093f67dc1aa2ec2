// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxYAMLNodes limits the size to which aliases can expand a YAML template.
const maxYAMLNodes = 200000

// decodeYAML decodes a template in YAML. It expands short forms such as !Ref to functions.
func decodeYAML(body string) (Object, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(body), &doc); err != nil {
		return nil, FormatError("YAML not well-formed. (%v)", err)
	}

	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, FormatError("unsupported structure.")
	}

	r := yamlReader{nodesLeft: maxYAMLNodes}
	v, err := r.readValue(doc.Content[0], 0)
	if err != nil {
		return nil, err
	}

	m, ok := v.(Object)
	if !ok {
		return nil, FormatError("unsupported structure.")
	}

	return m, nil
}

type yamlReader struct{ nodesLeft int }

func (r *yamlReader) readValue(n *yaml.Node, depth int) (any, error) {
	if r.nodesLeft--; r.nodesLeft < 0 || depth > 100 {
		return nil, FormatError("YAML not well-formed. (too large or nested too deeply)")
	}

	v, err := r.readUntagged(n, depth)
	if err != nil || !strings.HasPrefix(n.Tag, "!") || strings.HasPrefix(n.Tag, "!!") {
		return v, err
	}

	return expandShortForm(n.Tag, v)
}

// readUntagged returns the value of a node without its tag.
func (r *yamlReader) readUntagged(n *yaml.Node, depth int) (any, error) {
	switch n.Kind {
	case yaml.AliasNode:
		return r.readValue(n.Alias, depth+1)
	case yaml.ScalarNode:
		return scalarValue(n), nil
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := r.readValue(c, depth+1)
			if err != nil {
				return nil, err
			}

			out = append(out, v)
		}

		return out, nil

	case yaml.MappingNode:
		out := Object{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if _, twice := out[key.Value]; twice || key.Kind != yaml.ScalarNode {
				return nil, FormatError(
					"YAML not well-formed. (line %d: the key %q is set twice or is not a string)",
					key.Line,
					key.Value,
				)
			}

			v, err := r.readValue(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}

			out[key.Value] = v
		}

		return out, nil

	default:
		return nil, FormatError("YAML not well-formed. (line %d)", n.Line)
	}
}

func scalarValue(n *yaml.Node) any {
	switch n.Tag {
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return json.Number(n.Value)
		}

	case "!!null":
		return nil
	}

	return n.Value
}

// expandShortForm returns the function for a tag such as !GetAtt and its value.
func expandShortForm(tag string, v any) (any, error) {
	name := strings.TrimPrefix(tag, "!")
	switch {
	case name == "Ref" || name == "Condition":
		return Object{name: v}, nil
	case name == "GetAtt":
		if s, ok := v.(string); ok {
			resource, attribute, _ := strings.Cut(s, ".")
			v = []any{resource, attribute}
		}

	case !slices.Contains(functionNames(), "Fn::"+name):
		return nil, FormatError("YAML not well-formed. (the tag %s is not known)", tag)
	}

	return Object{"Fn::" + name: v}, nil
}
