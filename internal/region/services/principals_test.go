// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// policyFor returns a policy with a statement for a principal of type AWS.
func policyFor(arn, action, resource string) *string {
	if resource != "" {
		resource = `"Resource":"` + resource + `",`
	}

	return aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` + resource +
		`"Principal":{"AWS":["arn:aws:iam::123456789012:root","` + arn + `"]},"Action":"` + action + `"}]}`)
}

// TestPrincipalsOfPoliciesExist: trust policies, bucket policies and key policies cannot name a role or a user of the
// account that does not exist.
func TestPrincipalsOfPoliciesExist(t *testing.T) {
	t.Parallel()
	cfg := regiontest.Start(t).AWSConfig()
	ctx := t.Context()
	iamClient, kmsClient := iam.NewFromConfig(cfg), kms.NewFromConfig(cfg)
	s3Client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := s3Client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("b-1")}); err != nil {
		t.Fatal(err)
	}

	use := func(arn, roleName string) map[string]error {
		errs := map[string]error{}
		_, errs["CreateRole"] = iamClient.CreateRole(ctx, &iam.CreateRoleInput{
			RoleName: &roleName, AssumeRolePolicyDocument: policyFor(arn, "sts:AssumeRole", ""),
		})
		_, errs["UpdateAssumeRolePolicy"] = iamClient.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{
			RoleName: aws.String("known"), PolicyDocument: policyFor(arn, "sts:AssumeRole", ""),
		})
		_, errs["PutBucketPolicy"] = s3Client.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{
			Bucket: aws.String("b-1"), Policy: policyFor(arn, "s3:GetObject", "arn:aws:s3:::b-1/*"),
		})
		_, errs["CreateKey"] = kmsClient.CreateKey(ctx, &kms.CreateKeyInput{Policy: policyFor(arn, "kms:*", "*")})

		return errs
	}

	if _, err := iamClient.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName: aws.String("known"), Path: aws.String("/p/"),
		AssumeRolePolicyDocument: policyFor("arn:aws:iam::111122223333:role/other", "sts:AssumeRole", ""),
	}); err != nil {
		t.Fatalf("a principal of another account: %v", err)
	}

	for op, err := range use("arn:aws:iam::123456789012:role/p/known", "a") {
		if err != nil {
			t.Errorf("%s with a role that exists: %v", op, err)
		}
	}

	want := map[string]string{
		"CreateRole":             `MalformedPolicyDocument: Invalid principal in policy: "AWS":"`,
		"UpdateAssumeRolePolicy": `MalformedPolicyDocument: Invalid principal in policy: "AWS":"`,
		"PutBucketPolicy":        "MalformedPolicy: Invalid principal in policy",
		"CreateKey":              "MalformedPolicyDocumentException: Policy contains a statement with one or more invalid principals.",
	}
	for _, arn := range []string{
		"arn:aws:iam::123456789012:role/missing", "arn:aws:iam::123456789012:user/missing",
		"arn:aws:iam::123456789012:role/known", // it has another path
	} {
		for op, err := range use(arn, "b") {
			failed, ok := errors.AsType[smithy.APIError](err)
			if !ok || !strings.HasPrefix(failed.ErrorCode()+": "+failed.ErrorMessage(), want[op]) {
				t.Errorf("%s with %s: %v, want %s", op, arn, err, want[op])
			}
		}
	}
}
