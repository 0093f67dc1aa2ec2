// SPDX-License-Identifier: Apache-2.0

package iam_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

func TestTagsOfPolicies(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	api := awsiam.NewFromConfig(regiontest.StartWith(t, regiontest.Options{}).AWSConfig())
	const document = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`
	made, err := api.CreatePolicy(ctx, &awsiam.CreatePolicyInput{
		PolicyName:     aws.String("p"),
		PolicyDocument: aws.String(document),
		Tags:           []types.Tag{{Key: aws.String("a"), Value: aws.String("1")}},
	})
	if err != nil {
		t.Fatal(err)
	}

	arn := made.Policy.Arn
	tag := func(arn *string, key string) error {
		_, err := api.TagPolicy(ctx, &awsiam.TagPolicyInput{PolicyArn: arn, Tags: []types.Tag{{Key: &key, Value: aws.String("2")}}})
		return err
	}
	list := func() map[string]string {
		out, err := api.ListPolicyTags(ctx, &awsiam.ListPolicyTagsInput{PolicyArn: arn})
		if err != nil {
			t.Fatal(err)
		}

		tags := map[string]string{}
		for _, tag := range out.Tags {
			tags[*tag.Key] = *tag.Value
		}

		return tags
	}
	for _, key := range []string{"A", "b"} { // keys are unique regardless of case
		if err := tag(arn, key); err != nil {
			t.Errorf("tag %s: %v", key, err)
		}
	}

	if diff := cmp.Diff(map[string]string{"A": "2", "b": "2"}, list()); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}

	if _, err := api.UntagPolicy(ctx, &awsiam.UntagPolicyInput{PolicyArn: arn, TagKeys: []string{"a"}}); err != nil {
		t.Error(err)
	}

	if diff := cmp.Diff(map[string]string{"b": "2"}, list()); diff != "" {
		t.Errorf("tags after one was removed (-want +got):\n%s", diff)
	}

	for name, tt := range map[string]struct{ arn, key, want string }{
		"a reserved key":    {*arn, "aws:x", "InvalidInput"},
		"a policy of AWS":   {"arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore", "x", "NoSuchEntity"},
		"an unknown policy": {*arn + "x", "x", "NoSuchEntity"},
	} {
		if got := code(tag(&tt.arn, tt.key)); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestPoliciesAreTaggedWithPermission: a caller who creates a policy with tags needs the right to tag it, and the tags of a
// policy are condition keys.
func TestPoliciesAreTaggedWithPermission(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	region := regiontest.StartWith(t, regiontest.Options{})
	root := awsiam.NewFromConfig(region.AWSConfig())
	user := aws.String("creator")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := root.CreateUser(ctx, &awsiam.CreateUserInput{UserName: user})
	must(err)
	keys, err := root.CreateAccessKey(ctx, &awsiam.CreateAccessKeyInput{UserName: user})
	must(err)
	allow := func(statements string) {
		t.Helper()
		document := `{"Version":"2012-10-17","Statement":[` + statements + `]}`
		_, err := root.PutUserPolicy(ctx, &awsiam.PutUserPolicyInput{UserName: user, PolicyName: user, PolicyDocument: &document})
		must(err)
	}
	cfg := region.AWSConfig()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*keys.AccessKey.AccessKeyId, *keys.AccessKey.SecretAccessKey, "")
	api := awsiam.NewFromConfig(cfg)
	create := func() error {
		const document = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`
		_, err := api.CreatePolicy(ctx, &awsiam.CreatePolicyInput{
			PolicyName:     aws.String("p"),
			PolicyDocument: aws.String(document),
			Tags:           []types.Tag{{Key: aws.String("team"), Value: aws.String("a")}},
		})
		return err
	}
	const creation = `{"Effect":"Allow","Action":"iam:CreatePolicy","Resource":"*"}`
	allow(creation)
	if got := code(create()); got != "AccessDenied" {
		t.Errorf("without iam:TagPolicy: got %q", got)
	}

	const byTag = `{"Effect":"Allow","Action":"iam:DeletePolicy","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/team":"a"}}}`
	allow(creation + `,{"Effect":"Allow","Action":"iam:TagPolicy","Resource":"*"},` + byTag)
	must(create())
	arn := "arn:aws:iam::" + regiontest.AccountID + ":policy/p"
	if _, err := api.DeletePolicy(ctx, &awsiam.DeletePolicyInput{PolicyArn: &arn}); err != nil {
		t.Errorf("delete by the policy's tag: %v", err)
	}
}
