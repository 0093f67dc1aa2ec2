// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) createBucket(
	ctx context.Context,
	in *createBucketInput,
) (*s3.CreateBucketOutput, error) {
	if err := s.authorizeObject(ctx, "CreateBucket", *in.Bucket, ""); err != nil {
		return nil, err
	}

	if !isBucketName(*in.Bucket) {
		return nil, newError(invalidBucketName, detail("BucketName", *in.Bucket))
	}

	if err := s.checkNewBucket(in); err != nil {
		return nil, err
	}

	if err := in.checkNewTags(ctx); err != nil {
		return nil, err
	}

	if err := s.store.WithLock(func() error { return s.addBucket(*in.Bucket, in.newTags()) }); err != nil {
		return nil, err
	}

	wire.SetResponseHeader(ctx, bucketARNHeader, bucketARN(*in.Bucket))

	return &s3.CreateBucketOutput{Location: new(newBucketLocation(s.cfg.Region, *in.Bucket))}, nil
}

// bucketARNHeader is the header with the ARN of a bucket, which the shapes of aws-sdk-go v1 do not have.
const bucketARNHeader = "X-Amz-Bucket-Arn"

func bucketARN(name string) string { return "arn:aws:s3:::" + name }

// newBucketLocation returns what S3 tells about the location of a new bucket in a region: its path in us-east-1, its address in
// regions that have a location constraint.
func newBucketLocation(region, name string) string {
	if locationConstraint(region) == nil {
		return "/" + name
	}

	return "http://" + name + ".s3.amazonaws.com/"
}

// checkNewBucket refuses the location and the options of a new bucket that S3 or the region refuse.
func (s *Service) checkNewBucket(in *createBucketInput) error {
	if isTrue(in.ObjectLockEnabledForBucket) {
		return wire.NotImplemented("x-amz-bucket-object-lock-enabled: true")
	}

	if err := checkACL(in.ACL, s3.BucketCannedACLPrivate); err != nil {
		return err
	}

	ownership := stringValue(in.ObjectOwnership)
	if ownership != "" && ownership != s3.ObjectOwnershipBucketOwnerEnforced {
		return wire.NotImplemented("x-amz-object-ownership: " + ownership)
	}

	location := ""
	if c := in.CreateBucketConfiguration; c != nil {
		location = stringValue(c.LocationConstraint)
	}

	return s.checkLocation(location)
}

// checkLocation refuses a location constraint that is not the region's. us-east-1 has none.
func (s *Service) checkLocation(location string) error {
	switch {
	case location == stringValue(locationConstraint(s.cfg.Region)):
		return nil
	case location == "":
		location = "unspecified"
	case location == "us-east-1" && locationConstraint(s.cfg.Region) == nil || location != "EU" && !isRegionName(location):
		return newError(invalidLocation, detail("LocationConstraint", location))
	}

	return newErrorf(
		illegalLocation,
		"The %s location constraint is incompatible for the region specific endpoint this request was sent to.",
		location,
	).with()
}

// isRegionName reports whether a name has the form of a region's.
func isRegionName(name string) bool {
	return regexp.MustCompile(`^[a-z]{2,3}(-[a-z]+)+-[0-9]+$`).MatchString(name)
}

