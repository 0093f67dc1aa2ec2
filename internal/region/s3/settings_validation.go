// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"slices"
	"time"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// acceptAny is the check of settings whose shape is all that S3 checks, and of bucket policies, which are checked
// under the lock.
func acceptAny[V any](*V) error { return nil }

// defaultEncryption returns the encryption of a bucket without settings of its own.
func defaultEncryption() *s3.ServerSideEncryptionConfiguration {
	return &s3.ServerSideEncryptionConfiguration{Rules: []*s3.ServerSideEncryptionRule{{
		ApplyServerSideEncryptionByDefault: &s3.ServerSideEncryptionByDefault{
			SSEAlgorithm: new(s3.ServerSideEncryptionAes256),
		},
		BucketKeyEnabled: new(false),
	}}}
}

func validateVersioning(v *s3.VersioningConfiguration) error {
	status := stringValue(v.Status)

	switch {
	case v.MFADelete != nil:
		return wire.NotImplemented("MfaDelete")
	case status == "":
		return newError(illegalVersioning)
	case !slices.Contains(s3.BucketVersioningStatus_Values(), status):
		return newError(malformedXML)
	}

	return nil
}

func validateEncryption(v *s3.ServerSideEncryptionConfiguration) error {
	if len(v.Rules) != 1 || v.Rules[0].ApplyServerSideEncryptionByDefault == nil {
		return newError(malformedXML)
	}

	rule := v.Rules[0].ApplyServerSideEncryptionByDefault
	algorithm := stringValue(rule.SSEAlgorithm)

	switch {
	case algorithm == s3.ServerSideEncryptionAwsKms:
		return nil
	case algorithm == s3.ServerSideEncryptionAwsKmsDsse:
		return wire.NotImplemented("SSEAlgorithm " + algorithm)
	case algorithm != s3.ServerSideEncryptionAes256:
		return newError(malformedXML)
	case rule.KMSMasterKeyID != nil:
		return newArgumentError(
			"ApplyServerSideEncryptionByDefault",
			*rule.KMSMasterKeyID,
			"a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or aws:kms:dsse",
		)
	}

	return nil
}

func validateOwnership(v *s3.OwnershipControls) error {
	if len(v.Rules) != 1 {
		return newError(malformedXML)
	}

	ownership := stringValue(v.Rules[0].ObjectOwnership)

	switch {
	case ownership == s3.ObjectOwnershipBucketOwnerEnforced:
		return nil
	case slices.Contains(s3.ObjectOwnership_Values(), ownership):
		return wire.NotImplemented("ObjectOwnership " + ownership)
	}

	return newError(malformedXML)
}

func validateAccessBlock(v *s3.PublicAccessBlockConfiguration) error {
	if *v == (s3.PublicAccessBlockConfiguration{}) {
		return newErrorf(invalidRequest, "Must specify at least one configuration.").with()
	}

	return nil
}

// maxLifecycleRules is S3's limit of the rules of a lifecycle configuration.
const maxLifecycleRules = 1000

func validateLifecycle(v *s3.BucketLifecycleConfiguration) error {
	if len(v.Rules) == 0 || len(v.Rules) > maxLifecycleRules {
		return newError(malformedXML)
	}

	seen := map[string]bool{}

	for _, rule := range v.Rules {
		id := stringValue(rule.ID)
		if id != "" && seen[id] {
			return newArgumentError("RuleId", id, "Rule ID must be unique. Found same ID for more than one rule")
		}

		seen[id] = true
		if err := validateLifecycleRule(rule); err != nil {
			return err
		}
	}

	return nil
}

// maxRuleIDBytes is S3's limit of the length of a rule's ID.
const maxRuleIDBytes = 255

