// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// maxConditionalAttempts is the number of attempts of a conditional write while S3 reports another
// concurrent write of the same object (409).
const maxConditionalAttempts = 5

// maxObjectBytes is the size of the largest object that is read. The largest that Slipway writes
// are its agents.
const maxObjectBytes = 128 << 20

// S3API are the calls of S3 that an S3Store makes.
type S3API interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
	DeleteObjects(context.Context, *s3.DeleteObjectsInput, ...func(*s3.Options)) (*s3.DeleteObjectsOutput, error)
	ListObjectsV2(
		context.Context,
		*s3.ListObjectsV2Input,
		...func(*s3.Options),
	) (*s3.ListObjectsV2Output, error)
}

// S3Store is a Store under a prefix of a bucket.
type S3Store struct {
	api            S3API
	bucket, prefix string
	settings       *Settings // nil until they have been read
	owner          string    // the account that must own the bucket; empty: any
}

// NewS3Store returns the store below a prefix of a bucket. The prefix may be empty.
func NewS3Store(api S3API, bucket, prefix string) *S3Store {
	return &S3Store{api: api, bucket: bucket, prefix: strings.Trim(prefix, "/")}
}

// URL returns the URL of the store: s3://bucket/prefix.
func (s *S3Store) URL() string { return strings.TrimSuffix("s3://"+s.bucket+"/"+s.prefix, "/") }

// Owner returns the account that must own the bucket, of 12 digits; empty: any.
func (s *S3Store) Owner() string { return s.owner }

// setSettings remembers the settings of the store, which never change after initialization.
func (s *S3Store) setSettings(set Settings) { s.settings = &set }

// Settings returns the settings that [Open] has read, and whether it has read any.
func (s *S3Store) Settings() (Settings, bool) {
	if s.settings == nil {
		return Settings{}, false
	}

	return *s.settings, true
}

// Get implements Store.
func (s *S3Store) Get(ctx context.Context, key string) (Object, error) {
	if err := checkRequest(ctx, key); err != nil {
		return Object{}, err
	}

	out, err := s.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.objectKey(key)})
	if err != nil {
		return Object{}, s.wrapError("read", key, s.confirmMissing(ctx, key, err))
	}

	defer func() { _ = out.Body.Close() }()
	body, err := readObject(out)
	if err != nil {
		return Object{}, s.wrapError("read", key, err)
	}

	return Object{Key: key, Body: body, ETag: aws.ToString(out.ETag)}, nil
}

// readObject reads an object into memory. Whoever can write to the bucket chooses its length.
func readObject(out *s3.GetObjectOutput) ([]byte, error) {
	length := aws.ToInt64(out.ContentLength)
	if length > maxObjectBytes {
		return nil, newBigObjectError()
	}

	body, err := io.ReadAll(io.LimitReader(out.Body, maxObjectBytes+1))
	if err != nil {
		return nil, err
	}

	if len(body) > maxObjectBytes {
		return nil, newBigObjectError()
	}

	return body, nil
}

func newBigObjectError() error {
	return diag.WithHint(
		fmt.Errorf("the object has more than %d MiB, which no object of Slipway has", maxObjectBytes>>20),
		"find out who wrote it, and restore the earlier version",
	)
}

// confirmMissing returns [ErrNotFound] instead of denied if S3 refused to read an object that does
// not exist: it does so if the caller may list only some names. An object that is listed, or that
// the caller may not list, stays refused.
func (s *S3Store) confirmMissing(ctx context.Context, key string, denied error) error {
	if !IsAccessDenied(denied) {
		return denied
	}

	listed, err := s.ETags(ctx, key)
	if _, exists := listed[key]; err != nil || exists {
		return denied
	}

	return ErrNotFound
}

// Put implements Store.
func (s *S3Store) Put(ctx context.Context, key string, body []byte) (string, error) {
	return s.putObject(ctx, key, body, s3.PutObjectInput{})
}

// Create implements Store with If-None-Match: *.
func (s *S3Store) Create(ctx context.Context, key string, body []byte) (string, error) {
	return s.putObject(ctx, key, body, s3.PutObjectInput{IfNoneMatch: aws.String("*")})
}

// Update implements Store with If-Match.
func (s *S3Store) Update(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return s.putObject(ctx, key, body, s3.PutObjectInput{IfMatch: &etag})
}

// Delete implements Store.
func (s *S3Store) Delete(ctx context.Context, key string) error {
	if err := checkRequest(ctx, key); err != nil {
		return err
	}

	_, err := s.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: s.objectKey(key)})
	return ignoreNotFound(s.wrapError("delete", key, err))
}

// maxDeletions is how many objects S3 deletes with one request.
const maxDeletions = 1000

// DeleteAll implements BatchDeleter with one request for up to 1,000 objects. S3 deletes the
// objects of a request in no particular order.
func (s *S3Store) DeleteAll(ctx context.Context, keys []string) error {
	for chunk := range slices.Chunk(keys, maxDeletions) {
		in := &s3.DeleteObjectsInput{Bucket: &s.bucket, Delete: &types.Delete{Quiet: aws.Bool(true)}}
		for _, key := range chunk {
			if err := checkRequest(ctx, key); err != nil {
				return err
			}

			in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: s.objectKey(key)})
		}

		if err := s.deleteObjects(ctx, in); err != nil {
			return err
		}
	}

	return nil
}

