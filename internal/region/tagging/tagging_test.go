// SPDX-License-Identifier: Apache-2.0

package tagging_test

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	route53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/awserr"
	"github.com/aws/aws-sdk-go/aws/credentials"
	"github.com/aws/aws-sdk-go/aws/session"
	sdk "github.com/aws/aws-sdk-go/service/resourcegroupstaggingapi"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// newClient returns a client of the Resource Groups Tagging API. Version 2 of the SDK has it in a module of its own.
func newClient(t *testing.T, r regiontest.Region, key, secret string) *sdk.ResourceGroupsTaggingAPI {
	t.Helper()
	s, err := session.NewSession(&aws.Config{
		Endpoint:    new(r.URL),
		Region:      aws.String(regiontest.RegionName),
		Credentials: credentials.NewStaticCredentials(key, secret, ""),
		MaxRetries:  new(0),
		HTTPClient:  &http.Client{}, // with AWS_CA_BUNDLE, the session would change the one that all share
	})
	if err != nil {
		t.Fatal(err)
	}

	return sdk.New(s)
}

func filter(key string, values ...string) *sdk.TagFilter {
	return &sdk.TagFilter{Key: &key, Values: aws.StringSlice(values)}
}

// kinds returns the services and types of resources, sorted.
func kinds(out *sdk.GetResourcesOutput) []string {
	var all []string
	for _, m := range out.ResourceTagMappingList {
		parts := strings.SplitN(*m.ResourceARN, ":", 6)
		kind, _, _ := strings.Cut(parts[5], "/")
		if parts[2] == "s3" {
			kind = "bucket"
		}

		all = append(all, parts[2]+":"+kind)
	}

	slices.Sort(all)

	return all
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestResourcesOfServices: the API knows the resources of all services by their tags, but not roles.
func TestResourcesOfServices(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{})
	ctx := t.Context()
	cfg := r.AWSConfig()
	ec2Client := ec2.NewFromConfig(cfg)
	iamClient := iam.NewFromConfig(cfg)
	key := new("run")
	value := new("1")
	iamTags := []iamtypes.Tag{{Key: key, Value: value}}
	vpc, err := ec2Client.CreateVpc(ctx, &ec2.CreateVpcInput{
		CidrBlock: new("10.1.0.0/16"),
		TagSpecifications: []ec2types.TagSpecification{{
			ResourceType: ec2types.ResourceTypeVpc,
			Tags:         []ec2types.Tag{{Key: key, Value: value}, {Key: new("a"), Value: new("b")}},
		}},
	})
	check(t, err)
	_, err = kms.NewFromConfig(cfg).CreateKey(ctx, &kms.CreateKeyInput{Tags: []kmstypes.Tag{{TagKey: key, TagValue: value}}})
	check(t, err)
	buckets := s3.NewFromConfig(cfg)
	_, err = buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("b-1")})
	check(t, err)
	_, err = buckets.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{
		Bucket:  new("b-1"),
		Tagging: &s3types.Tagging{TagSet: []s3types.Tag{{Key: key, Value: value}}},
	})
	check(t, err)
	const trust = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	_, err = iamClient.CreateRole(ctx, &iam.CreateRoleInput{RoleName: key, AssumeRolePolicyDocument: aws.String(trust), Tags: iamTags})
	check(t, err)
	_, err = iamClient.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: key, Tags: iamTags})
	check(t, err)
	const document = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`
	_, err = iamClient.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: key, PolicyDocument: aws.String(document), Tags: iamTags})
	check(t, err)
	zones := route53.NewFromConfig(cfg)
	zone, err := zones.CreateHostedZone(ctx, &route53.CreateHostedZoneInput{Name: new("example.com"), CallerReference: key})
	check(t, err)
	_, err = zones.ChangeTagsForResource(ctx, &route53.ChangeTagsForResourceInput{
		ResourceType: route53types.TagResourceTypeHostedzone,
		ResourceId:   new(strings.TrimPrefix(*zone.HostedZone.Id, "/hostedzone/")),
		AddTags:      []route53types.Tag{{Key: key, Value: value}},
	})
	check(t, err)

	api := newClient(t, r, regiontest.AccessKey, regiontest.SecretKey)
	out, err := api.GetResources(&sdk.GetResourcesInput{TagFilters: []*sdk.TagFilter{filter("run", "0", "1")}})
	check(t, err)
	want := []string{"ec2:vpc", "iam:instance-profile", "iam:policy", "kms:key", "route53:hostedzone", "s3:bucket"}
	if diff := cmp.Diff(want, kinds(out)); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}

	first := out.ResourceTagMappingList[0]
	wantARN := "arn:aws:ec2:us-east-1:" + regiontest.AccountID + ":vpc/" + *vpc.Vpc.VpcId
	if *first.ResourceARN != wantARN || len(first.Tags) != 2 || *first.Tags[1].Key != "run" {
		t.Errorf("first: %v, want %s with two tags", first, wantARN)
	}

	for _, tt := range []struct {
		filters []*sdk.TagFilter
		types   []string
		want    []string
	}{
		{[]*sdk.TagFilter{filter("run"), filter("a", "b")}, nil, []string{"ec2:vpc"}},
		{[]*sdk.TagFilter{filter("run"), filter("a", "c")}, nil, nil},
		{[]*sdk.TagFilter{filter("run")}, []string{"kms", "s3:bucket", "ec2:subnet"}, []string{"kms:key", "s3:bucket"}},
	} {
		out, err := api.GetResources(&sdk.GetResourcesInput{TagFilters: tt.filters, ResourceTypeFilters: aws.StringSlice(tt.types)})
		check(t, err)
		if diff := cmp.Diff(tt.want, kinds(out)); diff != "" {
			t.Errorf("%v %v (-want +got):\n%s", tt.filters, tt.types, diff)
		}
	}

	var pages []int
	in := &sdk.GetResourcesInput{TagFilters: []*sdk.TagFilter{filter("run")}, ResourcesPerPage: aws.Int64(4)}
	check(t, api.GetResourcesPages(in, func(page *sdk.GetResourcesOutput, _ bool) bool {
		pages = append(pages, len(page.ResourceTagMappingList))
		return true
	}))
	if diff := cmp.Diff([]int{4, 2}, pages); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{})
	api := newClient(t, r, regiontest.AccessKey, regiontest.SecretKey)
	many := func(n int) []string {
		var out []string
		for i := range n {
			out = append(out, strconv.Itoa(i))
		}

		return out
	}
	for name, tt := range map[string]struct {
		in   *sdk.GetResourcesInput
		want string
	}{
		"21 values":        {&sdk.GetResourcesInput{TagFilters: []*sdk.TagFilter{filter("a", many(21)...)}}, sdk.ErrCodeInvalidParameterException},
		"a long key":       {&sdk.GetResourcesInput{TagFilters: []*sdk.TagFilter{filter(strings.Repeat("a", 129))}}, sdk.ErrCodeInvalidParameterException},
		"101 a page":       {&sdk.GetResourcesInput{ResourcesPerPage: aws.Int64(101)}, sdk.ErrCodeInvalidParameterException},
		"no token of ours": {&sdk.GetResourcesInput{PaginationToken: new("%")}, sdk.ErrCodeInvalidParameterException},
		"tags per page":    {&sdk.GetResourcesInput{TagsPerPage: aws.Int64(100)}, "NotImplemented"},
		"a list of ARNs":   {&sdk.GetResourcesInput{ResourceARNList: aws.StringSlice([]string{"arn:aws:s3:::b"})}, "NotImplemented"},
		"compliance":       {&sdk.GetResourcesInput{IncludeComplianceDetails: new(true)}, "NotImplemented"},
		"all":              {&sdk.GetResourcesInput{}, ""},
	} {
		_, err := api.GetResources(tt.in)
		if got := code(err); got != tt.want {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}

	if _, err := api.GetTagKeys(&sdk.GetTagKeysInput{}); err == nil {
		t.Error("GetTagKeys was answered")
	}
}

// TestPermissionIsNeeded: the prefix of the actions is tag, and not the signing name.
func TestPermissionIsNeeded(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{})
	ctx := t.Context()
	iamClient := iam.NewFromConfig(r.AWSConfig())
	user := new("reader")
	_, err := iamClient.CreateUser(ctx, &iam.CreateUserInput{UserName: user})
	check(t, err)
	keys, err := iamClient.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: user})
	check(t, err)
	api := newClient(t, r, *keys.AccessKey.AccessKeyId, *keys.AccessKey.SecretAccessKey)
	if _, err := api.GetResources(&sdk.GetResourcesInput{}); !strings.HasPrefix(code(err), "AccessDenied") {
		t.Errorf("without permission: %v", err)
	}

	const document = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"tag:GetResources","Resource":"*"}]}`
	_, err = iamClient.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: user, PolicyName: user, PolicyDocument: aws.String(document)})
	check(t, err)
	if _, err := api.GetResources(&sdk.GetResourcesInput{}); err != nil {
		t.Errorf("with permission: %v", err)
	}
}

func code(err error) string {
	if e, ok := errors.AsType[awserr.Error](err); ok {
		return e.Code()
	}

	return ""
}
