// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"io"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// ownershipTags are those of a cluster with an id.
var ownershipTags = []string{awskind.TagClusterID, graph.OwnershipTokenTag, graph.StateStoreTag, graph.StateRevisionTag}

func regionOf(ts *testscript.TestScript) regiontest.Region {
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok {
		ts.Fatalf("no region")
	}
	return r
}

// cmdCopyState is 'copystate PREFIX': a copy of all objects of the state bucket below PREFIX.
func cmdCopyState(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	api := s3.NewFromConfig(regionOf(ts).AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	bucket := sdk.String("slipway-test")
	pages := s3.NewListObjectsV2Paginator(api, &s3.ListObjectsV2Input{Bucket: bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		ts.Check(err)
		for _, o := range page.Contents {
			if strings.HasPrefix(*o.Key, args[0]) {
				continue
			}
			object, err := api.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: o.Key})
			ts.Check(err)
			body, err := io.ReadAll(object.Body)
			ts.Check(err)
			_, err = api.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: sdk.String(args[0] + *o.Key), Body: bytes.NewReader(body)})
			ts.Check(err)
		}
	}
}

// cmdUnmark is 'unmark': what an older slipway has created, without ids in AWS and in the state store.
func cmdUnmark(ts *testscript.TestScript, _ bool, _ []string) {
	h := newHand(context.Background(), regionOf(ts))
	tags, err := h.ec2.DescribeTags(h.ctx, &ec2.DescribeTagsInput{Filters: []ec2types.Filter{{Name: sdk.String("key"), Values: ownershipTags}}})
	ts.Check(err)
	for _, t := range tags.Tags {
		if t.ResourceType == "auto-scaling-group" {
			continue
		}
		_, err := h.ec2.DeleteTags(h.ctx, &ec2.DeleteTagsInput{Resources: []string{*t.ResourceId}, Tags: []ec2types.Tag{{Key: t.Key}}})
		ts.Check(err)
	}
	have, err := h.cloud.Read(h.ctx)
	ts.Check(err)
	for _, a := range have {
		switch a.Resource.(type) {
		case awskind.LoadBalancer, awskind.TargetGroup:
			_, err = h.elb.RemoveTags(h.ctx, &elb.RemoveTagsInput{ResourceArns: []string{a.ID}, TagKeys: ownershipTags})
		case awskind.IAMRole:
			_, err = h.iam.UntagRole(h.ctx, &iam.UntagRoleInput{RoleName: &a.ID, TagKeys: ownershipTags})
		case awskind.KMSKey:
			_, err = h.kms.UntagResource(h.ctx, &kms.UntagResourceInput{KeyId: &a.ID, TagKeys: ownershipTags})
		case awskind.AutoScalingGroup:
			_, err = h.scale.DeleteTags(h.ctx, &autoscaling.DeleteTagsInput{Tags: []astypes.Tag{{
				Key: sdk.String(awskind.TagClusterID), ResourceId: &a.ID, ResourceType: sdk.String("auto-scaling-group"),
			}}})
		}
		ts.Check(err)
	}
	_, err = h.s3.DeleteObject(h.ctx, &s3.DeleteObjectInput{Bucket: sdk.String("slipway-test"), Key: sdk.String("demo/ownership.json")})
	ts.Check(err)
}