// deleteObjects sends in. S3 reports objects that it did not delete in a response without an error.
func (s *S3Store) deleteObjects(ctx context.Context, in *s3.DeleteObjectsInput) error {
	doing := fmt.Sprintf("delete %d objects, of which the first is", len(in.Delete.Objects))
	first := s.relativeKey(in.Delete.Objects[0].Key)
	out, err := s.api.DeleteObjects(ctx, in)
	if err != nil {
		return s.wrapError(doing, first, err)
	}

	var errs []error

	for _, e := range out.Errors {
		cause := &smithy.GenericAPIError{Code: aws.ToString(e.Code), Message: aws.ToString(e.Message)}
		errs = append(errs, ignoreNotFound(s.wrapError("delete", s.relativeKey(e.Key), cause)))
	}

	return errors.Join(errs...)
}

// relativeKey returns the key in the store of an object of the bucket.
func (s *S3Store) relativeKey(key *string) string {
	return strings.TrimPrefix(strings.TrimPrefix(aws.ToString(key), s.prefix), "/")
}

// List implements Store.
func (s *S3Store) List(ctx context.Context, prefix string) ([]string, error) {
	etags, err := s.ETags(ctx, prefix)
	if err != nil {
		return nil, err
	}

	return slices.Sorted(maps.Keys(etags)), nil
}

// ListAfterAuditLogs returns the keys of all objects that come after the audit logs, in sorted
// order: those of clusters. There may be thousands of audit logs.
func (s *S3Store) ListAfterAuditLogs(ctx context.Context) ([]string, error) {
	etags, err := s.listETags(ctx, "", auditLogEnd)
	if err != nil {
		return nil, err
	}

	return slices.Sorted(maps.Keys(etags)), nil
}

// ETags returns the ETags of the objects whose keys begin with prefix, by key.
func (s *S3Store) ETags(ctx context.Context, prefix string) (map[string]string, error) {
	return s.listETags(ctx, prefix, "")
}

// listETags returns the ETags of the objects whose keys begin with prefix and come after another
// key, by key.
func (s *S3Store) listETags(ctx context.Context, prefix, after string) (map[string]string, error) {
	base := ""
	if s.prefix != "" {
		base = s.prefix + "/"
	}

	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(base + prefix)}
	if after != "" {
		in.StartAfter = aws.String(base + after)
	}

	pages := s3.NewListObjectsV2Paginator(s.api, in)
	out := map[string]string{}

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s.wrapError("list", prefix, err)
		}

		for _, o := range page.Contents {
			out[strings.TrimPrefix(aws.ToString(o.Key), base)] = aws.ToString(o.ETag)
		}
	}

	return out, nil
}

func (s *S3Store) objectKey(key string) *string { return aws.String(path.Join(s.prefix, key)) }

// putObject sends in. It retries after a 409, which means that a concurrent conditional write of
// the same object was not decided yet.
func (s *S3Store) putObject(
	ctx context.Context,
	key string,
	body []byte,
	in s3.PutObjectInput,
) (string, error) {
	if err := checkRequest(ctx, key); err != nil {
		return "", err
	}

	in.Bucket = &s.bucket
	in.Key = s.objectKey(key)
	var err error

	for range maxConditionalAttempts {
		in.Body = bytes.NewReader(body)
		var out *s3.PutObjectOutput
		if out, err = s.api.PutObject(ctx, &in); err == nil {
			return aws.ToString(out.ETag), nil
		}

		if errorCode(err) != "ConditionalRequestConflict" {
			break
		}
	}

	return "", s.wrapError("write", key, err)
}

// wrapError adds the operation and the object to an error, and maps the error codes of S3 to the
// errors of this package.
func (s *S3Store) wrapError(doing, key string, err error) error {
	if err == nil {
		return nil
	}

	switch errorCode(err) {
	case "NoSuchKey", "NotFound":
		err = ErrNotFound
	case "NoSuchBucket":
		err = fmt.Errorf("bucket %s does not exist: %w", s.bucket, ErrNotFound)
	case "PreconditionFailed", "ConditionalRequestConflict":
		err = ErrConflict
	}

	wrapped := fmt.Errorf("%s %s in %s: %w", doing, key, s.URL(), plainerror.Wrap(err))
	if s.owner == "" || !IsAccessDenied(err) {
		return wrapped
	}

	return diag.WithHint(wrapped, "check your permissions, and that account "+s.owner+" owns bucket "+s.bucket+
		"; if another account owns the bucket of the state on purpose, set SLIPWAY_STATE_OWNER to that account")
}

// IsAccessDenied reports whether a store in S3 has refused a call because its caller may not make
// it.
func IsAccessDenied(err error) bool { return errorCode(err) == "AccessDenied" }

// errorCode returns the AWS error code of an error, or "" if it has none.
func errorCode(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}

	return ""
}
