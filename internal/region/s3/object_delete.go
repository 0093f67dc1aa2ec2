// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) deleteObject(
	ctx context.Context,
	in *s3.DeleteObjectInput,
) (*s3.DeleteObjectOutput, error) {
	if err := checkVersionID(in.VersionId); err != nil {
		return nil, err
	}

	v, err := s.removeVersion(ctx, in.Bucket, *in.Key, in.VersionId, wire.HTTPRequest(ctx).Header)
	if err != nil {
		return nil, err
	}

	wire.SetResponseStatus(ctx, http.StatusNoContent)
	out := &s3.DeleteObjectOutput{VersionId: responseVersionID(v)}
	if in.VersionId != nil {
		out.VersionId = in.VersionId
	}

	if v.Marker {
		out.DeleteMarker = new(true)
	}

	return out, nil
}

// removeVersion deletes a version permanently, or a key if id is nil: by a delete marker if the bucket has
// versioning, else permanently. It returns the deleted version or the delete marker.
func (s *Service) removeVersion(
	ctx context.Context,
	name *string,
	key string,
	id *string,
	h http.Header,
) (objectVersion, error) {
	action := "DeleteObject"
	if id != nil {
		action = "DeleteObjectVersion"
	}

	if err := s.authorizeObject(ctx, action, *name, key); err != nil {
		return objectVersion{}, err
	}

	var removed objectVersion
	var old []objectVersion
	err := s.updateKey(name, key, func(b *bucket) error {
		if h.Get("If-Match") != "" {
			if err := b.checkWriteConditions(h, key); err != nil {
				return err
			}
		}

		if id == nil && b.hasVersioningConfig() {
			b.addVersion(key, objectVersion{Marker: true, Modified: s.cfg.Now().UTC()})
			removed = b.Versions[key][0]
		} else {
			removed, old = b.deleteVersion(key, id)
		}

		return nil
	})
	if err != nil {
		return removed, err
	}

	s.removeFiles(*name, old)

	return removed, nil
}

// deleteVersion removes a version of a key from the index; the version "null" if id is nil. It returns the
// version, which has only an id if it did not exist, and the versions whose bodies must be removed.
func (b *bucket) deleteVersion(key string, id *string) (removed objectVersion, old []objectVersion) {
	removed.ID = nullVersion
	if id != nil {
		removed.ID = *id
	}

	wanted := removed.ID
	b.Versions[key] = slices.DeleteFunc(b.Versions[key], func(v objectVersion) bool {
		if v.ID == wanted {
			old = append(old, v)
			removed = v
		}

		return v.ID == wanted
	})
	if len(b.Versions[key]) == 0 {
		delete(b.Versions, key)
	}

	return removed, old
}

// maxDeletions is how many objects one request may delete.
const maxDeletions = 1000

// checkDeletions checks what S3 requires of a request that deletes objects: a checksum of its body, and a list
// of 1 to 1000 keys.
func checkDeletions(ctx context.Context, list *s3.Delete) error {
	if !wire.HasBodyChecksum(wire.HTTPRequest(ctx)) {
		return newErrorf(invalidRequest, "Missing required header for this request: Content-MD5").with()
	}

	if list == nil || len(list.Objects) == 0 || len(list.Objects) > maxDeletions {
		return newError(malformedXML)
	}

	return nil
}

func (s *Service) deleteObjects(
	ctx context.Context,
	in *s3.DeleteObjectsInput,
) (*s3.DeleteObjectsOutput, error) {
	if err := checkDeletions(ctx, in.Delete); err != nil {
		return nil, err
	}

	if err := s.checkBucket(in.Bucket); err != nil {
		return nil, err
	}

	out := &s3.DeleteObjectsOutput{}
	for _, o := range in.Delete.Objects {
		deleted, err := s.deleteListed(ctx, in.Bucket, o)
		if err != nil {
			out.Errors = append(out.Errors, toListedError(o, err))
			continue
		}

		if !isTrue(in.Delete.Quiet) {
			out.Deleted = append(out.Deleted, deleted)
		}
	}

	return out, nil
}

// deleteListed deletes one object or version of a list.
func (s *Service) deleteListed(
	ctx context.Context,
	name *string,
	o *s3.ObjectIdentifier,
) (*s3.DeletedObject, error) {
	if checkVersionID(o.VersionId) != nil {
		return nil, newError(noSuchVersion)
	}

	v, err := s.removeVersion(ctx, name, *o.Key, o.VersionId, http.Header{})
	if err != nil {
		return nil, err
	}

	d := &s3.DeletedObject{Key: o.Key, VersionId: o.VersionId}
	if v.Marker {
		d.DeleteMarker = new(true)
		d.DeleteMarkerVersionId = &v.ID
	}

	return d, nil
}

// toListedError returns the error of one object of a list.
func toListedError(o *s3.ObjectIdentifier, err error) *s3.Error {
	out := &s3.Error{Key: o.Key, VersionId: o.VersionId}
	out.Code = new("InternalError")
	out.Message = new("We encountered an internal error. Please try again.")

	if e, ok := errors.AsType[*wire.Error](err); ok {
		out.Code = &e.Code
		out.Message = &e.Message
	}

	return out
}
