// SPDX-License-Identifier: Apache-2.0

package plan

import _ "embed" // the schema

//go:embed plan.schema.json
var schemaJSON []byte

// Schema returns the JSON Schema of a [Document]. A test compares it with the Go types and validates real
// plans.
func Schema() []byte { return schemaJSON }
