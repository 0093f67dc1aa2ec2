// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"net/http"
	"regexp"
	"slices"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// storageClassHeader is the header with the storage class of an object; S3 omits it for STANDARD.
const storageClassHeader = "X-Amz-Storage-Class"

// authorizeRequest refuses requests for the bucket of another account, before the handlers decide who may do
// what.
func (s *Service) authorizeRequest(_ context.Context, _ string, in any) error {
	if err := s.checkOwner(wire.StringMember(in, "Bucket"), wire.StringMember(in, "ExpectedBucketOwner")); err != nil {
		return err
	}

	owner := wire.StringMember(in, "ExpectedSourceBucketOwner")
	if owner == "" {
		return nil
	}

	source, err := parseCopySource(wire.StringMember(in, "CopySource"))
	if err != nil {
		return err
	}

	return s.checkOwner(source.bucket, owner)
}

// checkOwner refuses a bucket that does not belong to the account that the client expects; an empty account
// expects nothing.
func (s *Service) checkOwner(bucket, account string) error {
	if account == "" {
		return nil
	}

	if !regexp.MustCompile(`^[0-9]{12}$`).MatchString(account) {
		return newError(invalidBucketOwner, detail("ArgumentName", "x-amz-expected-bucket-owner"))
	}

	if err := s.checkBucket(&bucket); err != nil {
		return err
	}

	if account != s.cfg.Account {
		return newError(accessDenied)
	}

	return nil
}

// checkACL refuses canned ACLs except those that give nobody any rights: the region's buckets are without ACLs,
// as the new buckets of S3 are.
func checkACL(acl *string, allowed string) error {
	if v := stringValue(acl); v != "" && v != allowed {
		return newError(aclNotSupported)
	}

	return nil
}

// setStorageClass puts the storage class of a request into the headers of an object. The region has the
// classes whose objects can be read at once.
func setStorageClass(headers map[string]string, class *string) error {
	delete(headers, storageClassHeader)

	switch v := stringValue(class); {
	case v == "", v == s3.StorageClassStandard:
	case slices.Contains(instantClasses(), v):
		headers[storageClassHeader] = v
	case slices.Contains(s3.StorageClass_Values(), v):
		return wire.NotImplemented("x-amz-storage-class: " + v)
	default:
		return newError(invalidStorageClass, detail("StorageClassRequested", v))
	}

	return nil
}

// instantClasses returns the storage classes whose objects can be read without restoring them, except STANDARD.
func instantClasses() []string {
	return []string{
		s3.StorageClassReducedRedundancy,
		s3.StorageClassStandardIa,
		s3.StorageClassOnezoneIa,
		s3.StorageClassIntelligentTiering,
		s3.StorageClassGlacierIr,
	}
}

// storageClass returns the storage class of a version.
func (v objectVersion) storageClass() *string {
	if class := v.Headers[storageClassHeader]; class != "" {
		return &class
	}

	return new(s3.StorageClassStandard)
}

// contentHeaders returns the headers of a write that a read returns unchanged.
func contentHeaders(h http.Header) map[string]string {
	out := map[string]string{}
	for _, name := range []string{
		"Cache-Control",
		"Content-Disposition",
		"Content-Encoding",
		"Content-Language",
		"Expires",
	} {
		if value := h.Get(name); value != "" {
			out[name] = value
		}
	}

	return out
}
