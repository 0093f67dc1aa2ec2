// SPDX-License-Identifier: Apache-2.0

package iam_test

import (
	"fmt"
	"strings"
	"testing"

	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// TestMalformedPolicies compares the messages of the region with those of AWS that moto's tests of IAM policies
// record.
func TestMalformedPolicies(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	statement := func(text string) string { return `{"Version":"2012-10-17","Statement":` + text + `}` }

	for document, want := range map[string]string{
		`not json`: "Syntax errors in policy.",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*"}}`:                                                     "must be version 2012-10-17 or greater.",
		`{"Version":"2008-10-17","Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*"}}`:                              "must be version 2012-10-17 or greater.",
		statement(`{"Effect":"Allow","Action":[],"Resource":"*"}`):                                                             "Policy statement must contain actions.",
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":[]}`):                                                          "Policy statement must contain resources.",
		statement(`{"Effect":"Allow","Action":"s3:List:Bucket","Resource":"*"}`):                                               "Actions/Condition can contain only one colon.",
		statement(`{"Effect":"Allow","Action":"s3","Resource":"*"}`):                                                           "must be prefaced by a vendor",
		statement(`{"Effect":"Allow","NotAction":"s3:*","Action":[],"Resource":"*"}`):                                          "Syntax errors in policy.",
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":"*","NotResource":[]}`):                                        "Syntax errors in policy.",
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws::::bucket"}`):                                         "The policy failed legacy parsing.",
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":"bucket"}`):                                                    `Resource bucket must be in ARN format or "*".`,
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:us-east-1::bucket"}`):                              "region information",
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":"arn:bogus:s3:::bucket"}`):                                     `Partition "bogus" is not valid for resource`,
		statement(`{"Effect":"Allow","Action":"iam:*","Resource":"arn:aws:iam::000000000000:bogus/x"}`):                        "IAM resource path must either be",
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":"*","Condition":{"DateLessThan":{"aws:CurrentTime":"soon"}}}`): "The policy failed legacy parsing.",
	} {
		_, err := c.CreatePolicy(t.Context(), &awsiam.CreatePolicyInput{PolicyName: new("p"), PolicyDocument: &document})
		if code(err) != "MalformedPolicyDocument" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", document, err, want)
		}
	}

	for i, good := range []string{
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:us-west-2:123456789012:accesspoint/a/object/*"}`),
		statement(`{"Effect":"Allow","Action":"iam:*","Resource":["arn:aws:iam::000000000000:role/x*","arn:aws:iam::*:*","arn:aws:s3:::b/*"]}`),
		statement(`{"Effect":"Allow","Action":"s3:*","Resource":"*","Condition":{"DateLessThan":{"aws:CurrentTime":"2026-01-01T00:00:00Z"}}}`),
	} {
		if _, err := c.CreatePolicy(t.Context(), &awsiam.CreatePolicyInput{PolicyName: new(fmt.Sprint("good", i)), PolicyDocument: &good}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}

	_, err := c.CreateRole(t.Context(), &awsiam.CreateRoleInput{RoleName: new("bad"), AssumeRolePolicyDocument: new("{")})
	if code(err) != "MalformedPolicyDocument" || !strings.Contains(err.Error(), "This policy contains invalid Json") {
		t.Errorf("a trust policy: %v", err)
	}

	role(t, c, "r")
	if _, err := c.AttachRolePolicy(t.Context(), &awsiam.AttachRolePolicyInput{RoleName: new("r"), PolicyArn: new(strings.Repeat("x", 20))}); code(err) != "ValidationError" {
		t.Errorf("no ARN: %v", err)
	}
}

func TestServiceLinkedRoles(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	for service, want := range map[string]string{
		"autoscaling.amazonaws.com":          "AWSServiceRoleForAutoScaling",
		"elasticloadbalancing.amazonaws.com": "AWSServiceRoleForElasticLoadBalancing",
		"spot.amazonaws.com":                 "AWSServiceRoleForEC2Spot",
		"eks-nodegroup.amazonaws.com":        "AWSServiceRoleForAmazonEKSNodegroup",
	} {
		out, err := c.CreateServiceLinkedRole(t.Context(), &awsiam.CreateServiceLinkedRoleInput{AWSServiceName: &service})
		if err != nil || *out.Role.RoleName != want {
			t.Errorf("%s: %+v, %v, want %s", service, out, err, want)
		}
	}

	suffixed := &awsiam.CreateServiceLinkedRoleInput{AWSServiceName: new("autoscaling.amazonaws.com"), CustomSuffix: new("x")}
	if out, err := c.CreateServiceLinkedRole(t.Context(), suffixed); err != nil || *out.Role.RoleName != "AWSServiceRoleForAutoScaling_x" {
		t.Errorf("%+v, %v", out, err)
	}

	suffixed = &awsiam.CreateServiceLinkedRoleInput{AWSServiceName: new("spot.amazonaws.com"), CustomSuffix: new("x")}
	if _, err := c.CreateServiceLinkedRole(t.Context(), suffixed); code(err) != "InvalidInput" {
		t.Errorf("a suffix where AWS refuses one: %v", err)
	}

	if _, err := c.CreateServiceLinkedRole(t.Context(), &awsiam.CreateServiceLinkedRoleInput{AWSServiceName: new("bogus.amazonaws.com")}); code(err) != "ValidationError" {
		t.Errorf("a service without such a role: %v", err)
	}
}

// TestDescriptionsOfPolicies: CreatePolicy and ListPolicies leave out what moto's tests, verified against AWS, do not
// find there.
func TestDescriptionsOfPolicies(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	document := `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*"}}`

	for name, tags := range map[string][]types.Tag{"tagged": {{Key: new("k"), Value: new("v")}}, "plain": nil} {
		created, err := c.CreatePolicy(t.Context(), &awsiam.CreatePolicyInput{
			PolicyName: &name, PolicyDocument: &document, Description: new("d"), Tags: tags, Path: new("/" + name + "/"),
		})
		if err != nil {
			t.Fatal(err)
		}

		if p := created.Policy; p.Description != nil || (p.Tags == nil) != (tags == nil) {
			t.Errorf("%s: CreatePolicy: %+v", name, p)
		}

		read, err := c.GetPolicy(t.Context(), &awsiam.GetPolicyInput{PolicyArn: created.Policy.Arn})
		if err != nil || read.Policy.Description == nil || read.Policy.Tags == nil {
			t.Errorf("%s: GetPolicy: %+v, %v", name, read, err)
		}

		list, err := c.ListPolicies(t.Context(), &awsiam.ListPoliciesInput{PathPrefix: new("/" + name + "/")})
		if err != nil || len(list.Policies) != 1 || list.Policies[0].Description != nil || list.Policies[0].Tags != nil {
			t.Errorf("%s: ListPolicies: %+v, %v", name, list, err)
		}
	}
}

// TestBoundariesOfUsersAreTold: GetUser tells the boundary of a user, as GetRole that of a role; lists do not.
func TestBoundariesOfUsersAreTold(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	boundary := new("arn:aws:iam::aws:policy/AdministratorAccess")
	made, err := c.CreateUser(t.Context(), &awsiam.CreateUserInput{UserName: new("u"), PermissionsBoundary: boundary})
	if err != nil || made.User.PermissionsBoundary == nil {
		t.Fatalf("%+v, %v", made, err)
	}

	got, err := c.GetUser(t.Context(), &awsiam.GetUserInput{UserName: new("u")})
	if err != nil || got.User.PermissionsBoundary == nil || *got.User.PermissionsBoundary.PermissionsBoundaryArn != *boundary {
		t.Errorf("GetUser: %+v, %v, want the boundary", got, err)
	}

	if _, err := c.DeleteUserPermissionsBoundary(t.Context(), &awsiam.DeleteUserPermissionsBoundaryInput{UserName: new("u")}); err != nil {
		t.Fatal(err)
	}

	if got, err := c.GetUser(t.Context(), &awsiam.GetUserInput{UserName: new("u")}); err != nil || got.User.PermissionsBoundary != nil {
		t.Errorf("GetUser after the boundary was removed: %+v, %v", got, err)
	}
}

// TestServiceLinkedRolesAreProtected: nobody but AWS changes or deletes a service-linked role.
func TestServiceLinkedRolesAreProtected(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	ctx := t.Context()
	made, err := c.CreateServiceLinkedRole(ctx, &awsiam.CreateServiceLinkedRoleInput{AWSServiceName: new("spot.amazonaws.com")})
	if err != nil {
		t.Fatal(err)
	}

	name := made.Role.RoleName
	policy := new("arn:aws:iam::aws:policy/AdministratorAccess")
	document := new(`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*"}}`)
	trust := new(`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}`)
	errs := map[string]error{}
	_, errs["DeleteRole"] = c.DeleteRole(ctx, &awsiam.DeleteRoleInput{RoleName: name})
	_, errs["AttachRolePolicy"] = c.AttachRolePolicy(ctx, &awsiam.AttachRolePolicyInput{RoleName: name, PolicyArn: policy})
	_, errs["DetachRolePolicy"] = c.DetachRolePolicy(ctx, &awsiam.DetachRolePolicyInput{RoleName: name, PolicyArn: policy})
	_, errs["PutRolePolicy"] = c.PutRolePolicy(ctx, &awsiam.PutRolePolicyInput{RoleName: name, PolicyName: new("p"), PolicyDocument: document})
	_, errs["DeleteRolePolicy"] = c.DeleteRolePolicy(ctx, &awsiam.DeleteRolePolicyInput{RoleName: name, PolicyName: new("p")})
	_, errs["UpdateAssumeRolePolicy"] = c.UpdateAssumeRolePolicy(ctx, &awsiam.UpdateAssumeRolePolicyInput{RoleName: name, PolicyDocument: trust})
	_, errs["PutRolePermissionsBoundary"] = c.PutRolePermissionsBoundary(ctx, &awsiam.PutRolePermissionsBoundaryInput{
		RoleName: name, PermissionsBoundary: policy,
	})

	for op, err := range errs {
		if code(err) != "UnmodifiableEntity" {
			t.Errorf("%s: %v, want UnmodifiableEntity", op, err)
		}
	}

	if _, err := c.GetRole(ctx, &awsiam.GetRoleInput{RoleName: name}); err != nil {
		t.Errorf("the role is gone: %v", err)
	}
}

// TestMembersOfRoles: CreateRole tells neither tags nor the longest session unless the request has them, GetRole does, and
// when the role was last used (LocalStack's recordings of AWS).
func TestMembersOfRoles(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	trust := `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}`
	made, err := c.CreateRole(t.Context(), &awsiam.CreateRoleInput{RoleName: new("r"), AssumeRolePolicyDocument: &trust})
	if err != nil || made.Role.Tags != nil || made.Role.MaxSessionDuration != nil || made.Role.RoleLastUsed != nil {
		t.Errorf("CreateRole: %+v, %v", made, err)
	}

	got, err := c.GetRole(t.Context(), &awsiam.GetRoleInput{RoleName: new("r")})
	if err != nil || got.Role.MaxSessionDuration == nil || *got.Role.MaxSessionDuration != 3600 || got.Role.RoleLastUsed == nil {
		t.Errorf("GetRole: %+v, %v", got, err)
	}

	_, err = c.AttachRolePolicy(t.Context(), &awsiam.AttachRolePolicyInput{RoleName: new("r"), PolicyArn: new(strings.Repeat("x", 20))})
	if code(err) != "ValidationError" || !strings.Contains(err.Error(), "Invalid ARN:  Could not be parsed!") {
		t.Errorf("attach what is no ARN: %v", err)
	}
}
