// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
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

// TestS3AgainstRegion runs the suite against the local region's S3 over HTTP, without authorization.
func TestS3AgainstRegion(t *testing.T) {
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
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return store.NewS3Store(client, bucket, rand.Text())
	})
}
