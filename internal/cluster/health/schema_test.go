// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

const schemaDoc = "../../../docs/reference/validate.schema.json"

// objectSchema is an object type of the schema.
type objectSchema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// TestSchemaHasTheGoTypes: every field of every type, and whether it may be left out.
func TestSchemaHasTheGoTypes(t *testing.T) {
	var s struct {
		objectSchema
		Defs map[string]objectSchema `json:"$defs"`
	}
	if err := json.Unmarshal(health.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		schema objectSchema
		is     reflect.Type
	}{
		"report": {s.objectSchema, reflect.TypeFor[health.Report]()},
		"check":  {s.Defs["check"], reflect.TypeFor[health.Check]()},
	} {
		var fields, required []string
		for f := range tt.is.Fields() {
			if !f.IsExported() {
				continue
			}
			field, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, field)
			if opts == "" {
				required = append(required, field)
			}
		}
		var have []string
		for field := range tt.schema.Properties {
			have = append(have, field)
		}
		for _, list := range [][]string{fields, required, have, tt.schema.Required} {
			slices.Sort(list)
		}
		if diff := cmp.Diff(fields, have); diff != "" {
			t.Errorf("%s: fields (-Go +schema):\n%s", name, diff)
		}
		if diff := cmp.Diff(required, tt.schema.Required); diff != "" {
			t.Errorf("%s: required (-Go +schema):\n%s", name, diff)
		}
	}
}

// TestSchemaIsPublished: the reference is the schema that slipway prints.
func TestSchemaIsPublished(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaDoc, health.Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(schemaDoc)
	if err != nil || !bytes.Equal(text, health.Schema()) {
		t.Errorf("run go test ./internal/cluster/health -update (%v)", err)
	}
}

// TestReportsFitTheSchema validates the report of every fault, with no field that the schema does not name.
func TestReportsFitTheSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(health.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	root := doc.(map[string]any)
	root["additionalProperties"] = false
	root["$defs"].(map[string]any)["check"].(map[string]any)["additionalProperties"] = false
	c := jsonschema.NewCompiler()
	if err := c.AddResource("validate.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("validate.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults() {
		f := healthyCluster()
		fault.change(&f)
		body, err := json.Marshal(health.Evaluate(f))
		if err != nil {
			t.Fatal(err)
		}
		is, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(is); err != nil {
			t.Errorf("%s: %v", fault.name, err)
		}
	}
	if err := schema.Validate(map[string]any{"valid": true}); err == nil {
		t.Error("the schema accepts a report without checks")
	}
}

// TestChanges: what is new, what got another cause and what is resolved; an age is no change.
func TestChanges(t *testing.T) {
	at := func(change func(*health.Facts)) health.Report {
		f := healthyCluster()
		change(&f)
		return health.Evaluate(f)
	}
	lease := func(seconds int) func(*health.Facts) {
		return func(f *health.Facts) { silent(f, 3, time.Duration(seconds)*time.Second) }
	}
	nothing := func(*health.Facts) {}
	pods := func(reason string) func(*health.Facts) {
		return func(f *health.Facts) {
			f.Pods[len(f.Pods)-1].Running, f.Pods[len(f.Pods)-1].Reason = false, reason
		}
	}
	for name, tt := range map[string]struct {
		before, after func(*health.Facts)
		want          []string
	}{
		"nothing":            {nothing, nothing, nil},
		"a new problem":      {nothing, lease(17), []string{"node ip-10-80-0-4"}},
		"it gets older":      {lease(17), lease(19), nil},
		"it is resolved":     {lease(17), nothing, []string{"resolved node ip-10-80-0-4"}},
		"it changes":         {pods("phase Pending"), pods("not Ready"), []string{"pod kube-system/coredns-7c9f"}},
		"another one is new": {lease(17), func(f *health.Facts) { lease(18)(f); pods("not Ready")(f) }, []string{"pod kube-system/coredns-7c9f"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range health.Changes(at(tt.before), at(tt.after)) {
				text := c.Check.Kind + " " + c.Check.Name
				if c.Resolved {
					text = "resolved " + text
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
