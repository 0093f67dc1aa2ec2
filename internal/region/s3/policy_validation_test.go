// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
)

// TestBucketPoliciesAreChecked: S3 refuses a policy that cannot mean anything: principals that cannot exist, actions that S3
// does not have, and actions that none of the statement's resources has. The messages are those of AWS.
func TestBucketPoliciesAreChecked(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	const (
		objects = "arn:aws:s3:::b-1/*"
		itself  = "arn:aws:s3:::b-1"
		account = `{"AWS": "arn:aws:iam::000000000000:root"}`
	)
	policy := func(principal, action string, resources ...string) string {
		return `{"Statement": {"Effect": "Allow", "Principal": ` + principal + `, "Action": "` + action + `", "Resource": ["` + strings.Join(resources, `", "`) + `"]}}`
	}

	for name, x := range map[string]struct{ document, want string }{
		"an account":              {policy(account, "s3:GetObject", objects), ""},
		"a number":                {policy(`{"AWS": "000000000000"}`, "s3:GetObject", objects), ""},
		"roles and users":         {policy(`{"AWS": ["arn:aws:iam::000000000000:role/a/b", "arn:aws:iam::111122223333:user/u"]}`, "s3:GetObject", objects), ""},
		"a session":               {policy(`{"AWS": "arn:aws:sts::000000000000:assumed-role/r/s"}`, "s3:GetObject", objects), ""},
		"a service":               {policy(`{"Service": "logging.s3.amazonaws.com"}`, "s3:PutObject", objects), ""},
		"a word":                  {policy(`{"AWS": "bogus"}`, "s3:GetObject", objects), "Invalid principal in policy"},
		"another service's ARN":   {policy(`{"AWS": "arn:aws:s3:::b-1"}`, "s3:GetObject", objects), "Invalid principal in policy"},
		"all roles":               {policy(`{"AWS": "arn:aws:iam::000000000000:role/*"}`, "s3:GetObject", objects), "Invalid principal in policy"},
		"a pattern":               {policy(account, "s3:get*", objects), ""},
		"everything":              {policy(account, "*", itself), ""},
		"an unknown action":       {policy(account, "s3:Bogus", objects), "Policy has invalid action"},
		"an unknown pattern":      {policy(account, "s3:Bogus*", objects), "Policy has invalid action"},
		"another service":         {policy(account, "ec2:RunInstances", objects), "Policy has invalid action"},
		"a list of objects":       {policy(account, "s3:ListBucket", objects), "Action does not apply to any resource(s) in statement"},
		"an object of the bucket": {policy(account, "s3:GetObject", itself), "Action does not apply to any resource(s) in statement"},
		"both":                    {policy(account, "s3:ListBucket", objects, itself), ""},
		"another bucket":          {policy(account, "s3:GetObject", "arn:aws:s3:::other/*"), "Policy has invalid resource"},
		"no JSON":                 {"x", "Policies must be valid JSON and the first byte must be '{'"},
		"no statement":            {"{}", "Missing required field Statement"},
	} {
		_, err := c.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: aws.String(b1), Policy: &x.document})
		got := ""
		if err != nil {
			got = message(err)
		}
		if got != x.want || err != nil && code(err) != "MalformedPolicy" {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// message returns the message of AWS's error.
func message(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorMessage()
	}

	return err.Error()
}
