// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// iamPath is the path of all roles, instance profiles and policies of Slipway.
const iamPath = "/slipway/"

// keyWindow is how many days AWS keeps a deleted key, its minimum.
const keyWindow = 7

// accountKinds are the kinds that are in no VPC: they are found by their names, which have the id of the run.
func (v inventory) accountKinds() []resourceKind {
	return []resourceKind{
		{name: "instance-profile", arn: "iam:instance-profile", list: v.listProfiles, remove: v.removeProfile},
		{name: "role", arn: "iam:role", list: v.listRoles, remove: v.removeRole},
		{name: "policy", arn: "iam:policy", list: v.listPolicies, remove: v.removePolicy},
		{name: "bucket", arn: "s3:", list: v.listBucket, remove: v.removeBucket},
		{name: "kms-alias", list: v.listAliases, remove: v.removeAlias},
		{name: "kms-key", arn: "kms:key", list: v.listKeys, remove: v.removeKey},
	}
}

func (v inventory) listProfiles(ctx context.Context) ([]resource, error) {
	var found []resource
	in := &iam.ListInstanceProfilesInput{PathPrefix: aws.String(iamPath)}
	pages := iam.NewListInstanceProfilesPaginator(v.iam, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, profile := range page.InstanceProfiles {
			if v.isPathOfRun(aws.ToString(profile.Path)) {
				found = append(found, resource{kind: "instance-profile", id: aws.ToString(profile.InstanceProfileName)})
			}
		}
	}

	return found, nil
}

func (v inventory) listRoles(ctx context.Context) ([]resource, error) {
	var found []resource
	pages := iam.NewListRolesPaginator(v.iam, &iam.ListRolesInput{PathPrefix: aws.String(iamPath)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, role := range page.Roles {
			if v.isPathOfRun(aws.ToString(role.Path)) {
				found = append(found, resource{kind: "role", id: aws.ToString(role.RoleName)})
			}
		}
	}

	return found, nil
}

// isPathOfRun reports whether a path of IAM has the name of the cluster as one of its parts.
func (v inventory) isPathOfRun(path string) bool {
	return strings.Contains(path, "/"+v.id.clusterName()+"/")
}

func (v inventory) listPolicies(ctx context.Context) ([]resource, error) {
	var found []resource
	in := &iam.ListPoliciesInput{Scope: iamtypes.PolicyScopeTypeLocal, PathPrefix: aws.String(iamPath)}
	pages := iam.NewListPoliciesPaginator(v.iam, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, policy := range page.Policies {
			if strings.HasSuffix(aws.ToString(policy.PolicyName), v.id.bucketName()) {
				found = append(found, resource{kind: "policy", id: aws.ToString(policy.Arn), ofStore: true})
			}
		}
	}

	return found, nil
}

func (v inventory) removeProfile(ctx context.Context, name string) error {
	out, err := v.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if err != nil {
		return err
	}

	for _, role := range out.InstanceProfile.Roles {
		in := &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &name, RoleName: role.RoleName}
		if _, err := v.iam.RemoveRoleFromInstanceProfile(ctx, in); err != nil {
			return err
		}
	}

	_, err = v.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: &name})

	return err
}

func (v inventory) removeRole(ctx context.Context, name string) error {
	inline, err := transport.CollectPages(
		ctx,
		iam.NewListRolePoliciesPaginator(v.iam, &iam.ListRolePoliciesInput{RoleName: &name}),
		func(p *iam.ListRolePoliciesOutput) []string { return p.PolicyNames },
	)
	if err != nil {
		return err
	}

	for _, policy := range inline {
		in := &iam.DeleteRolePolicyInput{RoleName: &name, PolicyName: &policy}
		if _, err := v.iam.DeleteRolePolicy(ctx, in); err != nil {
			return err
		}
	}

	attached, err := transport.CollectPages(
		ctx,
		iam.NewListAttachedRolePoliciesPaginator(v.iam, &iam.ListAttachedRolePoliciesInput{RoleName: &name}),
		func(p *iam.ListAttachedRolePoliciesOutput) []iamtypes.AttachedPolicy { return p.AttachedPolicies },
	)
	if err != nil {
		return err
	}

	for _, policy := range attached {
		in := &iam.DetachRolePolicyInput{RoleName: &name, PolicyArn: policy.PolicyArn}
		if _, err := v.iam.DetachRolePolicy(ctx, in); err != nil {
			return err
		}
	}

	_, err = v.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &name})

	return err
}

func (v inventory) removePolicy(ctx context.Context, arn string) error {
	_, err := v.iam.DeletePolicy(ctx, &iam.DeletePolicyInput{PolicyArn: &arn})
	return err
}

// listBucket returns the bucket of the state store, if it exists.
func (v inventory) listBucket(ctx context.Context) ([]resource, error) {
	bucket := v.id.bucketName()
	_, err := v.s3.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &bucket, ExpectedBucketOwner: &v.account.id})
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && answer.HTTPStatusCode() == http.StatusNotFound {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	return []resource{{kind: "bucket", id: bucket, ofStore: true}}, nil
}

// removeBucket removes all versions of all objects of the bucket and then the bucket.
func (v inventory) removeBucket(ctx context.Context, bucket string) error {
	in := &s3.ListObjectVersionsInput{Bucket: &bucket, ExpectedBucketOwner: &v.account.id}
	pages := s3.NewListObjectVersionsPaginator(v.s3, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}

		var objects []s3types.ObjectIdentifier
		for _, version := range page.Versions {
			objects = append(objects, s3types.ObjectIdentifier{Key: version.Key, VersionId: version.VersionId})
		}

		for _, marker := range page.DeleteMarkers {
			objects = append(objects, s3types.ObjectIdentifier{Key: marker.Key, VersionId: marker.VersionId})
		}

		if err := v.removeObjects(ctx, bucket, objects); err != nil {
			return err
		}
	}

	_, err := v.s3.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &bucket, ExpectedBucketOwner: &v.account.id})

	return err
}

