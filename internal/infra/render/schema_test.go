// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/test/referencedata"
)

type object = map[string]any

type cfnDefinition struct {
	Properties map[string]string
	Required   []string
	Additional bool `json:"additionalProperties"` // it takes any property
}

type cfnType struct {
	cfnDefinition
	ReadOnly    []string `json:"readOnlyProperties"`
	Definitions map[string]cfnDefinition
}

type cfnTemplate struct {
	Parameters map[string]object
	Mappings   map[string]map[string]map[string]string
	Resources  map[string]struct {
		Type       string
		Properties object
		DependsOn  []string
	}
	Outputs map[string]struct{ Value any }
}

// cfnChecker collects what is wrong with a template.
type cfnChecker struct {
	cfnTemplate
	types map[string]cfnType
	bad   []string
}

func (c *cfnChecker) errorf(format string, args ...any) {
	c.bad = append(c.bad, fmt.Sprintf(format, args...))
}

func (c *cfnChecker) check() {
	for id, r := range c.Resources {
		typ, ok := c.types[r.Type]
		if !ok {
			c.errorf("%s: no type %s", id, r.Type)
		}
		for _, p := range typ.ReadOnly {
			if r.Properties[p] != nil {
				c.errorf("%s: %s is read-only", id, p)
			}
		}
		for _, d := range r.DependsOn {
			if _, ok := c.Resources[d]; !ok {
				c.errorf("%s depends on %s, which is not there", id, d)
			}
		}
		c.object(id, r.Properties, typ.cfnDefinition, typ.Definitions)
	}
	for id, o := range c.Outputs {
		c.value(id, o.Value, "string", nil)
	}
}

func (c *cfnChecker) object(path string, have object, want cfnDefinition, definitions map[string]cfnDefinition) {
	for _, p := range want.Required {
		if have[p] == nil {
			c.errorf("%s lacks %s", path, p)
		}
	}
	for p, v := range have {
		typ := want.Properties[p]
		if typ == "" && want.Additional {
			continue
		}
		if typ == "" {
			c.errorf("%s has no property %s", path, p)
			continue
		}
		c.value(path+"/"+p, v, typ, definitions)
	}
}

func (c *cfnChecker) value(path string, v any, typ string, definitions map[string]cfnDefinition) {
	if m, ok := v.(object); ok && c.intrinsic(path, m, typ) {
		return
	}
	inner := strings.TrimSuffix(typ[strings.Index(typ, "<")+1:], ">")
	var fits bool
	switch {
	case strings.HasPrefix(typ, "array<"):
		var list []any
		if list, fits = v.([]any); fits {
			for i, e := range list {
				c.value(path+"/"+strconv.Itoa(i), e, inner, definitions)
			}
		}
	case strings.HasPrefix(typ, "map<"):
		var m object
		if m, fits = v.(object); fits {
			for k, e := range m {
				c.value(path+"/"+k, e, inner, definitions)
			}
		}
	case typ == "object" || strings.Contains(typ, "|"):
		_, fits = v.(object)
		if _, text := v.(string); text {
			fits = typ != "object" && typ != "object|string" && slices.Contains(strings.Split(typ, "|"), "string") // documents are objects here
		}
	case typ == "string":
		_, fits = v.(string)
	case typ == "boolean":
		_, fits = v.(bool)
	case typ == "integer" || typ == "number":
		n, number := v.(float64)
		fits = number && (typ == "number" || n == math.Trunc(n))
	default:
		var m object
		if m, fits = v.(object); fits {
			c.object(path, m, definitions[typ], definitions)
		}
	}
	if !fits {
		c.errorf("%s: %v is no %s", path, v, typ)
	}
}

// intrinsic checks a function, whose value is a scalar; false if m is none.
func (c *cfnChecker) intrinsic(path string, m object, typ string) bool {
	if len(m) != 1 {
		return false
	}
	for name, arg := range m {
		if name != "Ref" && !strings.HasPrefix(name, "Fn::") {
			return false
		}
		scalars := []string{"string", "integer", "number"}
		if !slices.ContainsFunc(strings.Split(typ, "|"), func(one string) bool { return slices.Contains(scalars, one) }) {
			c.errorf("%s: %s gives no %s", path, name, typ)
		}
		c.function(path, name, arg)
	}
	return true
}