// isBucketName reports whether a name follows S3's rules for names of buckets.
func isBucketName(name string) bool {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`).MatchString(name) &&
		!regexp.MustCompile(`^[0-9]+(\.[0-9]+){3}$|\.\.|^xn--|^sthree-|-s3alias$|--ol-s3$`).MatchString(name)
}

// newBucketSettings returns the settings of a new bucket: encryption by S3, no public access, no ACLs, and its tags.
func newBucketSettings(tags []*s3.Tag) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	settings := map[string]any{
		encryptionSettingName: defaultEncryption(),
		publicBlockSettingName: s3.PublicAccessBlockConfiguration{
			BlockPublicAcls:       new(true),
			BlockPublicPolicy:     new(true),
			IgnorePublicAcls:      new(true),
			RestrictPublicBuckets: new(true),
		},
		ownershipSettingName: s3.OwnershipControls{Rules: []*s3.OwnershipControlsRule{
			{ObjectOwnership: new(s3.ObjectOwnershipBucketOwnerEnforced)},
		}},
	}
	if len(tags) > 0 {
		settings[taggingSettingName] = s3.Tagging{TagSet: tags}
	}

	for name, value := range settings {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}

		out[name] = raw
	}

	return out, nil
}

// addBucket creates an empty bucket with tags. The caller holds the lock.
func (s *Service) addBucket(name string, tags []*s3.Tag) error {
	if s.catalog.buckets[name] != nil && s.cfg.Region == "us-east-1" && len(tags) == 0 {
		return nil // as S3 in us-east-1, for compatibility with old clients
	}

	if s.catalog.buckets[name] != nil || s.mountedDirs[name] != "" {
		return newError(bucketAlreadyOwned, detail("BucketName", name))
	}

	settings, err := newBucketSettings(tags)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(s.bucketDir(name), 0o700); err != nil {
		return err
	}

	b := &bucket{
		Name:     name,
		Created:  s.cfg.Now().UTC(),
		Versions: map[string][]objectVersion{},
		Config:   settings,
		Uploads:  map[string]*multipartUpload{},
	}
	s.catalog.buckets[name] = b
	s.unseen.Track(name)
	s.markChanged(b)

	return s.refreshAccess(b)
}

// newHeadError returns the error of a HEAD request about something that does not exist: the answer has no body.
func newHeadError() error {
	return newError(notFound)
}

func (s *Service) headBucket(ctx context.Context, in *s3.HeadBucketInput) (*s3.HeadBucketOutput, error) {
	if err := s.checkBucket(in.Bucket); err != nil {
		return nil, newHeadError()
	}

	if err := s.authorizeList(ctx, *in.Bucket, ""); err != nil {
		return nil, err
	}

	wire.SetResponseHeader(ctx, "Content-Type", "application/xml")
	wire.SetResponseHeader(ctx, "X-Amz-Bucket-Region", s.cfg.Region)
	wire.SetResponseHeader(ctx, "X-Amz-Access-Point-Alias", "false")
	wire.SetResponseHeader(ctx, bucketARNHeader, bucketARN(*in.Bucket))

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

// newNotEmptyError returns the error for a bucket that cannot be deleted because it has objects, or versions of some.
func (b *bucket) newNotEmptyError() error {
	message := bucketNotEmpty.message()
	if _, set := b.Config[versioningSettingName]; set {
		message += ". You must delete all versions in the bucket."
	}

	return newErrorf(bucketNotEmpty, "%s", message).with(detail("BucketName", b.Name))
}

// removeEmptyBucket removes a bucket without objects. The caller holds the lock. There is nothing to save: a
// bucket without a directory does not exist.
func (s *Service) removeEmptyBucket(name string) error {
	b, err := s.catalog.findBucket(name)
	if err != nil {
		return err
	}

	if len(b.Versions) > 0 {
		return b.newNotEmptyError()
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

	return &s3.GetBucketLocationOutput{LocationConstraint: locationConstraint(s.cfg.Region)}, nil
}

// bucketSetting is one of a bucket's settings. It is stored as the JSON of its aws-sdk-go shape and returned
// unchanged.
type bucketSetting struct {
	name   string // suffix of the operations after Get, Put and Delete, such as BucketPolicy
	action string // suffix of the IAM actions after Get and Put
	// notFound is the error of Get if the setting is not set; empty returns an empty setting.
	notFound errorCode
	// putStatus is the status of a successful Put; 0 for 200.
	putStatus int
	// defaults are headers of Put and Get by name, with the value that S3 has by default and the region always has.
	defaults map[string]string
	// unsets reports whether Put with a value in JSON deletes the setting; nil if no value does.
	unsets func(raw json.RawMessage) bool
}

// checkDefaults refuses a request for another value than the default of a header.
func (c bucketSetting) checkDefaults(asked http.Header) error {
	for name, value := range c.defaults {
		if got := asked.Get(name); got != "" && got != value {
			return wire.NotImplemented(name + ": " + got)
		}
	}

	return nil
}

// setDefaults adds the defaults to a response.
func (c bucketSetting) setDefaults(ctx context.Context) {
	for name, value := range c.defaults {
		wire.SetResponseHeader(ctx, name, value)
	}
}

// newPutOperation returns the operation that sets a setting. read returns the bucket and the value from the
// input, and check refuses an invalid value.
func newPutOperation[I, O, V any](
	s *Service,
	c bucketSetting,
	read func(*I) (bucket *string, v *V),
	check func(*V) error,
) wire.Operation {
	return wire.NewOperation("Put"+c.name, func(ctx context.Context, in *I) (*O, error) {
		name, v := read(in)
		if err := s.authorizeObject(ctx, "Put"+c.action, *name, ""); err != nil {
			return nil, err
		}

		if v == nil {
			return nil, newError(malformedXML)
		}

		if err := c.checkDefaults(wire.HTTPRequest(ctx).Header); err != nil {
			return nil, err
		}

		if err := check(v); err != nil {
			return nil, err
		}

		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}

		if c.unsets != nil && c.unsets(raw) {
			raw = nil
		}

		if c.putStatus != 0 {
			wire.SetResponseStatus(ctx, c.putStatus)
		}

		c.setDefaults(ctx)

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
		if !ok && c.notFound != "" {
			return nil, newError(c.notFound, detail("BucketName", *name))
		}

		if ok {
			if err := json.Unmarshal(raw, v); err != nil {
				return nil, err
			}

			write(out, v)
			c.setDefaults(ctx)
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
			return newErrorf(malformedPolicy, "Policies must be valid JSON and the first byte must be '{'").with()
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
