// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// policyTemplate returns a template whose volume has a deletion policy and an update replace policy.
func policyTemplate(deletion, replace string) string {
	return `
Parameters: {Stage: {Type: String, Default: prod}, Policy: {Type: String, Default: Retain}}
Mappings: {Regions: {r-1: {policy: Snapshot, wrong: Never}}}
Conditions: {Prod: !Equals [!Ref Stage, prod], Never: !Equals [!Ref Stage, never]}
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}
  Volume: {Type: AWS::EC2::Volume, DeletionPolicy: ` + deletion + `, UpdateReplacePolicy: ` + replace + `}
`
}

// policyScope returns a scope of the template with the default values of its parameters.
func policyScope(t *testing.T, body, stage string) Scope {
	t.Helper()
	tpl, err := Parse(body, testCatalog{})
	if err != nil {
		t.Fatal(err)
	}
	return Scope{
		Template:   tpl,
		Parameters: map[string]ParameterValue{"Stage": {Given: stage}, "Policy": {Given: "Retain"}},
		Pseudo:     map[string]any{"AWS::Region": "r-1", "AWS::AccountId": "1", "AWS::Partition": "aws"},
		Conditions: map[string]bool{},
	}
}

// TestPolicyFunctions: CloudFormation evaluates these functions in DeletionPolicy and UpdateReplacePolicy.
func TestPolicyFunctions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deletion, replace, stage string
		want                     Policies
	}{
		"strings":         {"RetainExceptOnCreate", "Delete", "prod", Policies{"RetainExceptOnCreate", "Delete"}},
		"parameter":       {"!Ref Policy", "!Ref Policy", "prod", Policies{"Retain", "Retain"}},
		"true condition":  {"!If [Prod, Retain, Delete]", "!If [Prod, Snapshot, Delete]", "prod", Policies{"Retain", "Snapshot"}},
		"false condition": {"!If [Prod, Retain, Delete]", "!If [Prod, Snapshot, Delete]", "dev", Policies{"Delete", "Delete"}},
		"mapping":         {`!FindInMap [Regions, !Ref AWS::Region, policy]`, "Delete", "prod", Policies{"Snapshot", "Delete"}},
		"text":            {"!Sub '${Policy}'", "!Join ['', [Ret, ain]]", "prod", Policies{"Retain", "Retain"}},
		"selection":       {"!Select [1, [Delete, Snapshot]]", "!If [Never, Delete, !Ref Policy]", "prod", Policies{"Snapshot", "Retain"}},
	} {
		s := policyScope(t, policyTemplate(c.deletion, c.replace), c.stage)
		if err := s.CheckPolicies(testCatalog{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := s.EvalPolicies("Volume")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestUnsupportedPolicyFunctions: what depends on a resource or on another stack is refused with the template.
func TestUnsupportedPolicyFunctions(t *testing.T) {
	t.Parallel()
	const unsupported = "Template error: Unsupported expression for DeletionPolicy in resource Volume: "
	for policy, want := range map[string]string{
		"[Retain]":                                "Template format error: Every DeletionPolicy member must be a string.",
		"{Policy: Retain}":                        "Template format error: Every DeletionPolicy member must be a string.",
		"Never":                                   "Template format error: Unrecognized DeletionPolicy Never for resource Volume",
		"!GetAtt Vpc.VpcId":                       unsupported + "Fn::GetAtt",
		"!Sub '${Vpc.VpcId}'":                     unsupported + "Fn::GetAtt",
		"!If [Prod, !GetAtt Vpc.VpcId, Retain]":   unsupported + "Fn::GetAtt",
		"!Ref Vpc":                                unsupported + "Ref to the resource Vpc",
		"!Ref Volume":                             unsupported + "Ref to the resource Volume",
		"!Sub '${Vpc}'":                           unsupported + "Ref to the resource Vpc",
		"!ImportValue other":                      unsupported + "Fn::ImportValue",
		"!Select [0, !GetAZs '']":                 unsupported + "Fn::GetAZs",
		"!Select [0, !Split [',', Retain]]":       unsupported + "Fn::Split",
		"!Base64 Retain":                          unsupported + "Fn::Base64",
		"!If [Prod, Retain, !Ref AWS::NoValue]":   "Template error: AWS::NoValue is not supported for DeletionPolicy or UpdateReplacePolicy",
		"!Ref AWS::StackName":                     "Template error: AWS::StackName is not supported for DeletionPolicy or UpdateReplacePolicy",
		"!Ref Nothing":                            "Template format error: Unresolved resource dependencies [Nothing] in the Resources block of the template",
		"!If [Nothing, Retain, Delete]":           "Template error: unresolved condition dependency Nothing in Fn::If",
		"!Select [2, [Retain, Delete]]":           "Template error: Fn::Select cannot select nonexistent value at index 2",
		"!Sub ['${p}', {p: !ImportValue policy}]": unsupported + "Fn::ImportValue",
	} {
		_, err := Parse(policyTemplate(policy, "Retain"), testCatalog{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", policy, err, want)
		}
	}
}

// TestInvalidPolicyValues: the value of a function is checked when the parameters have values.
func TestInvalidPolicyValues(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		policyTemplate("!Ref Stage", "Retain"):                                          "Template format error: Unrecognized DeletionPolicy prod for resource Volume",
		policyTemplate("Retain", "!Sub '${Policy}ExceptOnCreate'"):                      "Template format error: Unrecognized UpdateReplacePolicy RetainExceptOnCreate for resource Volume",
		policyTemplate("!FindInMap [Regions, r-1, wrong]", "Retain"):                    "Template format error: Unrecognized DeletionPolicy Never for resource Volume",
		policyTemplate("!FindInMap [Regions, !Ref Stage, policy]", "Retain"):            "Template error: Unable to get mapping for Regions::prod::policy",
		policyTemplate("!If [Prod, [Retain], Delete]", "Retain"):                        "Template format error: Every DeletionPolicy member must be a string.",
		policyTemplate("Retain", "Retain") + snapshotOf("!If [Prod, Snapshot, Delete]"): "Template error: resource type AWS::EC2::VPC does not support deletion policy Snapshot",
	} {
		err := policyScope(t, body, "prod").CheckPolicies(testCatalog{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", body, err, want)
		}
	}

	disabled := policyTemplate("Retain", "Retain") +
		"  Other: {Type: AWS::EC2::Volume, Condition: Never, DeletionPolicy: !Ref Stage}\n"
	if err := policyScope(t, disabled, "prod").CheckPolicies(testCatalog{}); err != nil {
		t.Errorf("a resource that is not created: %v", err)
	}
}

// snapshotOf returns a VPC with a deletion policy.
func snapshotOf(policy string) string {
	return "  Other: {Type: AWS::EC2::VPC, DeletionPolicy: " + policy + "}\n"
}
