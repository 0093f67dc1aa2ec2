// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testCatalog has the types that the templates of this package's tests use.
type testCatalog struct{}

func (testCatalog) HasType(name string) bool {
	return name == "AWS::EC2::VPC" || name == "AWS::EC2::Subnet" || name == "AWS::EC2::Volume"
}

func (testCatalog) HasAttribute(_, attribute string) bool {
	return attribute == "VpcId" || attribute == "CidrBlock"
}

func (testCatalog) SupportsSnapshot(name string) bool { return name == "AWS::EC2::Volume" }

// labScope evaluates with two parameters, a mapping, two conditions and two resources, one of which is not known yet.
func labScope(tb testing.TB) Scope {
	tb.Helper()
	tpl, err := Parse(`
Parameters: {Name: {Type: String}, List: {Type: CommaDelimitedList}, Empty: {Type: String, Default: ""}}
Mappings: {M: {k: {v: mapped, l: [a, b]}}}
Conditions: {Yes: !Equals [!Ref Name, web], No: !Not [!Condition Yes]}
Resources: {Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}, New: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.1.0.0/16}}}
`, testCatalog{})
	if err != nil {
		tb.Fatal(err)
	}
	known := func(logical string, v any) (any, error) {
		if logical == "New" {
			return UnknownValue{}, nil
		}
		return v, nil
	}
	return Scope{
		Template: tpl, Parameters: map[string]ParameterValue{"Name": {Given: "web"}, "List": {Given: "x, y"}, "Empty": {}}, Zones: []string{"r-1a", "r-1b"},
		Pseudo:           map[string]any{"AWS::Region": "r-1", "AWS::StackName": "s", "AWS::NoValue": NoValue{}},
		Conditions:       map[string]bool{},
		ResolveResource:  func(logical string) (any, error) { return known(logical, "vpc-1") },
		ResolveAttribute: func(logical, name string) (any, error) { return known(logical, "attr:"+name) },
		ResolveExport: func(name string) (any, error) {
			if name != "there" {
				return nil, ValidationError("No export named %s found.", name)
			}
			return "imported", nil
		},
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	s := labScope(t)
	for _, c := range []struct{ in, want string }{
		{`{"Ref":"Name"}`, `"web"`},
		{`{"Ref":"List"}`, `["x","y"]`},
		{`{"Ref":"Vpc"}`, `"vpc-1"`},
		{`{"Ref":"AWS::Region"}`, `"r-1"`},
		{`{"a":{"Ref":"AWS::NoValue"},"b":[1,{"Ref":"AWS::NoValue"}]}`, `{"b":[1]}`},
		{`{"Fn::GetAtt":["Vpc","CidrBlock"]}`, `"attr:CidrBlock"`},
		{`{"Fn::GetAtt":"Vpc.CidrBlock"}`, `"attr:CidrBlock"`},
		{`{"Fn::Sub":"${AWS::StackName}-${Vpc}-${Vpc.CidrBlock}-${!Name}-$Name-${Name}"}`, `"s-vpc-1-attr:CidrBlock-${Name}-$Name-web"`},
		{`{"Fn::Sub":["${a}${Name}",{"a":{"Ref":"Vpc"}}]}`, `"vpc-1web"`},
		{`{"Fn::Sub":["${a}",{"a":"${!x}"}]}`, `"${!x}"`},
		{`{"Fn::Join":["-",["a",1,true,{"Ref":"Name"}]]}`, `"a-1-true-web"`},
		{`{"Fn::Join":[",",{"Ref":"List"}]}`, `"x,y"`},
		{`{"Fn::Join":["",[]]}`, `""`},
		{`{"Fn::Select":["1",{"Ref":"List"}]}`, `"y"`},
		{`{"Fn::Select":[0,{"Fn::GetAZs":""}]}`, `"r-1a"`},
		{`{"Fn::Split":["|","a||b"]}`, `["a","","b"]`},
		{`{"Fn::If":["Yes","a",{"Fn::GetAtt":"bad"}]}`, `"a"`},
		{`{"Fn::If":["No","a",{"Ref":"AWS::NoValue"}]}`, `{}`},
		{`{"Fn::Equals":["1",1]}`, `true`},
		{`{"Fn::And":[{"Condition":"Yes"},{"Fn::Not":[{"Condition":"No"}]}]}`, `true`},
		{`{"Fn::Or":[{"Condition":"No"},{"Fn::Equals":[{"Ref":"Empty"},""]}]}`, `true`},
		{`{"Fn::FindInMap":["M","k","v"]}`, `"mapped"`},
		{`{"Fn::FindInMap":["M","k","l"]}`, `["a","b"]`},
		{`{"Fn::Base64":"hello"}`, `"aGVsbG8="`},
		{`{"Fn::GetAZs":{"Ref":"AWS::Region"}}`, `["r-1a","r-1b"]`},
		{`{"Fn::ImportValue":{"Fn::Sub":"there"}}`, `"imported"`},
		{`{"Fn::Cidr":["10.0.0.0/16",2,8]}`, `["10.0.0.0/24","10.0.1.0/24"]`},
		{`{"Fn::Cidr":["10.0.0.0/24","4","6"]}`, `["10.0.0.0/26","10.0.0.64/26","10.0.0.128/26","10.0.0.192/26"]`},
		{`{"Fn::Cidr":["2001:db8::/56",2,64]}`, `["2001:db8::/64","2001:db8:0:1::/64"]`},
		{`{"Condition":{"StringEquals":{"a":"b"}}}`, `{"Condition":{"StringEquals":{"a":"b"}}}`}, // a policy's, no function
		{`{"Fn::Join":["",["a",{"Ref":"New"}]]}`, `"unknown"`},
		{`{"Fn::Sub":"a${New.VpcId}"}`, `"unknown"`},
		{`{"Fn::Base64":{"Ref":"New"}}`, `"unknown"`},
	} {
		var in any
		if err := json.Unmarshal([]byte(c.in), &in); err != nil {
			t.Fatal(err)
		}
		got, err := s.Eval(in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if IsUnknown(got) {
			got = "unknown"
		}
		b, err := json.Marshal(got)
		if err != nil || string(b) != c.want {
			t.Errorf("%s is %s, want %s (%v)", c.in, b, c.want, err)
		}
	}
}

func TestFunctionsRefuse(t *testing.T) {
	t.Parallel()
	s := labScope(t)
	for in, want := range map[string]string{
		`{"Ref":["Name"]}`:                          "every Ref object must have a single String value",
		`{"Fn::Join":["-"]}`:                        "every Fn::Join object requires two parameters",
		`{"Fn::Join":["-",[["a"]]]}`:                "every Fn::Join object requires two parameters",
		`{"Fn::Select":[2,["a","b"]]}`:              "Fn::Select cannot select nonexistent value at index 2",
		`{"Fn::Select":["x",["a"]]}`:                "Fn::Select requires a list argument",
		`{"Fn::Split":["","a"]}`:                    "every Fn::Split object requires two parameters",
		`{"Fn::If":["Maybe",1,2]}`:                  "Unresolved condition dependency Maybe",
		`{"Fn::If":["Yes",1]}`:                      "Fn::If requires a list argument with three elements",
		`{"Fn::And":[{"Condition":"Yes"}]}`:         "at least 2",
		`{"Fn::FindInMap":["M","k","z"]}`:           "Unable to get mapping for M::k::z",
		`{"Fn::Base64":["a"]}`:                      "every Fn::Base64 object must have a String-typed value",
		`{"Fn::ImportValue":"gone"}`:                "No export named gone found",
		`{"Fn::Cidr":["10.0.0.0/24",5,6]}`:          "has no room for 5 blocks of /26",
		`{"Fn::Cidr":["10.0.0.0/24",1,12]}`:         "do not fit",
		`{"Fn::Sub":["${a}",{"a":["l"]}]}`:          "does not resolve to a string",
		`{"Fn::Sub":["a"]}`:                         "don't specify expected arguments",
		`{"Fn::GetAtt":["Vpc"]}`:                    "every Fn::GetAtt object requires two non-empty parameters",
		`{"Fn::Transform":{"Name":"AWS::Include"}}`: "is not known",
	} {
		var v any
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Eval(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func TestTemplatesAreRefused(t *testing.T) {
	t.Parallel()
	const one = `Resources: {Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}}`
	for body, want := range map[string]string{
		`{`:                     "JSON not well-formed",
		`a: [`:                  "YAML not well-formed",
		`{} {}`:                 "JSON not well-formed",
		`Resources: {}`:         "At least one Resources member must be defined",
		one + "\nStuff: 1":      "Invalid template property or properties [Stuff]",
		one + "\nTransform: x":  "does not support macros",
		one + "\nx: !Nothing 1": "the tag !Nothing is not known",
		`Resources: {A: {Type: AWS::Nothing::AtAll}}`:                                                 "Unrecognized resource types: [AWS::Nothing::AtAll]",
		`Resources: {A-b: {Type: AWS::EC2::VPC}}`:                                                     "Resource name A-b is non alphanumeric",
		`Resources: {A: {Type: AWS::EC2::VPC, DeletionPolicy: Never}}`:                                "Unrecognized DeletionPolicy Never for resource A",
		`Resources: {A: {Type: AWS::EC2::VPC, Propertys: {}}}`:                                        "Invalid template resource property 'Propertys'",
		`Resources: {A: {Type: AWS::EC2::VPC, Properties: {CidrBlock: !Ref B}}}`:                      "Unresolved resource dependencies [B] in the Resources block",
		`Resources: {A: {Type: AWS::EC2::VPC, DependsOn: B}}`:                                         "Unresolved resource dependencies [B]",
		`Resources: {A: {Type: AWS::EC2::VPC, DependsOn: B}, B: {Type: AWS::EC2::VPC, DependsOn: A}}`: "Circular dependency between resources: [A, B]",
		`Resources: {A: {Type: AWS::EC2::VPC, Condition: C}}`:                                         "Unresolved condition dependency C",
		one + "\nConditions: {A: !Not [!Condition B], B: !Not [!Condition A]}":                        "Circular dependencies for condition",
		one + "\nOutputs: {O: {Value: !GetAtt Vpc.Nope}}":                                             "resource Vpc does not support attribute type Nope in Fn::GetAtt",
		one + "\nOutputs: {O: {}}":                                                                    "Every Outputs member must contain a Value object",
		one + "\nParameters: {P: {Type: Strin}}":                                                      "Unrecognized parameter type: Strin",
	} {
		if _, err := Parse(body, testCatalog{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  gives %v, want %q", body, err, want)
		}
	}
}

// TestTemplateQuotas: a template has what CloudFormation's quotas allow, and not one more.
func TestTemplateQuotas(t *testing.T) {
	t.Parallel()
	many := func(n int, of any) Object {
		out := Object{}
		for i := range n {
			out["X"+strconv.Itoa(i)] = of
		}
		return out
	}
	text := Object{"a": "b"}
	vpc := Object{"Type": "AWS::EC2::VPC"}
	for _, c := range []struct {
		section string
		most    int
		make    func(n int) any
		want    string
	}{
		{"Resources", 500, func(n int) any { return many(n, vpc) }, "Template format error: Number of resources, 501, is greater than maximum allowed, 500"},
		{"Outputs", 200, func(n int) any { return many(n, Object{"Value": "x"}) }, "Number of outputs, 201, is greater"},
		{"Parameters", 200, func(n int) any { return many(n, Object{"Type": "String"}) }, "Number of parameters, 201, is greater"},
		{"Mappings", 200, func(n int) any { return many(n, Object{"k": text}) }, "Number of mappings, 201, is greater"},
		{"Mappings", 200, func(n int) any { return Object{"M": many(n, text)} }, "Number of attributes of mapping M, 201, is greater"},
		{"Mappings", 200, func(n int) any { return Object{"M": Object{"k": many(n, "x")}} }, "Number of attributes of mapping M, 201, is greater"},
		{"Description", 1024, func(n int) any { return strings.Repeat("x", n) }, "length is greater than 1024"},
	} {
		for n, want := range map[int]string{c.most: "", c.most + 1: c.want} {
			body := Object{"Resources": Object{"Vpc": vpc}}
			body[c.section] = c.make(n)
			text, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(string(text), testCatalog{})
			if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%d %s: %v, want %q", n, c.section, err, want)
			}
		}
	}
}

func TestParameterChecks(t *testing.T) {
	t.Parallel()
	tpl, err := Parse(`
Resources: {Vpc: {Type: AWS::EC2::VPC}}
Parameters:
  Number: {Type: Number, MinValue: 2, MaxValue: "4"}
  Text: {Type: String, MinLength: 2, MaxLength: 3, AllowedPattern: "[a-z]+"}
  One: {Type: String, AllowedValues: [a, b], ConstraintDescription: a or b}
  Many: {Type: List<Number>}
  Long: {Type: String}
`, testCatalog{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value, want string }{
		{"Number", "3", ""},
		{"Number", "x", "must be a number"},
		{"Number", "5", "between its MinValue and its MaxValue"},
		{"Text", "ab", ""},
		{"Text", "a", "at least 2 characters"},
		{"Text", "abcd", "at most 3 characters"},
		{"Text", "A1", "must match pattern [a-z]+"},
		{"One", "b", ""},
		{"One", "c", "failed to satisfy constraint: a or b"},
		{"Many", "1, 2", ""},
		{"Long", strings.Repeat("x", 4096), ""},
		{"Long", strings.Repeat("ö", 2049), "at most 4096 bytes"},
		{"Many", "1,x", "must be a number"},
	} {
		got := ""
		if err := tpl.Parameters[c.name].CheckValue(c.name, c.value); err != nil {
			got = err.Error()
		}
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s=%s: %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

func TestYAMLIsJSON(t *testing.T) {
	t.Parallel()
	const body = `
AWSTemplateFormatVersion: 2010-09-09
Parameters: {P: {Type: Number, Default: 1}}
Conditions: {C: !Equals [!Ref P, 1]}
Resources:
  Vpc:
    Type: AWS::EC2::VPC
    Condition: C
    Properties:
      CidrBlock: !Sub "10.${P}.0.0/16"
      EnableDnsSupport: true
      Tags: [{Key: a, Value: !If [C, !Select [0, [x]], !Ref "AWS::NoValue"]}]
Outputs: {O: {Value: !GetAtt Vpc.VpcId}}
`
	const same = `{"AWSTemplateFormatVersion":"2010-09-09","Parameters":{"P":{"Type":"Number","Default":1}},
"Conditions":{"C":{"Fn::Equals":[{"Ref":"P"},1]}},
"Resources":{"Vpc":{"Type":"AWS::EC2::VPC","Condition":"C","Properties":{"CidrBlock":{"Fn::Sub":"10.${P}.0.0/16"},"EnableDnsSupport":true,
"Tags":[{"Key":"a","Value":{"Fn::If":["C",{"Fn::Select":[0,["x"]]},{"Ref":"AWS::NoValue"}]}}]}}},
"Outputs":{"O":{"Value":{"Fn::GetAtt":["Vpc","VpcId"]}}}}`
	a, err := Parse(body, testCatalog{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse(same, testCatalog{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("YAML is not as JSON (-json +yaml):\n%s", diff)
	}
}

// A template of any text is read or refused; what is read can be evaluated or is refused too.
func FuzzParse(f *testing.F) {
	f.Add(`{"Resources":{"A":{"Type":"AWS::EC2::VPC","Properties":{"CidrBlock":{"Fn::Sub":"${AWS::Region}${!x}"}}}}}`)
	f.Add("Resources:\n  A: {Type: AWS::EC2::VPC, Properties: &p {CidrBlock: !Join [\"\", [a, !Ref AWS::Region]]}}\n")
	f.Add("Resources: {A: &a {Type: AWS::EC2::VPC, Metadata: *a}}")
	f.Fuzz(func(t *testing.T, body string) {
		tpl, err := Parse(body, testCatalog{})
		if err != nil {
			return
		}
		s := labScope(t)
		s.Template, s.Parameters = tpl, map[string]ParameterValue{}
		for _, r := range tpl.Resources {
			v, err := s.Eval(r.Properties)
			if err != nil {
				continue
			}
			CanonicalText(v)
		}
		for name := range tpl.Conditions {
			_, _ = s.EvalCondition(name) // it may be refused
		}
	})
}

// Any value is evaluated to one that is the same when it is evaluated again, or refused.
func FuzzEval(f *testing.F) {
	f.Add(`{"Fn::Join":["-",["a",{"Ref":"Name"}]]}`)
	f.Add(`{"Fn::Cidr":["10.0.0.0/16",200,"4"]}`)
	f.Add(`{"Fn::Sub":["${a}${!b}${Vpc.x}",{"a":"${!c}"}]}`)
	f.Add(`{"Fn::Select":[-1,{"Fn::Split":[",","a,b"]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		s := labScope(t)
		once, err := s.Eval(v)
		if err != nil {
			return
		}
		FindReferences(v)
		again, err := s.Eval(v)
		if err != nil || CanonicalText(once) != CanonicalText(again) {
			t.Errorf("%s is %s, then %s (%v)", text, CanonicalText(once), CanonicalText(again), err)
		}
	})
}

// A document reads the same in YAML as in JSON, because every JSON document is a YAML document.
func FuzzYAML(f *testing.F) {
	f.Add(`{"a":{"Ref":"b"},"c":[1,true,null,"x"]}`)
	f.Add(`{"a":"${x}","b":"2010-09-09","c":"1e3","d":-1.5}`)
	f.Fuzz(func(t *testing.T, text string) {
		fromJSON, err := decodeTemplate(text)
		if err != nil || !strings.HasPrefix(strings.TrimSpace(text), "{") {
			return
		}

		plain, err := json.Marshal(fromJSON) // without what YAML does not allow, such as tabs and repeated keys
		if err != nil {
			return
		}

		fromYAML, err := decodeYAML(string(plain))
		if err != nil {
			return // nested too deeply, or a control character
		}

		if CanonicalText(fromYAML) != CanonicalText(fromJSON) {
			t.Errorf("%s is %s in YAML and %s in JSON", plain, CanonicalText(fromYAML), CanonicalText(fromJSON))
		}
	})
}

// Fn::Sub finds the same names when it collects references as when it evaluates them.
func FuzzSub(f *testing.F) {
	f.Add("${Vpc}-${!literal}-${Vpc.CidrBlock}-${AWS::Region}")
	f.Add("$${${}{${a.b.c}")
	f.Fuzz(func(t *testing.T, format string) {
		asked := map[string]bool{}
		s := labScope(t)
		s.Pseudo = nil
		s.Template = &Template{}
		s.ResolveResource = func(name string) (any, error) { asked[name] = true; return "x", nil }
		s.ResolveAttribute = func(name, attribute string) (any, error) {
			asked[name+"."+attribute] = true
			return "x", nil
		}

		if _, err := s.Eval(Object{"Fn::Sub": format}); err != nil {
			return
		}

		found := map[string]bool{}
		for _, r := range FindReferences(Object{"Fn::Sub": format}) {
			found[r.String()] = true
		}

		if diff := cmp.Diff(asked, found); diff != "" {
			t.Errorf("%q: -evaluated +found\n%s", format, diff)
		}
	})
}
