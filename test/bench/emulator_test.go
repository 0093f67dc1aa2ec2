// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
)

func testConfig(url string) sdk.Config {
	cfg := awstest.NewConfig(url, "us-east-1", credentials.NewStaticCredentialsProvider("test", "test", ""))
	cfg.RetryMaxAttempts = 0

	return cfg
}

func makeBucket(t *testing.T, url, name string) {
	t.Helper()
	api := s3.NewFromConfig(testConfig(url), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
}

// deleteBucketPolicies removes the policies of all buckets. moto ignores the conditions of their statements, so that it
// denies everybody what a policy denies to some.
func deleteBucketPolicies(t *testing.T, url string) {
	t.Helper()
	api := s3.NewFromConfig(testConfig(url), func(o *s3.Options) { o.UsePathStyle = true })
	list, err := api.ListBuckets(t.Context(), &s3.ListBucketsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list.Buckets {
		if _, err := api.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: b.Name}); err != nil {
			t.Fatal(err)
		}
	}
}

// hashServer serves the hashes of files that kops requests before it uses a file name. Nothing
// downloads the files.
func hashServer(t *testing.T) string {
	t.Helper()
	const digits = 64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = w.Write([]byte(strings.Repeat("0", digits)))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func sshKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pub")
	if err := os.WriteFile(file, ssh.MarshalAuthorizedKey(key), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// firstCreateAfter returns the time from start to the request of the first resource.
func (p *proxy) firstCreateAfter(start time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.firstCreate.Sub(start)
}