func validateLifecycleRule(rule *s3.LifecycleRule) error {
	id := stringValue(rule.ID)
	actions := countTrue(
		rule.Expiration != nil,
		rule.NoncurrentVersionExpiration != nil,
		rule.AbortIncompleteMultipartUpload != nil,
		len(rule.Transitions) > 0,
		len(rule.NoncurrentVersionTransitions) > 0,
	)
	scopes := countTrue(rule.Filter != nil, rule.Prefix != nil) //nolint:staticcheck // clients still send the prefix

	switch {
	case len(id) > maxRuleIDBytes:
		return newArgumentError("ID", id, "ID length should not exceed allowed limit of 255")
	case scopes != 1, !slices.Contains(s3.ExpirationStatus_Values(), stringValue(rule.Status)):
		return newError(malformedXML)
	case actions == 0:
		return newErrorf(invalidRequest, "At least one action needs to be specified in a rule").with()
	}

	for _, check := range []error{
		validateLifecycleFilter(rule.Filter),
		validateExpiration(rule.Expiration, rule.Filter),
		validateTransitions(rule),
		validateCleanup(rule),
	} {
		if check != nil {
			return check
		}
	}

	return nil
}

// validateCleanup checks the days after which old versions and unfinished uploads are removed.
func validateCleanup(rule *s3.LifecycleRule) error {
	if e := rule.NoncurrentVersionExpiration; e != nil && !isPositive(e.NoncurrentDays) {
		return newErrorf(
			invalidArgument,
			"'NoncurrentDays' for NoncurrentVersionExpiration action must be a positive integer",
		).with()
	}

	if a := rule.AbortIncompleteMultipartUpload; a != nil && !isPositive(a.DaysAfterInitiation) {
		return newErrorf(
			invalidArgument,
			"'DaysAfterInitiation' for AbortIncompleteMultipartUpload action must be a positive integer",
		).with()
	}

	return nil
}

func isPositive(n *int64) bool { return n != nil && *n > 0 }

// countTrue returns the number of flags that are true.
func countTrue(flags ...bool) (n int) {
	for _, f := range flags {
		if f {
			n++
		}
	}

	return n
}

// validateLifecycleFilter checks that a filter has at most one condition; And combines several.
func validateLifecycleFilter(f *s3.LifecycleRuleFilter) error {
	if f == nil {
		return nil
	}

	conditions := countTrue(
		f.And != nil,
		f.Prefix != nil,
		f.Tag != nil,
		f.ObjectSizeGreaterThan != nil,
		f.ObjectSizeLessThan != nil,
	)
	if conditions > 1 {
		return newError(malformedXML)
	}

	return nil
}

func validateExpiration(e *s3.LifecycleExpiration, f *s3.LifecycleRuleFilter) error {
	if e == nil {
		return nil
	}

	given := countTrue(e.Days != nil, e.Date != nil, e.ExpiredObjectDeleteMarker != nil)
	hasTag := f != nil && (f.Tag != nil || f.And != nil && len(f.And.Tags) > 0)

	switch {
	case given != 1:
		return newError(malformedXML)
	case e.Days != nil && !isPositive(e.Days):
		return newErrorf(invalidArgument, "'Days' for Expiration action must be a positive integer").with()
	case e.Date != nil && !isMidnight(*e.Date):
		return newErrorf(invalidArgument, "'Date' must be at midnight GMT").with()
	case e.ExpiredObjectDeleteMarker != nil && hasTag:
		return newErrorf(invalidRequest, "ExpiredObjectDeleteMarker cannot be specified with Tags.").with()
	}

	return nil
}

func isMidnight(t time.Time) bool { return t.UTC().Equal(t.UTC().Truncate(24 * time.Hour)) }

func validateTransitions(rule *s3.LifecycleRule) error {
	for _, t := range rule.Transitions {
		switch {
		case (t.Days == nil) == (t.Date == nil),
			!slices.Contains(s3.TransitionStorageClass_Values(), stringValue(t.StorageClass)):
			return newError(malformedXML)
		case t.Days != nil && *t.Days < 0:
			return newErrorf(invalidArgument, "'Days' for Transition action must be nonnegative").with()
		case t.Date != nil && !isMidnight(*t.Date):
			return newErrorf(invalidArgument, "'Date' must be at midnight GMT").with()
		}
	}

	for _, t := range rule.NoncurrentVersionTransitions {
		known := slices.Contains(s3.TransitionStorageClass_Values(), stringValue(t.StorageClass))
		if !known || t.NoncurrentDays == nil || *t.NoncurrentDays < 0 {
			return newError(malformedXML)
		}
	}

	return nil
}
