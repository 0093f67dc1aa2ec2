// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chart"
)

// checkSchemas checks the values of a chart and of its dependencies against their values.schema.json.
func checkSchemas(c *chart.Chart, values map[string]any) error {
	var errs []error

	if c.Schema != nil {
		errs = append(errs, checkSchema(c.Name(), c.Schema, values))
	}

	for _, below := range c.Dependencies() {
		if table, given := values[below.Name()].(map[string]any); given {
			errs = append(errs, checkSchemas(below, table))
		}
	}

	return errors.Join(errs...)
}

// checkSchema checks values against a schema.
func checkSchema(name string, schema []byte, values map[string]any) error {
	const address = "values.schema.json"

	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("read %s of chart %s: %w", address, name, err)
	}

	text, err := json.Marshal(values)
	if err != nil {
		return fmt.Errorf("encode the values of chart %s: %w", name, err)
	}

	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("decode the values of chart %s: %w", name, err)
	}

	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	err = compiler.AddResource("chart:///"+address, parsed)
	if err != nil {
		return fmt.Errorf("read %s of chart %s: %w", address, name, err)
	}

	compiled, err := compiler.Compile("chart:///" + address)
	if err != nil {
		return fmt.Errorf("read %s of chart %s: %w", address, name, err)
	}

	if err := compiled.Validate(plain); err != nil {
		_, reasons, _ := strings.Cut(err.Error(), "\n")
		return fmt.Errorf(
			"the values do not match %s of chart %s: %s",
			address,
			name,
			strings.TrimSpace(reasons),
		)
	}

	return nil
}

// noLoader refuses other documents that a schema refers to: files of this machine and addresses.
type noLoader struct{}

// Load implements [jsonschema.URLLoader].
func (noLoader) Load(address string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, which slipway does not read", address)
}
