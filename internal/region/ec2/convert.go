// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/json"
	"fmt"
)

// fields is a shape as a tree without its nulls: AWS names the fields of a launch template's data, of its answer and
// of RunInstances alike, so that one becomes the other through it.
func fields(shape any) (map[string]any, error) {
	b, err := json.Marshal(shape)
	if err != nil {
		return nil, fmt.Errorf("read a %T: %w", shape, err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("read a %T: %w", shape, err)
	}
	prune(out)
	return out, nil
}

// prune removes nulls, and what is empty without them.
func prune(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			prune(v)
		case []any:
			for _, e := range v {
				if em, ok := e.(map[string]any); ok {
					prune(em)
				}
			}
		}
	}
}

// shape turns a tree into a shape; what the shape has no field for is left out.
func shape[T any](tree map[string]any) (*T, error) {
	b, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("make a %T: %w", *new(T), err)
	}
	out := new(T)
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fmt.Errorf("make a %T: %w", *out, err)
	}
	return out, nil
}
