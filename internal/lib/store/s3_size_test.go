// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// bigObjects is a bucket whose objects have a length. S3 tells it, or not.
type bigObjects struct {
	store.S3API

	length    int64
	isUntold  bool
	bytesRead int64
}

func (b *bigObjects) Read(p []byte) (int, error) {
	n := min(int64(len(p)), b.length-b.bytesRead)
	b.bytesRead += n
	if n == 0 {
		return 0, io.EOF
	}

	return int(n), nil
}

func (*bigObjects) Close() error { return nil }

func (b *bigObjects) GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	out := &s3.GetObjectOutput{Body: b, ETag: aws.String("e")}
	if !b.isUntold {
		out.ContentLength = aws.Int64(b.length)
	}

	return out, nil
}

// TestBigObjectsAreRefused: whoever can write to the bucket puts a huge object in the place of a small one. The agents of
// all control-plane machines read it, as root and without a limit of their memory.
func TestBigObjectsAreRefused(t *testing.T) {
	t.Parallel()
	for name, bucket := range map[string]*bigObjects{
		"of a length that S3 tells": {length: 200 << 20},
		"without a length":          {length: 200 << 20, isUntold: true},
	} {
		_, err := store.NewS3Store(bucket, "slipway-test", "team").Get(t.Context(), "demo/addons/published.json")
		if err == nil || !strings.Contains(err.Error(), "demo/addons/published.json") || !strings.Contains(err.Error(), "more than 128 MiB") {
			t.Errorf("%s: %v", name, err)
		}

		if bucket.bytesRead > 129<<20 {
			t.Errorf("%s: %d bytes were read", name, bucket.bytesRead)
		}
	}

	agent := &bigObjects{length: 90 << 20}
	o, err := store.NewS3Store(agent, "slipway-test", "team").Get(t.Context(), "demo/machine/agent/x")
	if err != nil || len(o.Body) != 90<<20 || bytes.ContainsFunc(o.Body[:8], func(r rune) bool { return r != 0 }) {
		t.Errorf("an agent: %d bytes, %v", len(o.Body), err)
	}
}
