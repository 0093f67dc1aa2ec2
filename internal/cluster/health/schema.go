// SPDX-License-Identifier: Apache-2.0

package health

import _ "embed" // the schema

//go:embed validate.schema.json
var schemaJSON []byte

// Schema returns the JSON Schema of a [Report]. A test compares it with the Go types and validates the report
// of every fault.
func Schema() []byte { return schemaJSON }
