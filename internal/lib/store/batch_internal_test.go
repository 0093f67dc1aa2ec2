// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// partialS3 deletes all objects but one of a request.
type partialS3 struct {
	S3API
	batches []int
	refused string // the key that is not deleted
	code    string // of the error
}

func (p *partialS3) DeleteObjects(
	_ context.Context,
	in *s3.DeleteObjectsInput,
	_ ...func(*s3.Options),
) (*s3.DeleteObjectsOutput, error) {
	p.batches = append(p.batches, len(in.Delete.Objects))
	out := &s3.DeleteObjectsOutput{}
	for _, o := range in.Delete.Objects {
		if aws.ToString(o.Key) == p.refused {
			out.Errors = append(out.Errors, types.Error{Key: o.Key, Code: &p.code, Message: aws.String("not now")})
		}
	}
	return out, nil
}

// TestDeleteAllReportsEachKey: S3 answers 200 also if it did not delete all objects of a request.
func TestDeleteAllReportsEachKey(t *testing.T) {
	api := &partialS3{refused: "team/b", code: "AccessDenied"}
	s := NewS3Store(api, "bucket", "team")
	err := s.DeleteAll(t.Context(), []string{"a", "b", "c"})
	if err == nil || !strings.Contains(err.Error(), "delete b in s3://bucket/team: ") || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("the object that was not deleted is not reported: %v", err)
	}
	api.code = "NoSuchKey"
	if err := s.DeleteAll(t.Context(), []string{"a", "b"}); err != nil {
		t.Errorf("an object that does not exist: %v", err)
	}
}

// TestDeleteAllSplitsRequests: S3 accepts 1,000 objects a request.
func TestDeleteAllSplitsRequests(t *testing.T) {
	api := &partialS3{}
	keys := make([]string, 2001)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	if err := NewS3Store(api, "bucket", "").DeleteAll(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	if len(api.batches) != 3 || api.batches[0] != 1000 || api.batches[2] != 1 {
		t.Errorf("the requests have %v objects", api.batches)
	}
}
