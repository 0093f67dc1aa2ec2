// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/json"
	"fmt"
)

// AWS names the fields of a launch template's data, of its answer and of RunInstances alike, so that one becomes the
// other by way of record.Fields and shape.

// structFromFields turns a tree into a shape; what the shape has no field for is left out.
func structFromFields[T any](tree map[string]any) (*T, error) {
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
