// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// readPage returns the entries of the page after token, and the token of the next page; nil for the last one.
type readPage func(ctx context.Context, token *string) (entries []string, next *string, err error)

// TestShortListsHavePages: lists that are short in AWS have pages too, if a client asks for small ones.
func TestShortListsHavePages(t *testing.T) {
	t.Parallel()
	cfg := regiontest.Start(t).AWSConfig()
	lists := map[string]readPage{}
	addIdentityLists(t, iam.NewFromConfig(cfg), lists)
	addKeyLists(t, kms.NewFromConfig(cfg), lists)
	addZonesOfVPC(t, cfg, lists)

	for name, page := range lists {
		var all []string
		pages := 0
		for token := (*string)(nil); pages == 0 || token != nil; pages++ {
			entries, next, err := page(t.Context(), token)
			if err != nil || len(entries) != 1 || pages > 9 {
				t.Fatalf("%s: page %d has %v, want one entry: %v", name, pages, entries, err)
			}
			all = append(all, entries...)
			token = next
		}
		if slices.Sort(all); pages != 2 || len(slices.Compact(all)) != 2 {
			t.Errorf("%s: %d pages have %v, want two", name, pages, all)
		}
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func addIdentityLists(t *testing.T, api *iam.Client, lists map[string]readPage) {
	t.Helper()
	ctx := t.Context()
	user := aws.String("user")
	document := aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"*"}]}`)
	created, err := api.CreateUser(ctx, &iam.CreateUserInput{UserName: user})
	must(t, err)
	for range 2 {
		_, err := api.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: user})
		must(t, err)
	}
	policy, err := api.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("p"), PolicyDocument: document})
	must(t, err)
	_, err = api.CreatePolicyVersion(ctx, &iam.CreatePolicyVersionInput{PolicyArn: policy.Policy.Arn, PolicyDocument: document})
	must(t, err)

	one := aws.Int32(1)
	lists["ListAccessKeys"] = func(ctx context.Context, token *string) (entries []string, next *string, err error) {
		out, err := api.ListAccessKeys(ctx, &iam.ListAccessKeysInput{UserName: user, MaxItems: one, Marker: token})
		if err != nil {
			return nil, nil, err
		}
		for _, k := range out.AccessKeyMetadata {
			entries = append(entries, *k.AccessKeyId)
		}
		return entries, out.Marker, nil
	}
	lists["ListPolicyVersions"] = func(ctx context.Context, token *string) (entries []string, next *string, err error) {
		out, err := api.ListPolicyVersions(ctx, &iam.ListPolicyVersionsInput{PolicyArn: policy.Policy.Arn, MaxItems: one, Marker: token})
		if err != nil {
			return nil, nil, err
		}
		for _, v := range out.Versions {
			entries = append(entries, *v.VersionId)
		}
		return entries, out.Marker, nil
	}
	lists["SimulatePrincipalPolicy"] = func(ctx context.Context, token *string) (entries []string, next *string, err error) {
		out, err := api.SimulatePrincipalPolicy(ctx, &iam.SimulatePrincipalPolicyInput{
			PolicySourceArn: created.User.Arn, ActionNames: []string{"ec2:RunInstances", "ec2:CreateVpc"}, MaxItems: one, Marker: token,
		})
		if err != nil {
			return nil, nil, err
		}
		for _, r := range out.EvaluationResults {
			entries = append(entries, *r.EvalActionName)
		}
		return entries, out.Marker, nil
	}
}

func addKeyLists(t *testing.T, api *kms.Client, lists map[string]readPage) {
	t.Helper()
	ctx := t.Context()
	key, err := api.CreateKey(ctx, &kms.CreateKeyInput{Tags: []kmstypes.Tag{
		{TagKey: aws.String("a"), TagValue: aws.String("1")}, {TagKey: aws.String("b"), TagValue: aws.String("2")},
	}})
	must(t, err)
	id := key.KeyMetadata.KeyId
	for range 2 {
		_, err := api.CreateGrant(ctx, &kms.CreateGrantInput{
			KeyId: id, GranteePrincipal: aws.String("arn:aws:iam::" + regiontest.AccountID + ":root"),
			Operations: []kmstypes.GrantOperation{kmstypes.GrantOperationDecrypt},
		})
		must(t, err)
	}

	one := aws.Int32(1)
	lists["ListGrants"] = func(ctx context.Context, token *string) (entries []string, next *string, err error) {
		out, err := api.ListGrants(ctx, &kms.ListGrantsInput{KeyId: id, Limit: one, Marker: token})
		if err != nil {
			return nil, nil, err
		}
		for _, g := range out.Grants {
			entries = append(entries, *g.GrantId)
		}
		return entries, out.NextMarker, nil
	}
	lists["ListResourceTags"] = func(ctx context.Context, token *string) (entries []string, next *string, err error) {
		out, err := api.ListResourceTags(ctx, &kms.ListResourceTagsInput{KeyId: id, Limit: one, Marker: token})
		if err != nil {
			return nil, nil, err
		}
		for _, tag := range out.Tags {
			entries = append(entries, *tag.TagKey)
		}
		return entries, out.NextMarker, nil
	}
}

func addZonesOfVPC(t *testing.T, cfg aws.Config, lists map[string]readPage) {
	t.Helper()
	vpcs, err := ec2.NewFromConfig(cfg).DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	must(t, err)
	vpc := vpcs.Vpcs[0].VpcId
	api := route53.NewFromConfig(cfg)
	for _, name := range []string{"a.example", "b.example"} {
		_, err := api.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{
			Name: &name, CallerReference: &name, VPC: &r53types.VPC{VPCId: vpc, VPCRegion: r53types.VPCRegionUsEast1},
		})
		must(t, err)
	}
	lists["ListHostedZonesByVPC"] = func(ctx context.Context, token *string) (entries []string, next *string, err error) {
		out, err := api.ListHostedZonesByVPC(ctx, &route53.ListHostedZonesByVPCInput{
			VPCId: vpc, VPCRegion: r53types.VPCRegionUsEast1, MaxItems: aws.Int32(1), NextToken: token,
		})
		if err != nil {
			return nil, nil, err
		}
		for _, z := range out.HostedZoneSummaries {
			entries = append(entries, strings.TrimSuffix(*z.Name, "."))
		}
		return entries, out.NextToken, nil
	}
}
