// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) listBuckets(ctx context.Context, _ *s3.ListBucketsInput) (*s3.ListBucketsOutput, error) {
	if err := wire.Authorize(ctx, wire.AccessCheck{Action: "s3:ListAllMyBuckets"}); err != nil {
		return nil, err
	}

	out := &s3.ListBucketsOutput{Owner: &s3.Owner{ID: new("slipway")}}
	s.store.View(func() {
		buckets := s.catalog.buckets
		for _, name := range slices.Sorted(maps.Keys(buckets)) {
			out.Buckets = append(out.Buckets, &s3.Bucket{Name: &name, CreationDate: new(buckets[name].Created)})
		}
	})

	return out, nil
}

func (s *Service) createBucket(
	ctx context.Context,
	in *s3.CreateBucketInput,
) (*s3.CreateBucketOutput, error) {
	if err := s.authorizeObject(ctx, "CreateBucket", *in.Bucket, ""); err != nil {
		return nil, err
	}

	if !regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`).MatchString(*in.Bucket) {
		return nil, wire.Errorf("InvalidBucketName", "The specified bucket is not valid: %s", *in.Bucket)
	}

	location := ""
	if c := in.CreateBucketConfiguration; c != nil {
		location = stringValue(c.LocationConstraint)
	}

	if location != stringValue(s.locationConstraint()) {
		return nil, wire.Errorf(
			"IllegalLocationConstraintException",
			"The %s location constraint is incompatible for the region specific endpoint "+
				"this request was sent to.",
			location,
		)
	}

	if err := s.store.WithLock(func() error { return s.addBucket(*in.Bucket) }); err != nil {
		return nil, err
	}

	return &s3.CreateBucketOutput{Location: new("/" + *in.Bucket)}, nil
}

// addBucket creates an empty bucket. The caller holds the lock.
func (s *Service) addBucket(name string) error {
	if s.catalog.buckets[name] != nil || s.mountedDirs[name] != "" {
		return &wire.Error{
			Code:    "BucketAlreadyOwnedByYou",
			Message: "Your previous request to create the named bucket succeeded and you already own it.",
			Status:  http.StatusConflict,
		}
	}

	if err := os.MkdirAll(s.bucketDir(name), 0o700); err != nil {
		return err
	}

	b := &bucket{
		Name:     name,
		Created:  s.cfg.Now().UTC(),
		Versions: map[string][]objectVersion{},
		Config:   map[string]json.RawMessage{},
		Uploads:  map[string]*multipartUpload{},
	}
	s.catalog.buckets[name] = b
	s.markChanged(b)

	return nil
}

func (s *Service) headBucket(ctx context.Context, in *s3.HeadBucketInput) (*s3.HeadBucketOutput, error) {
	if err := s.checkBucket(in.Bucket); err != nil {
		return nil, &wire.Error{Code: "NotFound", Message: "Not Found", Status: http.StatusNotFound}
	}

	if err := s.authorizeList(ctx, *in.Bucket, ""); err != nil {
		return nil, err
	}

	wire.SetResponseHeader(ctx, "X-Amz-Bucket-Region", s.cfg.Region)

	return &s3.HeadBucketOutput{}, nil
}

func (s *Service) deleteBucket(
	ctx context.Context,
	in *s3.DeleteBucketInput,
) (*s3.DeleteBucketOutput, error) {
	if err := s.authorizeObject(ctx, "DeleteBucket", *in.Bucket, ""); err != nil {
		return nil, err
	}

	if err := s.store.WithLock(func() error { return s.removeEmptyBucket(*in.Bucket) }); err != nil {
		return nil, err
	}

	wire.SetResponseStatus(ctx, http.StatusNoContent)

	return &s3.DeleteBucketOutput{}, nil
}

// removeEmptyBucket removes a bucket without objects. The caller holds the lock. There is nothing to save: a
// bucket without a directory does not exist.
func (s *Service) removeEmptyBucket(name string) error {
	b, err := s.catalog.findBucket(name)
	if err != nil {
		return err
	}

	if len(b.Versions) > 0 {
		return &wire.Error{
			Code:    "BucketNotEmpty",
			Message: "The bucket you tried to delete is not empty",
			Status:  http.StatusConflict,
		}
	}

	if err := s.catalog.removeBucket(name); err != nil {
		return err
	}

	delete(s.access, name)

	return nil
}

func (s *Service) getBucketLocation(
	ctx context.Context,
	in *s3.GetBucketLocationInput,
) (*s3.GetBucketLocationOutput, error) {
	if err := s.authorizeObject(ctx, "GetBucketLocation", *in.Bucket, ""); err != nil {
		return nil, err
	}

	if err := s.checkBucket(in.Bucket); err != nil {
		return nil, err
	}

	return &s3.GetBucketLocationOutput{LocationConstraint: s.locationConstraint()}, nil
}

// bucketSetting is one of a bucket's settings. It is stored as the JSON of its aws-sdk-go shape and returned
// unchanged.
type bucketSetting struct {
	name         string // suffix of the operations after Get, Put and Delete, such as BucketPolicy
	action       string // suffix of the IAM actions after Get and Put
	notFoundCode string // error code of Get if the setting is not set; empty returns an empty setting
}

// newPutOperation returns the operation that sets a setting. read returns the bucket and the value from the
// input.
func newPutOperation[I, O, V any](
	s *Service,
	c bucketSetting,
	read func(*I) (bucket *string, v *V),
) wire.Operation {
	return wire.NewOperation("Put"+c.name, func(ctx context.Context, in *I) (*O, error) {
		name, v := read(in)
		if err := s.authorizeObject(ctx, "Put"+c.action, *name, ""); err != nil {
			return nil, err
		}

		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}

		return new(O), s.updateSetting(name, c.name, raw)
	})
}

// newGetOperation returns the operation that reads a setting. bucketOf returns the bucket from the input, and
// write sets the value in the output.
func newGetOperation[I, O, V any](
	s *Service,
	c bucketSetting,
	bucketOf func(*I) *string,
	write func(*O, *V),
) wire.Operation {
	return wire.NewOperation("Get"+c.name, func(ctx context.Context, in *I) (*O, error) {
		name := bucketOf(in)
		if err := s.authorizeObject(ctx, "Get"+c.action, *name, ""); err != nil {
			return nil, err
		}

		raw, ok, err := s.readSetting(name, c.name)
		if err != nil {
			return nil, err
		}

		out := new(O)
		v := new(V)
		if !ok && c.notFoundCode != "" {
			return nil, &wire.Error{
				Code:    c.notFoundCode,
				Message: "The " + c.name + " does not exist",
				Status:  http.StatusNotFound,
			}
		}

		if ok {
			if err := json.Unmarshal(raw, v); err != nil {
				return nil, err
			}

			write(out, v)
		}

		return out, nil
	})
}

// newDeleteOperation returns the operation that removes a setting. As in AWS, it needs the right to set it.
func newDeleteOperation[I, O any](s *Service, op string, c bucketSetting, bucketOf func(*I) *string) wire.Operation {
	return wire.NewOperation(op, func(ctx context.Context, in *I) (*O, error) {
		if err := s.authorizeObject(ctx, "Put"+c.action, *bucketOf(in), ""); err != nil {
			return nil, err
		}

		wire.SetResponseStatus(ctx, http.StatusNoContent)

		return new(O), s.updateSetting(bucketOf(in), c.name, nil)
	})
}

// readSetting returns a setting; ok is false if it is not set.
func (s *Service) readSetting(name *string, key string) (raw json.RawMessage, ok bool, err error) {
	err = s.viewBucket(name, func(b *bucket) error {
		raw, ok = b.Config[key]
		return nil
	})

	return raw, ok, err
}

// updateSetting sets a setting, or removes it if raw is nil.
func (s *Service) updateSetting(name *string, key string, raw json.RawMessage) error {
	return s.updateBucket(name, func(b *bucket) error { return s.applySetting(b, key, raw) })
}

// applySetting changes a setting and the access rules that follow from it. The caller holds the lock.
func (s *Service) applySetting(b *bucket, key string, raw json.RawMessage) error {
	var document string
	if key == policySettingName && raw != nil {
		if err := json.Unmarshal(raw, &document); err != nil {
			return wire.Errorf("MalformedPolicy", "the policy is missing")
		}

		if err := s.validatePolicy(b, document); err != nil {
			return err
		}
	}

	if raw == nil {
		delete(b.Config, key)
	} else {
		b.Config[key] = raw
	}

	return s.refreshAccess(b)
}
