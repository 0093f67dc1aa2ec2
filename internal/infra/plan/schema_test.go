// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

var update = flag.Bool("update", false, "rewrite docs/reference/plan.schema.json")

const schemaDoc = "../../../docs/reference/plan.schema.json"

// object is an object type of the schema.
type object struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// TestSchemaHasTheGoTypes: every field of every type, its name, its JSON type and whether it may be left out.
func TestSchemaHasTheGoTypes(t *testing.T) {
	var s struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(plan.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		schema object
		is     reflect.Type
	}{
		"document": {s.object, reflect.TypeFor[plan.Document]()},
		"step":     {s.Defs["step"], reflect.TypeFor[plan.Step]()},
		"pending":  {s.Defs["pending"], reflect.TypeFor[plan.Pending]()},
		"unsigned": {s.Defs["unsigned"], reflect.TypeFor[plan.UnsignedDocument]()},
		"setting":  {s.Defs["setting"], reflect.TypeFor[plan.Setting]()},
		"change":   {s.Defs["change"], reflect.TypeFor[plan.Change]()},
		"summary":  {s.Defs["summary"], reflect.TypeFor[plan.Summary]()},
		"cost":     {s.Defs["monthlyCost"], reflect.TypeFor[plan.MonthlyCost]()},
		"costItem": {s.Defs["costItem"], reflect.TypeFor[plan.CostItem]()},
	} {
		want := map[string]string{}
		var required []string
		for f := range tt.is.Fields() {
			if !f.IsExported() {
				continue
			}
			field, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			want[field] = map[reflect.Kind]string{
				reflect.String: "string", reflect.Int: "integer", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Struct: "object",
				reflect.Float64: "number",
			}[f.Type.Kind()] // any value: no type
			if !strings.Contains(opts, "omitempty") && !strings.Contains(opts, "omitzero") {
				required = append(required, field)
			}
		}
		got := map[string]string{}
		for field, raw := range tt.schema.Properties {
			var p struct {
				Type  string          `json:"type"`
				Enum  []string        `json:"enum"`
				Const json.RawMessage `json:"const"`
				Ref   string          `json:"$ref"`
			}
			if err := json.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
			switch {
			case p.Enum != nil:
				p.Type = "string"
			case p.Const != nil:
				p.Type = "integer"
			case p.Ref != "":
				p.Type = "object"
			}
			got[field] = p.Type
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-Go +schema):\n%s", name, diff)
		}
		slices.Sort(required)
		if diff := cmp.Diff(required, slices.Sorted(slices.Values(tt.schema.Required))); diff != "" {
			t.Errorf("%s: required (-Go +schema):\n%s", name, diff)
		}
	}
	for _, a := range []plan.Action{plan.Create, plan.Update, plan.Replace, plan.Delete} {
		if !bytes.Contains(plan.Schema(), []byte(`"`+a+`"`)) {
			t.Errorf("the schema has no action %s", a)
		}
	}
}

// TestSchemaIsPublished: the reference is the schema that slipway prints.
func TestSchemaIsPublished(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaDoc, plan.Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(schemaDoc)
	if err != nil || !bytes.Equal(text, plan.Schema()) {
		t.Errorf("run go test ./internal/infra/plan -update (%v)", err)
	}
}

// validator compiles the schema. strict refuses fields that it does not name: readers may not, tests must.
func validator(t *testing.T, strict bool) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(plan.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if strict {
		root := doc.(map[string]any)
		root["additionalProperties"] = false
		for d := range maps.Values(root["$defs"].(map[string]any)) {
			d.(map[string]any)["additionalProperties"] = false
		}
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("plan.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, body []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// TestPlansFitTheSchema: plans of every action fit, and what is no plan does not. Plans of whole clusters are
// held to it in internal/cli.
func TestPlansFitTheSchema(t *testing.T) {
	g := &graph.Graph{}
	vpc := graph.Add(g, "main", awskind.VPC{CIDR: "10.0.0.0/16"})
	graph.Add(g, "a", awskind.Subnet{VPC: vpc, CIDR: "10.0.0.0/24", Zone: "us-east-1a", MapPublicIP: true})
	graph.Add(g, "public", awskind.RouteTable{VPC: vpc})
	have := []plan.ActualResource{
		{Addr: "vpc/main", ID: "vpc-1", Resource: awskind.VPC{CIDR: "10.0.0.0/16"}},
		{Addr: "subnet/a", ID: "subnet-1", Resource: awskind.Subnet{VPC: graph.UnmanagedRef[awskind.VPC]("vpc-1"), CIDR: "10.0.0.0/24", Zone: "us-east-1a"}},
		{Addr: "route-table/public", ID: "rtb-1", Resource: awskind.RouteTable{VPC: graph.UnmanagedRef[awskind.VPC]("vpc-0")}},
		{Addr: "subnet/b", ID: "subnet-2", Resource: awskind.Subnet{VPC: graph.UnmanagedRef[awskind.VPC]("vpc-1"), CIDR: "10.0.1.0/24", Zone: "us-east-1b"}},
	}
	strict := validator(t, true)
	actions := map[plan.Action]bool{}
	for _, actual := range [][]plan.ActualResource{nil, have} {
		p, _ := plan.Compute(g, actual, plan.Options{})
		for _, s := range p.Steps {
			actions[s.Action] = true
		}
		body, err := json.Marshal(p.Document("demo"))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, strict, body); err != nil {
			t.Errorf("%v\n%s", err, body)
		}
	}
	if len(actions) != 4 {
		t.Errorf("only %v were tried", actions)
	}
	for _, not := range []string{
		`{}`, `[]`, `{"formatVersion":2,"cluster":"demo","machineStore":[],"steps":[],"summary":{"add":0,"change":0,"destroy":0,"publish":0}}`,
		`{"formatVersion":1,"cluster":"demo","machineStore":[],"steps":[{"action":"burn","address":"vpc/main","kind":"vpc"}],"summary":{"add":0,"change":0,"destroy":0,"publish":0}}`,
	} {
		if validate(t, validator(t, false), []byte(not)) == nil {
			t.Errorf("%s fits", not)
		}
	}
	if validate(t, validator(t, false), []byte(`{"formatVersion":1,"cluster":"demo","later":1,"machineStore":[],"steps":[],"summary":{"add":0,"change":0,"destroy":0,"publish":0}}`)) != nil {
		t.Error("a later field is refused")
	}
}
