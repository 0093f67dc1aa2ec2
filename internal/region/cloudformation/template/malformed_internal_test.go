// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strings"
	"testing"
)

// TestMalformedFunctionsAreRefused: a template with a malformed function is refused as a whole, even if the function is in a
// branch that is not taken. What is not known before the evaluation is accepted.
func TestMalformedFunctionsAreRefused(t *testing.T) {
	t.Parallel()
	const (
		getAtt = "Template error: every Fn::GetAtt object requires two non-empty parameters"
		sel    = "Template error: Fn::Select requires a list argument with two elements: an integer index and a list"
	)

	for value, want := range map[string]string{
		`!If [Missing, a, b]`:                  "Template error: unresolved condition dependency Missing in Fn::If",
		`!If [Always, a]`:                      "Template error: Fn::If requires a list argument with three elements",
		`!If [Always, a, "Fn::GetAtt": [Vpc]]`: getAtt,
		`{"Fn::GetAtt": [Vpc, ""]}`:            getAtt,
		`{"Fn::GetAtt": Vpc}`:                  getAtt,
		`{"Fn::GetAtt": [Vpc, !Ref P]}`:        "",
		`!Select [x, [a]]`:                     sel,
		`!Select [0, a]`:                       sel,
		`!Select [0]`:                          sel,
		`!Select [1, [a]]`:                     "Template error: Fn::Select cannot select nonexistent value at index 1",
		`!Select [-1, !Split [",", a]]`:        "Template error: Fn::Select cannot select nonexistent value at index -1",
		`!Select ["0", [a]]`:                   "",
		`!Select [!Ref P, !GetAZs ""]`:         "",
		`!If [Always, a, !Join [b]]`: "Template error: every Fn::Join object requires two parameters, (1) a string " +
			"delimiter and (2) a list of strings to be joined",
		`!Select [0, !Split [a]]`: "Template error: every Fn::Split object requires two parameters, (1) a string delimiter " +
			"and (2) a string to be split or a function that returns a string to be split.",
		`!FindInMap [M, C, c]`:      "Template error: Unable to get mapping for M::C::c",
		`!FindInMap [N, B, c]`:      "Template error: Unable to get mapping for N::B::c",
		`!FindInMap [M, B, c]`:      "",
		`!FindInMap [M, !Ref P, c]`: "",
		`!FindInMap [M, B]`:         "Template error: every Fn::FindInMap object requires three parameters",
		`{"Fn::Unknown": [a]}`:      "Template error: Encountered unsupported function: Fn::Unknown",
		`a}}, Third: {Type: AWS::EC2::VPC, Condition: Always, Properties: {CidrBlock: a`: "",
	} {
		_, err := Parse(`
Parameters: {P: {Type: String}}
Conditions: {Always: !Equals [a, a]}
Mappings: {M: {B: {c: d}}}
Resources: {Vpc: {Type: AWS::EC2::VPC}, Other: {Type: AWS::EC2::VPC, Properties: {CidrBlock: `+value+`}}}
`, testCatalog{})
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", value, err, want)
		}
	}
}

// TestMalformedSectionsAreRefused has the messages of LocalStack's recordings of AWS test_mapping_with_invalid_refs,
// test_mapping_minimum_nesting_depth, test_validate_equals_args_len and test_invalid_output_structure.
func TestMalformedSectionsAreRefused(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{
		`Mappings: {M: {B: {c: !Ref P}}}`:           "Template format error: Every Mappings attribute must be a String or a List.",
		`Mappings: {M: {B: {c: [!Ref P]}}}`:         "Template format error: Every Mappings attribute must be a String or a List.",
		`Mappings: {M: {B: {c: [a, b]}}}`:           "",
		`Mappings: {M: {A: a}}`:                     "Template format error: Every Mappings member A must be a map",
		`Conditions: {C: !Equals [a]}`:              "Template error: every Fn::Equals object requires a list of 2 string parameters.",
		`Conditions: {C: !Not [!Equals [a]]}`:       "Template error: every Fn::Equals object requires a list of 2 string parameters.",
		`Conditions: {C: !And [!Equals [a, b]]}`:    "Template error: every Fn::And object requires a list of at least 2",
		`Conditions: {C: !Not [!Equals [a, b]]}`:    "",
		`Outputs: {MyOutput: {Value: null}}`:        "[/Outputs/MyOutput/Value] 'null' values are not allowed in templates",
		`Outputs: {MyOutput: {Description: a}}`:     "Template format error: Every Outputs member must contain a Value object",
		`Outputs: {MyOutput: {Value: !GetAtt Vpc}}`: "Template error: every Fn::GetAtt object requires two non-empty parameters",
	} {
		_, err := Parse("Parameters: {P: {Type: String}}\nResources: {Vpc: {Type: AWS::EC2::VPC}}\n"+section+"\n", testCatalog{})
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", section, err, want)
		}
	}
}
