// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Wire is the service as the wire layer serves it.
func (s *Service) Wire() wire.Service {
	ops := []wire.Op{
		wire.Operation("ListBuckets", s.listBuckets),
		wire.Operation("CreateBucket", s.createBucket),
		wire.Operation("HeadBucket", s.headBucket),
		wire.Operation("DeleteBucket", s.deleteBucket),
		wire.Operation("GetBucketLocation", s.getBucketLocation),
		wire.Operation("ListObjectsV2", s.listObjectsV2),
		wire.Operation("ListObjects", s.listObjects),
		wire.Operation("CopyObject", s.copyObject),
		wire.Operation("UploadPartCopy", s.uploadPartCopy),
		wire.Operation("ListParts", s.listParts),
		wire.Operation("ListMultipartUploads", s.listMultipartUploads),
		wire.Operation("ListObjectVersions", s.listObjectVersions),
		wire.Operation("PutObject", s.putObject),
		wire.Operation("GetObject", s.getObject),
		wire.Operation("HeadObject", s.headObject),
		wire.Operation("DeleteObject", s.deleteObject),
		wire.Operation("DeleteObjects", s.deleteObjects),
		wire.Operation("CreateMultipartUpload", s.createMultipartUpload),
		wire.Operation("UploadPart", s.uploadPart),
		wire.Operation("CompleteMultipartUpload", s.completeMultipartUpload),
		wire.Operation("AbortMultipartUpload", s.abortMultipartUpload),
	}

	return wire.Service{
		Name:      "s3",
		Protocol:  wire.S3Protocol,
		Version:   "2006-03-01",
		Namespace: "http://s3.amazonaws.com/doc/2006-03-01/",
		Ops:       append(ops, s.settingOps()...),
		Authorize: wire.AuthorizedInHandlers,
		Route:     parseRoute,
	}
}

// bucketSubresources are the query parameters that make another operation of a method on a bucket.
func bucketSubresources() map[string]string {
	return map[string]string{
		"versioning": "BucketVersioning", "policy": "BucketPolicy", "publicAccessBlock": "PublicAccessBlock",
		"encryption": "BucketEncryption", "tagging": "BucketTagging", "ownershipControls": "BucketOwnershipControls",
		"lifecycle": "BucketLifecycleConfiguration",
	}
}

// parseRoute finds the operation in method, path and query. Buckets are in the path, or in the host's first labels.
func parseRoute(r *http.Request) (wire.Route, error) {
	name, key := parseAddress(r)
	q := r.URL.Query()
	path := map[string]string{"Bucket": name, "Key": key}
	var op string

	switch {
	case name == "":
		op = operationForMethod(r.Method, map[string]string{http.MethodGet: "ListBuckets"})
		return wire.Route{Op: op, Path: path, RootElement: "ListAllMyBucketsResult"}, checkOperation(op, r)
	case key == "":
		op = bucketOperation(r.Method, q)
	default:
		op = objectOperation(r.Method, q, r.Header.Get("X-Amz-Copy-Source") != "")
	}

	return wire.Route{Op: op, Path: path, RootElement: responseRoot(op)}, checkOperation(op, r)
}

func checkOperation(op string, r *http.Request) error {
	if op != "" {
		return nil
	}

	return &wire.Error{
		Code:    "MethodNotAllowed",
		Message: "The specified method is not allowed against this resource: " + r.Method + " " + r.URL.RequestURI(),
		Status:  http.StatusMethodNotAllowed,
	}
}

func operationForMethod(method string, ops map[string]string) string { return ops[method] }

func bucketOperation(method string, q url.Values) string {
	for name, setting := range bucketSubresources() {
		if q.Has(name) {
			verb := operationForMethod(
				method,
				map[string]string{http.MethodGet: "Get", http.MethodPut: "Put", http.MethodDelete: "Delete"},
			)
			if name == "lifecycle" && verb == "Delete" {
				return "DeleteBucketLifecycle"
			}

			return verb + setting
		}
	}

	for _, name := range []string{
		"acl", "cors", "logging", "website", "notification", "replication", "requestPayment", "accelerate", "object-lock",
		"policyStatus", "analytics", "inventory", "metrics", "intelligent-tiering",
	} {
		if q.Has(name) {
			return method + " ?" + name // S3 has it and the region does not, which the answer says by this name
		}
	}

	for name, ops := range map[string]map[string]string{
		"uploads":  {http.MethodGet: "ListMultipartUploads"},
		"location": {http.MethodGet: "GetBucketLocation"},
		"versions": {http.MethodGet: "ListObjectVersions"},
		"delete":   {http.MethodPost: "DeleteObjects"},
	} {
		if q.Has(name) {
			return operationForMethod(method, ops)
		}
	}

	if method == http.MethodGet && q.Get("list-type") != "2" {
		return "ListObjects"
	}

	return operationForMethod(method, map[string]string{
		http.MethodGet: "ListObjectsV2", http.MethodPut: "CreateBucket", http.MethodHead: "HeadBucket", http.MethodDelete: "DeleteBucket",
	})
}

func objectOperation(method string, q url.Values, copying bool) string { //revive:disable-line:flag-parameter
	switch {
	case copying && method == http.MethodPut && q.Has("uploadId"):
		return "UploadPartCopy"
	case copying && method == http.MethodPut:
		return "CopyObject"
	case q.Has("uploads"):
		return operationForMethod(method, map[string]string{http.MethodPost: "CreateMultipartUpload"})
	case q.Has("uploadId"):
		return operationForMethod(method, map[string]string{
			http.MethodGet: "ListParts", http.MethodPut: "UploadPart", http.MethodPost: "CompleteMultipartUpload", http.MethodDelete: "AbortMultipartUpload",
		})
	}

	return operationForMethod(method, map[string]string{
		http.MethodGet: "GetObject", http.MethodPut: "PutObject", http.MethodHead: "HeadObject", http.MethodDelete: "DeleteObject",
	})
}

// responseRoot is the root element of an answer, where it is not the operation's name and Result.
func responseRoot(op string) string {
	return map[string]string{
		"ListObjectsV2": "ListBucketResult", "ListObjects": "ListBucketResult", "ListMultipartUploads": "ListMultipartUploadsResult", "ListObjectVersions": "ListVersionsResult", "DeleteObjects": "DeleteResult",
		"CreateMultipartUpload": "InitiateMultipartUploadResult", "GetBucketVersioning": "VersioningConfiguration",
		"GetBucketTagging": "Tagging", "GetBucketLifecycleConfiguration": "LifecycleConfiguration",
		"GetBucketLocation": "LocationConstraint",
	}[op]
}

// parseAddress reads bucket and key: bucket.s3.… in the host, else the first part of the path.
func parseAddress(r *http.Request) (bucket, key string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if host, _, ok := strings.Cut(r.Host, ".s3."); ok {
		return host, path
	}

	bucket, key, _ = strings.Cut(path, "/")

	return bucket, key
}

// region is where a bucket lies as S3 says it: nothing for us-east-1.
func (s *Service) locationConstraint() *string {
	if s.cfg.Region == "us-east-1" {
		return nil
	}

	return &s.cfg.Region
}
