// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	ops := []wire.Operation{
		wire.NewOperation("ListBuckets", s.listBuckets),
		wire.NewOperation("CreateBucket", s.createBucket),
		wire.NewOperation("HeadBucket", s.headBucket),
		wire.NewOperation("DeleteBucket", s.deleteBucket),
		wire.NewOperation("GetBucketLocation", s.getBucketLocation),
		wire.NewOperation("ListObjectsV2", s.listObjectsV2),
		wire.NewOperation("ListObjects", s.listObjects),
		wire.NewOperation("CopyObject", s.copyObject),
		wire.NewOperation("UploadPartCopy", s.uploadPartCopy),
		wire.NewOperation("ListParts", s.listParts),
		wire.NewOperation("ListMultipartUploads", s.listMultipartUploads),
		wire.NewOperation("ListObjectVersions", s.listObjectVersions),
		wire.NewOperation("PutObject", s.putObject),
		wire.NewOperation("GetObject", s.getObject),
		wire.NewOperation("HeadObject", s.headObject),
		wire.NewOperation("DeleteObject", s.deleteObject),
		wire.NewOperation("DeleteObjects", s.deleteObjects),
		wire.NewOperation("CreateMultipartUpload", s.createMultipartUpload),
		wire.NewOperation("UploadPart", s.uploadPart),
		wire.NewOperation("CompleteMultipartUpload", s.completeMultipartUpload),
		wire.NewOperation("AbortMultipartUpload", s.abortMultipartUpload),
	}

	return wire.Service{
		Name:       "s3",
		Protocol:   wire.S3Protocol,
		Version:    "2006-03-01",
		Namespace:  "http://s3.amazonaws.com/doc/2006-03-01/",
		Operations: s.unseen.Wrap(unseenRules(), append(ops, s.settingOps()...)),
		Authorize:  s.authorizeRequest,
		Route:      parseRoute,
	}
}

// bucketSubresources returns the settings of a bucket by the query parameter that selects them, as in GET
// /bucket?policy.
func bucketSubresources() map[string]string {
	return map[string]string{
		"encryption":        encryptionSettingName,
		"lifecycle":         "BucketLifecycleConfiguration",
		"ownershipControls": "BucketOwnershipControls",
		"policy":            policySettingName,
		"publicAccessBlock": publicBlockSettingName,
		"tagging":           "BucketTagging",
		"versioning":        versioningSettingName,
	}
}

// parseRoute finds the operation of a request by its method, path and query. The bucket is in the path, or in
// the first labels of the host.
func parseRoute(r *http.Request) (wire.Route, error) {
	wire.MoveQueryToHeaders(r)
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
		op = objectOperation(r.Method, q, r.Header.Get("X-Amz-Copy-Source"))
	}

	return wire.Route{
		Op:          op,
		Path:        path,
		RootElement: responseRoot(op),
		Names:       routeNames(op),
	}, checkOperation(op, r)
}

// routeNames returns the query parameters that select an operation, and the headers that handlers read although
// the shapes of aws-sdk-go v1 do not have them.
func routeNames(op string) []string {
	for name, setting := range bucketSubresources() {
		if strings.HasSuffix(op, setting) || name == "lifecycle" && op == "DeleteBucketLifecycle" {
			if op == "PutBucketLifecycleConfiguration" {
				return []string{name, transitionSizeHeader}
			}

			return []string{name}
		}
	}

	return map[string][]string{
		"CompleteMultipartUpload": {"x-amz-checksum-type", "x-amz-mp-object-size"},
		"CreateMultipartUpload":   {"uploads", "x-amz-checksum-type"},
		"DeleteObjects":           {"delete"},
		"GetBucketLocation":       {"location"},
		"ListMultipartUploads":    {"uploads"},
		"ListObjectVersions":      {"versions"},
		"ListObjectsV2":           {"list-type"},
	}[op]
}

func checkOperation(op string, r *http.Request) error {
	if op != "" {
		return nil
	}

	return newError(methodNotAllowed, detail("Method", r.Method), detail("ResourceType", r.URL.RequestURI()))
}

func operationForMethod(method string, ops map[string]string) string { return ops[method] }

func bucketOperation(method string, q url.Values) string {
	for name, setting := range bucketSubresources() {
		if q.Has(name) {
			verb := operationForMethod(method, map[string]string{
				http.MethodGet:    "Get",
				http.MethodPut:    "Put",
				http.MethodDelete: "Delete",
			})
			if name == "lifecycle" && verb == "Delete" {
				return "DeleteBucketLifecycle"
			}

			return verb + setting
		}
	}

	for _, name := range unsupportedSubresources() {
		if q.Has(name) {
			return method + " ?" + name // no operation has this name, so the error names the subresource
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
		http.MethodGet:    "ListObjectsV2",
		http.MethodPut:    "CreateBucket",
		http.MethodHead:   "HeadBucket",
		http.MethodDelete: "DeleteBucket",
	})
}

// unsupportedSubresources returns the subresources that a bucket has in S3 and not in the region.
func unsupportedSubresources() []string {
	return []string{
		"accelerate",
		"acl",
		"analytics",
		"cors",
		"intelligent-tiering",
		"inventory",
		"logging",
		"metrics",
		"notification",
		"object-lock",
		"policyStatus",
		"replication",
		"requestPayment",
		"website",
	}
}

// objectOperation returns the operation on an object; empty if there is none for the method. copySource is
// the header x-amz-copy-source.
func objectOperation(method string, q url.Values, copySource string) string {
	isCopy := method == http.MethodPut && copySource != ""

	switch {
	case isCopy && q.Has("uploadId"):
		return "UploadPartCopy"
	case isCopy:
		return "CopyObject"
	case q.Has("uploads"):
		return operationForMethod(method, map[string]string{http.MethodPost: "CreateMultipartUpload"})
	case q.Has("uploadId"):
		return operationForMethod(method, map[string]string{
			http.MethodGet:    "ListParts",
			http.MethodPut:    "UploadPart",
			http.MethodPost:   "CompleteMultipartUpload",
			http.MethodDelete: "AbortMultipartUpload",
		})
	}

	return operationForMethod(method, map[string]string{
		http.MethodGet:    "GetObject",
		http.MethodPut:    "PutObject",
		http.MethodHead:   "HeadObject",
		http.MethodDelete: "DeleteObject",
	})
}

// responseRoot returns the root element of a response; empty if it is the operation's name followed by
// Result.
func responseRoot(op string) string {
	return map[string]string{
		"CreateMultipartUpload":           "InitiateMultipartUploadResult",
		"DeleteObjects":                   "DeleteResult",
		"GetBucketLifecycleConfiguration": "LifecycleConfiguration",
		"GetBucketLocation":               "LocationConstraint",
		"GetBucketTagging":                "Tagging",
		"GetBucketVersioning":             "VersioningConfiguration",
		"ListMultipartUploads":            "ListMultipartUploadsResult",
		"ListObjectVersions":              "ListVersionsResult",
		"ListObjects":                     "ListBucketResult",
		"ListObjectsV2":                   "ListBucketResult",
	}[op]
}

// parseAddress returns the bucket and the key of a request. The bucket is the part of the host before ".s3.",
// or else the first part of the path.
func parseAddress(r *http.Request) (bucket, key string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if host, _, ok := strings.Cut(r.Host, ".s3."); ok {
		return host, path
	}

	bucket, key, _ = strings.Cut(path, "/")

	return bucket, key
}

// locationConstraint returns the location of a region's buckets: nil for us-east-1, as in S3.
func locationConstraint(region string) *string {
	if region == "us-east-1" {
		return nil
	}

	return &region
}