// removeObjects removes versions of objects, at most 1000.
func (v inventory) removeObjects(ctx context.Context, bucket string, objects []s3types.ObjectIdentifier) error {
	if len(objects) == 0 {
		return nil
	}

	out, err := v.s3.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket:              &bucket,
		ExpectedBucketOwner: &v.account.id,
		Delete:              &s3types.Delete{Objects: objects, Quiet: aws.Bool(true)},
	})
	if err != nil {
		return err
	}

	for _, failure := range out.Errors {
		return fmt.Errorf("delete s3://%s/%s: %s", bucket, aws.ToString(failure.Key), aws.ToString(failure.Message))
	}

	return nil
}

// listAliases returns the aliases of the keys of the run: that of the cluster, and that of the state store.
func (v inventory) listAliases(ctx context.Context) ([]resource, error) {
	var found []resource
	pages := kms.NewListAliasesPaginator(v.kms, &kms.ListAliasesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, alias := range page.Aliases {
			name := aws.ToString(alias.AliasName)
			if strings.HasSuffix(name, string(v.id)) {
				ofStore := strings.HasSuffix(name, v.id.bucketName())
				found = append(found, resource{kind: "kms-alias", id: name, ofStore: ofStore})
			}
		}
	}

	return found, nil
}

func (v inventory) removeAlias(ctx context.Context, name string) error {
	_, err := v.kms.DeleteAlias(ctx, &kms.DeleteAliasInput{AliasName: &name})
	return err
}

// listKeys returns the keys of the run that are not being deleted.
func (v inventory) listKeys(ctx context.Context) ([]resource, error) {
	var found []resource
	keys, err := v.describeKeys(ctx)
	for _, key := range keys {
		if key.DeletionDate == nil {
			ofStore := strings.Contains(aws.ToString(key.Description), v.id.bucketName())
			found = append(found, resource{kind: "kms-key", id: aws.ToString(key.KeyId), ofStore: ofStore})
		}
	}

	return found, err
}

// describeKeys returns the keys of the run. They are found by their descriptions: a key has no tag and no alias yet if
// the program was killed just after its creation.
func (v inventory) describeKeys(ctx context.Context) ([]kmstypes.KeyMetadata, error) {
	var found []kmstypes.KeyMetadata
	pages := kms.NewListKeysPaginator(v.kms, &kms.ListKeysInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, key := range page.Keys {
			out, err := v.kms.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: key.KeyId})
			if err != nil {
				return nil, err
			}

			if strings.Contains(aws.ToString(out.KeyMetadata.Description), string(v.id)) {
				found = append(found, *out.KeyMetadata)
			}
		}
	}

	return found, nil
}

func (v inventory) removeKey(ctx context.Context, id string) error {
	in := &kms.ScheduleKeyDeletionInput{KeyId: &id, PendingWindowInDays: aws.Int32(keyWindow)}
	_, err := v.kms.ScheduleKeyDeletion(ctx, in)
	return err
}

// listScheduled returns the keys that AWS deletes later, with their dates.
func (v inventory) listScheduled(ctx context.Context) ([]string, error) {
	keys, err := v.describeKeys(ctx)
	var lines []string
	for _, key := range keys {
		if key.DeletionDate != nil {
			lines = append(lines, fmt.Sprintf("kms-key %s on %s", aws.ToString(key.KeyId), key.DeletionDate.Format(time.DateOnly)))
		}
	}

	return lines, err
}

// tagStore adds the tag of the run to the bucket, the key and the policy of the state store.
func (v inventory) tagStore(ctx context.Context) error {
	bucket := v.id.bucketName()
	tag := s3types.Tag{Key: aws.String(runTag), Value: aws.String(string(v.id))}
	_, err := v.s3.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{
		Bucket:              &bucket,
		ExpectedBucketOwner: &v.account.id,
		Tagging:             &s3types.Tagging{TagSet: []s3types.Tag{tag}},
	})
	if err != nil {
		return fmt.Errorf("tag bucket %s: %w", bucket, err)
	}

	keys, err := v.listKeys(ctx)
	if err != nil {
		return fmt.Errorf("find the key of bucket %s: %w", bucket, err)
	}

	for _, key := range keys {
		tags := []kmstypes.Tag{{TagKey: aws.String(runTag), TagValue: aws.String(string(v.id))}}
		if _, err := v.kms.TagResource(ctx, &kms.TagResourceInput{KeyId: &key.id, Tags: tags}); err != nil {
			return fmt.Errorf("tag key %s of bucket %s: %w", key.id, bucket, err)
		}
	}

	return v.tagPolicies(ctx)
}

// tagPolicies adds the tag of the run to the policy of the state store.
func (v inventory) tagPolicies(ctx context.Context) error {
	policies, err := v.listPolicies(ctx)
	if err != nil {
		return fmt.Errorf("find the policy of bucket %s: %w", v.id.bucketName(), err)
	}

	for _, policy := range policies {
		tags := []iamtypes.Tag{{Key: aws.String(runTag), Value: aws.String(string(v.id))}}
		if _, err := v.iam.TagPolicy(ctx, &iam.TagPolicyInput{PolicyArn: &policy.id, Tags: tags}); err != nil {
			return fmt.Errorf("tag policy %s: %w", policy.id, err)
		}
	}

	return nil
}
