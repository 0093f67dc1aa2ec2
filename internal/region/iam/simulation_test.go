// SPDX-License-Identifier: Apache-2.0

package iam_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestSimulationsTellWhy compares the answer of the simulator with LocalStack's recording of
// test_simulate_principle_policy.
func TestSimulationsTellWhy(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	ctx := t.Context()
	role(t, c, "r")
	document := `{"Version": "2012-10-17", "Statement": {"Sid": "", "Effect": "Allow", "Action": "s3:PutObject", "Resource": "*"}}`
	made, err := c.CreatePolicy(ctx, &awsiam.CreatePolicyInput{PolicyName: new("put"), PolicyDocument: &document})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := c.AttachRolePolicy(ctx, &awsiam.AttachRolePolicyInput{RoleName: new("r"), PolicyArn: made.Policy.Arn}); err != nil {
		t.Fatal(err)
	}

	source := new("arn:aws:iam::000000000000:role/r")
	out, err := c.SimulatePrincipalPolicy(ctx, &awsiam.SimulatePrincipalPolicyInput{
		PolicySourceArn: source,
		ActionNames:     []string{"s3:PutObject", "s3:GetObjectVersion"},
		ResourceArns:    []string{"arn:aws:s3:::bucket"},
	})
	if err != nil {
		t.Fatal(err)
	}

	matched := []types.Statement{{
		SourcePolicyId:   new("put"),
		SourcePolicyType: "IAM Policy",
		StartPosition:    &types.Position{Line: 1, Column: 41},
		EndPosition:      &types.Position{Line: 1, Column: 113},
	}}
	result := func(action string, decision types.PolicyEvaluationDecisionType, statements []types.Statement) types.EvaluationResult {
		return types.EvaluationResult{
			EvalActionName:       &action,
			EvalDecision:         decision,
			EvalDecisionDetails:  map[string]types.PolicyEvaluationDecisionType{},
			EvalResourceName:     new("arn:aws:s3:::bucket"),
			MatchedStatements:    statements,
			MissingContextValues: []string{},
			ResourceSpecificResults: []types.ResourceSpecificResult{{
				EvalResourceDecision: decision,
				EvalResourceName:     new("arn:aws:s3:::bucket"),
				MatchedStatements:    statements,
				MissingContextValues: []string{},
			}},
		}
	}
	want := []types.EvaluationResult{
		result("s3:PutObject", types.PolicyEvaluationDecisionTypeAllowed, matched),
		result("s3:GetObjectVersion", types.PolicyEvaluationDecisionTypeImplicitDeny, []types.Statement{}),
	}
	ignored := cmpopts.IgnoreUnexported(types.EvaluationResult{}, types.ResourceSpecificResult{}, types.Statement{}, types.Position{})
	if d := cmp.Diff(want, out.EvaluationResults, ignored); d != "" {
		t.Error(d)
	}
}

// TestSimulationsTellOfDenialsAndKeys: a denial is the only statement that counts, policies of the request have numbers,
// and missing condition keys are named.
func TestSimulationsTellOfDenialsAndKeys(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	role(t, c, "r")
	in := &awsiam.SimulatePrincipalPolicyInput{
		PolicySourceArn: new("arn:aws:iam::000000000000:role/r"),
		ActionNames:     []string{"s3:PutObject"},
		PolicyInputList: []string{
			`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`,
			`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"s3:*","Resource":"*","Condition":{"StringEquals":{"aws:RequestedRegion":"eu-west-1"}}}]}`,
		},
	}

	out, err := c.SimulatePrincipalPolicy(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}

	first := out.EvaluationResults[0]
	if first.EvalDecision != types.PolicyEvaluationDecisionTypeAllowed || len(first.MatchedStatements) != 1 ||
		aws.ToString(first.MatchedStatements[0].SourcePolicyId) != "PolicyInputList.1" ||
		!cmp.Equal(first.MissingContextValues, []string{"aws:requestedregion"}) || first.ResourceSpecificResults != nil {
		t.Errorf("without the condition key: %+v", first)
	}

	in.ContextEntries = []types.ContextEntry{{
		ContextKeyName:   new("aws:RequestedRegion"),
		ContextKeyType:   types.ContextKeyTypeEnumString,
		ContextKeyValues: []string{"eu-west-1"},
	}}

	out, err = c.SimulatePrincipalPolicy(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}

	second := out.EvaluationResults[0]
	if second.EvalDecision != types.PolicyEvaluationDecisionTypeExplicitDeny || len(second.MatchedStatements) != 1 ||
		aws.ToString(second.MatchedStatements[0].SourcePolicyId) != "PolicyInputList.2" || len(second.MissingContextValues) != 0 {
		t.Errorf("with the condition key: %+v", second)
	}
}

// TestPoliciesOfServiceLinkedRoles: a service-linked role has the policy of its service (LocalStack's recordings of
// test_service_role_lifecycle), which no other role or user can have.
func TestPoliciesOfServiceLinkedRoles(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	ctx := t.Context()
	role(t, c, "r")
	for service, want := range map[string]string{
		"autoscaling.amazonaws.com":          "AutoScalingServiceRolePolicy",
		"elasticloadbalancing.amazonaws.com": "AWSElasticLoadBalancingServiceRolePolicy",
		"eks.amazonaws.com":                  "AmazonEKSServiceRolePolicy",
		"spot.amazonaws.com":                 "AWSEC2SpotServiceRolePolicy",
	} {
		made, err := c.CreateServiceLinkedRole(ctx, &awsiam.CreateServiceLinkedRoleInput{AWSServiceName: &service})
		if err != nil {
			t.Fatal(err)
		}

		list, err := c.ListAttachedRolePolicies(ctx, &awsiam.ListAttachedRolePoliciesInput{RoleName: made.Role.RoleName})
		arn := "arn:aws:iam::aws:policy/aws-service-role/" + want
		if err != nil || len(list.AttachedPolicies) != 1 || *list.AttachedPolicies[0].PolicyArn != arn || *list.AttachedPolicies[0].PolicyName != want {
			t.Errorf("%s: %+v, %v, want %s", service, list, err, arn)
		}

		policy, err := c.GetPolicy(ctx, &awsiam.GetPolicyInput{PolicyArn: &arn})
		if err != nil || *policy.Policy.Path != "/aws-service-role/" || *policy.Policy.AttachmentCount != 1 {
			t.Errorf("GetPolicy: %+v, %v", policy, err)
		}

		_, err = c.AttachRolePolicy(ctx, &awsiam.AttachRolePolicyInput{RoleName: new("r"), PolicyArn: &arn})
		if code(err) != "PolicyNotAttachable: Cannot attach a Service Role Policy to a Customer Role." && code(err) != "PolicyNotAttachable" {
			t.Errorf("attached to another role: %v, want PolicyNotAttachable", err)
		}

		_, err = c.GetPolicyVersion(ctx, &awsiam.GetPolicyVersionInput{PolicyArn: &arn, VersionId: new("v1")})
		if code(err) != "NotImplemented" {
			t.Errorf("its document: %v, want NotImplemented", err)
		}
	}
}