func (c *cfnChecker) function(path, name string, arg any) {
	list, _ := arg.([]any)
	at := func(i int) string {
		s, _ := list[i].(string)
		return s
	}
	switch name {
	case "Ref":
		id, _ := arg.(string)
		if _, ok := c.Resources[id]; !ok && c.Parameters[id] == nil && id != "AWS::StackName" {
			c.errorf("%s: nothing is called %s", path, id)
		}
	case "Fn::GetAtt":
		if typ := c.types[c.Resources[at(0)].Type]; !slices.Contains(typ.ReadOnly, at(1)) {
			c.errorf("%s: %s has no attribute %s", path, at(0), at(1))
		}
	case "Fn::FindInMap":
		if ref, ok := list[1].(object); ok { // what a parameter chooses
			version, _ := c.Parameters[fmt.Sprint(ref["Ref"])]["Default"].(string)
			list = []any{list[0], version, list[2]}
		}
		if c.Mappings[at(0)][at(1)][at(2)] == "" {
			c.errorf("%s: no mapping %v", path, list)
		}
	case "Fn::Join":
		parts, _ := list[1].([]any)
		for _, p := range parts {
			c.value(path, p, "string", nil)
		}
	case "Fn::Sub":
		text, _ := arg.(string)
		for _, m := range regexp.MustCompile(`\$\{([^!}][^}]*)\}`).FindAllStringSubmatch(text, -1) {
			c.function(path, "Ref", m[1])
		}
	case "Fn::Base64":
		c.value(path, arg, "string", nil)
	default:
		c.errorf("%s: function %s is not expected", path, name)
	}
}

func TestCloudFormationSchema(t *testing.T) {
	var doc struct{ Types map[string]cfnType }
	referencedata.ReadJSON(t, referencedata.CloudFormationTypes, &doc)
	if _, there := doc.Types[warmPoolType]; !there {
		doc.Types[warmPoolType] = warmPool(t)
	}
	judge := func(t *testing.T, body string) []string {
		t.Helper()
		c := cfnChecker{types: doc.Types}
		if err := json.Unmarshal([]byte(body), &c.cfnTemplate); err != nil {
			t.Fatal(err)
		}
		c.check()
		return c.bad
	}
	for _, x := range rendertest.Topologies() {
		for _, b := range judge(t, rendered(t, x)["template.json"]) {
			t.Errorf("%s: %s", x.Name, b)
		}
	}
	mistakes(t, "template.json", map[string][2]string{
		"an unknown property": {`"CidrBlock":`, `"CidrBlok":`},
		"a missing one":       {`"PolicyDocument":`, `"Roles":`},
		"a mistyped one":      {`"EnableDnsSupport":true`, `"EnableDnsSupport":"yes"`},
		"a nested one":        {`"HttpTokens":`, `"HttpToken":`},
		"a reference":         {`{"Ref":"VpcMain"}`, `{"Ref":"Vpc"}`},
		"an attribute":        {`["LoadBalancerInternal","DNSName"]`, `["LoadBalancerInternal","DnsName"]`},
	}, judge)
}

const warmPoolType = "AWS::AutoScaling::WarmPool"

// warmPool is the type as the CloudFormation User Guide has it: the shared data lacks it.
func warmPool(t *testing.T) cfnType {
	t.Helper()
	var typ cfnType
	err := json.Unmarshal([]byte(`{
		"properties": {"AutoScalingGroupName": "string", "InstanceReusePolicy": "InstanceReusePolicy", "MaxGroupPreparedCapacity": "integer", "MinSize": "integer", "PoolState": "string"},
		"required": ["AutoScalingGroupName"],
		"definitions": {"InstanceReusePolicy": {"properties": {"ReuseOnScaleIn": "boolean"}}}}`), &typ)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// mistakes checks that a judge sees each mistake that is put into the rendering of the default cluster.
func mistakes(t *testing.T, file string, edits map[string][2]string, judge func(*testing.T, string) []string) {
	t.Helper()
	body := rendered(t, ha())[file]
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			if wrong := strings.Replace(body, edit[0], edit[1], 1); wrong == body || len(judge(t, wrong)) == 0 {
				t.Errorf("%s for %s is not seen", edit[1], edit[0])
			}
		})
	}
}

type tfAttribute struct {
	Name, Type         string
	Required, Optional bool
}

type tfBlock struct {
	Name       string
	Min, Max   int
	Attributes []tfAttribute
	Blocks     []tfBlock
}

// tfChecker collects what is wrong with a configuration.
type tfChecker struct {
	Resource  map[string]map[string]object
	Variable  map[string]object
	Output    map[string]object
	resources map[string]tfBlock
	bad       []string
}

func (c *tfChecker) errorf(format string, args ...any) {
	c.bad = append(c.bad, fmt.Sprintf(format, args...))
}

