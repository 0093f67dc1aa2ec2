// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// bucketActions returns the actions that a policy can allow on a bucket, and objectActions those on an object, as in AWS's
// Service Authorization Reference (https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html).
func bucketActions() []string {
	return strings.Fields(`
		AllowVendedLogDeliveryForResource CreateBucket CreateBucketMetadataTableConfiguration DeleteBucket
		DeleteBucketMetadataTableConfiguration DeleteBucketPolicy DeleteBucketWebsite
		GetAccelerateConfiguration GetAnalyticsConfiguration GetBucketAbac GetBucketAcl GetBucketCORS
		GetBucketLocation GetBucketLogging GetBucketMetadataTableConfiguration GetBucketNotification
		GetBucketObjectLockConfiguration GetBucketOwnershipControls GetBucketPolicy GetBucketPolicyStatus
		GetBucketPublicAccessBlock GetBucketRequestPayment GetBucketTagging GetBucketVersioning
		GetBucketWebsite GetEncryptionConfiguration GetIntelligentTieringConfiguration
		GetInventoryConfiguration GetLifecycleConfiguration GetMetricsConfiguration
		GetReplicationConfiguration ListBucket ListBucketMultipartUploads ListBucketVersions
		ListTagsForResource PauseReplication PutAccelerateConfiguration PutAnalyticsConfiguration
		PutBucketAbac PutBucketAcl PutBucketCORS PutBucketLogging PutBucketNotification
		PutBucketObjectLockConfiguration PutBucketOwnershipControls PutBucketPolicy
		PutBucketPublicAccessBlock PutBucketRequestPayment PutBucketTagging PutBucketVersioning
		PutBucketWebsite PutEncryptionConfiguration PutIntelligentTieringConfiguration
		PutInventoryConfiguration PutLifecycleConfiguration PutMetricsConfiguration
		PutReplicationConfiguration TagResource UntagResource
		UpdateBucketMetadataAnnotationTableConfiguration UpdateBucketMetadataInventoryTableConfiguration
		UpdateBucketMetadataJournalTableConfiguration
	`)
}

func objectActions() []string {
	return strings.Fields(`
		AbortMultipartUpload BypassGovernanceRetention DeleteObject DeleteObjectAnnotation
		DeleteObjectTagging DeleteObjectVersion DeleteObjectVersionAnnotation DeleteObjectVersionTagging
		GetObject GetObjectAcl GetObjectAnnotation GetObjectAttributes GetObjectLegalHold GetObjectRetention
		GetObjectTagging GetObjectTorrent GetObjectVersion GetObjectVersionAcl GetObjectVersionAnnotation
		GetObjectVersionAnnotationForReplication GetObjectVersionAttributes GetObjectVersionForReplication
		GetObjectVersionTagging GetObjectVersionTorrent InitiateReplication ListMultipartUploadParts
		ListObjectAnnotations ListObjectVersionAnnotations ObjectOwnerOverrideToBucketOwner PutObject
		PutObjectAcl PutObjectAnnotation PutObjectLegalHold PutObjectRetention PutObjectTagging
		PutObjectVersionAcl PutObjectVersionAnnotation PutObjectVersionTagging ReplicateDelete
		ReplicateObject ReplicateObjectAnnotation ReplicateTags RestoreObject UpdateObjectEncryption
	`)
}

// policyMessage returns S3's message for an error of [authz.ParsePolicy].
func policyMessage(document string, err error) string {
	if !json.Valid([]byte(document)) {
		return "Policies must be valid JSON and the first byte must be '{'"
	}

	return strings.TrimSuffix(authz.ServiceMessage(err), ".")
}

// validateStatement checks the parts of a bucket policy's statement that S3 knows more about than IAM's grammar does:
// principals that can exist, resources of the bucket, actions of S3, and that each action has one of the statement's
// resources.
func validateStatement(st authz.Statement, bucket string) error {
	for _, principals := range []authz.Principals{st.Principal, st.NotPrincipal} {
		if slices.ContainsFunc(principals["AWS"], isNoPrincipal) {
			return newErrorf(malformedPolicy, "Invalid principal in policy").with()
		}
	}

	resources, ok := readPolicyResources(slices.Concat(st.Resource, st.NotResource), bucket)
	if !ok {
		return newErrorf(malformedPolicy, "Policy has invalid resource").with()
	}

	if st.NotResource != nil || st.NotAction != nil {
		resources = policyResources{bucket: true, objects: true} // what is left has some
	}

	for _, pattern := range slices.Concat(st.Action, st.NotAction) {
		if err := resources.validateAction(pattern); err != nil {
			return err
		}
	}

	return nil
}

// policyResources are the kinds of resources that a statement is for.
type policyResources struct{ bucket, objects bool }

// readPolicyResources returns the kinds of a statement's resources. ok is false if one of them is not of the bucket.
func readPolicyResources(arns []string, bucket string) (r policyResources, ok bool) {
	for _, arn := range arns {
		rest, ok := strings.CutPrefix(arn, "arn:aws:s3:::"+bucket)

		switch {
		case !ok:
			return r, false
		case rest == "":
			r.bucket = true
		case rest == "*":
			r.bucket = true
			r.objects = true
		case rest[0] == '/':
			r.objects = true
		default: // another bucket, whose name is longer
			return r, false
		}
	}

	return r, true
}

// validateAction refuses an action that S3 does not have, and one that none of the resources has.
func (r policyResources) validateAction(pattern string) error {
	ofBucket := hasAction(bucketActions(), pattern)
	ofObjects := hasAction(objectActions(), pattern)

	switch {
	case !ofBucket && !ofObjects:
		return newErrorf(malformedPolicy, "Policy has invalid action").with()
	case ofBucket && r.bucket, ofObjects && r.objects:
		return nil
	}

	return newErrorf(malformedPolicy, "Action does not apply to any resource(s) in statement").with()
}

// hasAction reports whether a pattern of actions, such as s3:Get*, has one of these actions of S3.
func hasAction(names []string, pattern string) bool {
	pattern = strings.ToLower(pattern)

	return slices.ContainsFunc(names, func(name string) bool { return authz.MatchPattern(pattern, strings.ToLower("s3:"+name)) })
}

// policyPrincipal matches everyone, an account, a role, a user and a session.
var policyPrincipal = regexp.MustCompile(
	`^(\*|[0-9]{12}|arn:aws[a-z-]*:(iam::[0-9]{12}:(root|(user|role)/[^*?]+)|sts::[0-9]{12}:(assumed-role/[^*?/]+/|federated-user/)[^*?/]+))$`,
)

// isNoPrincipal reports whether a text is neither everyone nor an account, a role, a user or a session.
func isNoPrincipal(name string) bool {
	return !policyPrincipal.MatchString(name)
}
