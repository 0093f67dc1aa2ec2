// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/slipway-k8s/slipway/internal/region/iam"
)

// TestSessionTags: a session has the tags of its role, unless its caller gave it another value. For that, sts:TagSession must
// be allowed, of the trust policy too.
func TestSessionTags(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	admin := r.iamClient(root())
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := admin.CreateUser(t.Context(), &awsiam.CreateUserInput{UserName: new("u")})
	check(err)
	made, err := admin.CreateAccessKey(t.Context(), &awsiam.CreateAccessKeyInput{UserName: new("u")})
	check(err)
	user := as(iam.Credentials{AccessKeyID: *made.AccessKey.AccessKeyId, SecretAccessKey: *made.AccessKey.SecretAccessKey})
	trust := func(action string) *string {
		return new(`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::000000000000:user/u"},"Action":` + action + `}}`)
	}
	_, err = admin.CreateRole(t.Context(), &awsiam.CreateRoleInput{
		RoleName: new("r"), AssumeRolePolicyDocument: trust(`"sts:AssumeRole"`),
		Tags: []iamtypes.Tag{{Key: new("Team"), Value: new("a")}},
	})
	check(err)
	_, err = admin.PutRolePolicy(t.Context(), &awsiam.PutRolePolicyInput{RoleName: new("r"), PolicyName: new("p"), PolicyDocument: new(
		`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"iam:ListRoles","Resource":"*",` +
			`"Condition":{"StringEquals":{"aws:PrincipalTag/Team":"b"}}}}`)})
	check(err)

	list := func(tags ...ststypes.Tag) error {
		out, err := r.stsClient(user).AssumeRole(t.Context(), &awssts.AssumeRoleInput{
			RoleArn: new("arn:aws:iam::000000000000:role/r"), RoleSessionName: new("s1"), Tags: tags,
		})
		if err != nil {
			return err
		}
		c := out.Credentials
		_, err = r.iamClient(credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)).
			ListRoles(t.Context(), &awsiam.ListRolesInput{})

		return err
	}
	b := ststypes.Tag{Key: aws.String("team"), Value: new("b")} // keys differ by more than their case
	if err := list(); code(err) != "AccessDenied" {
		t.Errorf("a session with the tag of its role: %v", err)
	}
	if err := list(b); code(err) != "AccessDenied" {
		t.Errorf("without sts:TagSession: %v", err)
	}
	_, err = admin.UpdateAssumeRolePolicy(t.Context(), &awsiam.UpdateAssumeRolePolicyInput{
		RoleName: new("r"), PolicyDocument: trust(`["sts:AssumeRole","sts:TagSession"]`),
	})
	check(err)
	if err := list(b); err != nil {
		t.Errorf("a session with another tag: %v", err)
	}
	if err := list(b, ststypes.Tag{Key: new("Team"), Value: new("c")}); code(err) != "ValidationError" {
		t.Errorf("two tags with one key: %v", err)
	}
}