func (c *tfChecker) check() {
	for kind, all := range c.Resource {
		schema, ok := c.resources[kind]
		if !ok {
			c.errorf("no resource %s", kind)
		}
		for name, body := range all {
			delete(body, "lifecycle")
			after, _ := body["depends_on"].([]any)
			for _, a := range after {
				s, _ := a.(string)
				k, label, _ := strings.Cut(s, ".")
				if c.Resource[k][label] == nil {
					c.errorf("%s.%s depends on %s, which is not there", kind, name, s)
				}
			}
			delete(body, "depends_on")
			c.block(kind+"."+name, body, schema)
		}
	}
	for name, o := range c.Output {
		c.value(name, o["value"], "string")
	}
}

func (c *tfChecker) block(path string, body object, schema tfBlock) {
	known := map[string]bool{}
	for _, a := range schema.Attributes {
		known[a.Name] = true
		v := body[a.Name]
		switch {
		case v == nil && a.Required:
			c.errorf("%s lacks %s", path, a.Name)
		case v != nil && !a.Required && !a.Optional:
			c.errorf("%s.%s is read-only", path, a.Name)
		case v != nil:
			c.value(path+"."+a.Name, v, a.Type)
		}
	}
	for _, b := range schema.Blocks {
		known[b.Name] = true
		list, ok := body[b.Name].([]any)
		if body[b.Name] != nil && !ok || len(list) < b.Min || b.Max > 0 && len(list) > b.Max {
			c.errorf("%s: block %s is there %d times", path, b.Name, len(list))
		}
		for _, e := range list {
			m, _ := e.(object)
			c.block(path+"."+b.Name, m, b)
		}
	}
	for name := range body {
		if !known[name] {
			c.errorf("%s has no attribute %s", path, name)
		}
	}
}

func (c *tfChecker) value(path string, v any, typ string) {
	outer, inner, nested := strings.Cut(strings.TrimSuffix(typ, ")"), "(")
	fits := false
	switch x := v.(type) {
	case []any:
		fits = nested && outer != "map"
		for _, e := range x {
			c.value(path, e, inner)
		}
	case object:
		fits = nested && outer == "map"
		for _, e := range x {
			c.value(path, e, inner)
		}
	case bool:
		fits = typ == "bool" || typ == "string" // Terraform turns both into text exactly
	case float64:
		fits = typ == "number" || typ == "string"
	case string:
		c.references(path, x)
		_, notNumber := strconv.ParseFloat(x, 64)
		fits = typ == "string" || strings.HasPrefix(x, "${") && !nested ||
			typ == "bool" && (x == "true" || x == "false") || typ == "number" && notNumber == nil
	}
	if !fits {
		c.errorf("%s: %v is no %s", path, v, typ)
	}
}

var reference = regexp.MustCompile(`(?:^|[^$])\$\{((?:var|aws_\w+)\.[^}]+)\}`)

func (c *tfChecker) references(path, s string) {
	for _, m := range reference.FindAllStringSubmatch(s, -1) {
		parts := strings.Split(m[1], ".")
		if parts[0] == "var" {
			if c.Variable[parts[1]] == nil {
				c.errorf("%s: no variable %s", path, m[1])
			}
			continue
		}
		has := func(a tfAttribute) bool { return a.Name == parts[2] }
		if c.Resource[parts[0]][parts[1]] == nil || !slices.ContainsFunc(c.resources[parts[0]].Attributes, has) {
			c.errorf("%s: nothing is called %s", path, m[1])
		}
	}
}

func TestTerraformSchema(t *testing.T) {
	var doc struct{ Resources map[string]tfBlock }
	referencedata.ReadJSON(t, referencedata.TerraformProvider, &doc)
	judge := func(t *testing.T, body string) []string {
		t.Helper()
		c := tfChecker{resources: doc.Resources}
		if err := json.Unmarshal([]byte(body), &c); err != nil {
			t.Fatal(err)
		}
		c.check()
		return c.bad
	}
	for _, x := range rendertest.Topologies() {
		for _, b := range judge(t, rendered(t, x)["main.tf.json"]) {
			t.Errorf("%s: %s", x.Name, b)
		}
	}
	mistakes(t, "main.tf.json", map[string][2]string{
		"an unknown attribute": {`"cidr_block":`, `"cidr_blok":`},
		"a missing one":        {`"policy":`, `"name_prefix":`},
		"a mistyped one":       {`"enable_dns_support": true`, `"enable_dns_support": "yes"`},
		"a nested one":         {`"http_tokens":`, `"http_token":`},
		"a block too many":     {`"metadata_options": [`, `"metadata_options": [{},`},
		"a reference":          {`${aws_vpc.main.id}`, `${aws_vpc.main.ident}`},
		"within user data":     {`${aws_lb.internal.dns_name}`, `${aws_lb.internal.name_of_dns}`},
		"a variable":           {`${var.workers_max_size}`, `${var.max_size}`},
	}, judge)
}
