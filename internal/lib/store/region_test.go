// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/lib/store/storetest"
	regions3 "github.com/slipway-k8s/slipway/internal/region/s3"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// newRegionBucket returns a client of the local region's S3 over HTTP, without authorization, and a new bucket.
func newRegionBucket(t *testing.T) (*s3.Client, string) {
	t.Helper()
	svc, err := regions3.New(regions3.Config{Dir: t.TempDir(), Region: "us-east-1", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := wire.NewEndpoint(svc.Wire())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint.Serve(w, r.WithContext(wire.WithCaller(r.Context(), wire.SystemCaller())), "id", nil)
	}))
	t.Cleanup(srv.Close)
	creds := credentials.NewStaticCredentialsProvider("test", "test", "")
	client := s3.NewFromConfig(awstest.NewConfig(srv.URL, "us-east-1", creds))
	bucket := testBucket()
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}

	return client, bucket
}

// TestS3AgainstRegion runs the suite against the local region's S3.
func TestS3AgainstRegion(t *testing.T) {
	client, bucket := newRegionBucket(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return store.NewS3Store(client, bucket, rand.Text())
	})
}

// TestListAfterAuditLogs: the keys of clusters are listed without those of audit logs, with and without a prefix.
func TestListAfterAuditLogs(t *testing.T) {
	client, bucket := newRegionBucket(t)
	for _, prefix := range []string{"", "team/prod"} {
		s := store.NewS3Store(client, bucket, prefix)
		for _, key := range []string{store.AuditLogPrefix("demo") + "i-1/one.log.gz", "a/cluster.yaml", "zoo/cluster.yaml"} {
			if _, err := s.Put(t.Context(), key, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}

	s := store.NewS3Store(client, bucket, "team/prod")
	keys, err := s.ListAfterAuditLogs(t.Context())
	if err != nil || !slices.Equal(keys, []string{"a/cluster.yaml", "zoo/cluster.yaml"}) {
		t.Errorf("keys %q, %v", keys, err)
	}

	if all, err := s.List(t.Context(), ""); err != nil || len(all) != 3 {
		t.Errorf("all keys %q, %v", all, err)
	}
}
