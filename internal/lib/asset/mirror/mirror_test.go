// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/mirror"
	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// upstream is a server of files on loopback.
type upstream struct {
	*httptest.Server
	catalog asset.Catalog

	mu       sync.Mutex
	contents map[string][]byte // by path
	requests []string          // paths that were asked for
	refused  string            // the path with this end is answered with 404
}

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{contents: map[string][]byte{}}
	u.catalog = asset.Catalog{APIVersion: asset.APIVersion, Kind: asset.CatalogKind}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.requests = append(u.requests, req.URL.Path)
		raw, ok := u.contents[req.URL.Path]
		if !ok || u.refused != "" && strings.HasSuffix(req.URL.Path, u.refused) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(raw)
	}))
	t.Cleanup(u.Close)
	u.catalog.FileRepository = u.URL
	for _, file := range [][2]string{{"kubelet", "amd64"}, {"kubelet", "arm64"}, {"etcd", "amd64"}} {
		path := "example.com/v1/" + file[1] + "/" + file[0]
		raw := []byte("the program " + path)
		u.contents["/"+path] = raw
		u.catalog.Files = append(u.catalog.Files, asset.File{
			Name: file[0], Version: "1.0.0", Arch: file[1], URL: "https://" + path, SHA256: sumOf(raw), Format: asset.FormatBinary,
		})
	}
	return u
}

func sumOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// newBucket returns a bucket of the local region's S3.
func newBucket(t *testing.T) (*s3.Client, *mirror.Bucket) {
	t.Helper()
	client := s3.NewFromConfig(regiontest.Start(t).AWSConfig())
	b := &mirror.Bucket{API: client, Name: "mirror-test", Prefix: "team/k8s", Region: "us-east-1"}
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &b.Name}); err != nil {
		t.Fatal(err)
	}
	return client, b
}

// newPlan plans a mirror of what u has, and returns the actions of its steps with the ends of their targets.
func (u *upstream) newPlan(t *testing.T, b *mirror.Bucket, folder string) (plan *mirror.Plan, steps []string) {
	t.Helper()
	plan, err := mirror.NewPlan(t.Context(), mirror.Options{
		Catalog: u.catalog, Archs: []string{"amd64", "arm64"}, Folder: folder, Bucket: b,
		Transport: http.DefaultTransport, Log: io.Discard, Clock: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Steps {
		steps = append(steps, s.Action+" "+strings.TrimPrefix(s.Target, "s3://mirror-test/team/k8s/example.com/v1/"))
	}
	return plan, steps
}

// TestFilesAreMirrored: a run copies what the bucket lacks, continues after a failure, and then has nothing to do.
func TestFilesAreMirrored(t *testing.T) {
	u := startUpstream(t)
	client, b := newBucket(t)
	plan, steps := u.newPlan(t, b, t.TempDir())
	want := []string{"copy amd64/kubelet", "copy arm64/kubelet", "copy amd64/etcd"}
	if !slices.Equal(steps, want) || plan.Total != 3 || len(u.requests) > 0 {
		t.Errorf("steps %q of %d after %d requests, want %q of 3", steps, plan.Total, len(u.requests), want)
	}
	if plan.Catalog.FileRepository != "https://mirror-test.s3.us-east-1.amazonaws.com/team/k8s" {
		t.Errorf("machines would download from %s", plan.Catalog.FileRepository)
	}

	u.refused = "/arm64/kubelet"
	if err := plan.Copy(t.Context()); err == nil || !strings.Contains(err.Error(), "copy kubelet 1.0.0 arm64 to s3://mirror-test/") {
		t.Errorf("a file that upstream does not have: %v", err)
	}
	u.refused = ""
	u.requests = nil
	plan, steps = u.newPlan(t, b, t.TempDir())
	if err := plan.Copy(t.Context()); err != nil || !slices.Equal(steps, []string{"copy arm64/kubelet"}) || len(u.requests) != 1 {
		t.Errorf("continued with %q and %d downloads, %v", steps, len(u.requests), err)
	}
	if _, steps = u.newPlan(t, b, t.TempDir()); len(steps) > 0 {
		t.Errorf("everything is there, and the plan has %q", steps)
	}

	for path, content := range u.contents {
		out, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &b.Name, Key: aws.String("team/k8s" + path)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(out.Body)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s has %q, %v", path, got, err)
		}
	}
}

// TestInterruptionIsOneError: what was not begun is not reported file by file.
func TestInterruptionIsOneError(t *testing.T) {
	u := startUpstream(t)
	_, b := newBucket(t)
	plan, _ := u.newPlan(t, b, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plan.Copy(ctx); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "\n") || len(u.requests) > 0 {
		t.Errorf("%v after %d downloads", err, len(u.requests))
	}
}

// TestOtherContentsAreReplaced: an object with another hash, or of which S3 knows none, is written again.
func TestOtherContentsAreReplaced(t *testing.T) {
	u := startUpstream(t)
	client, b := newBucket(t)
	for path, algorithm := range map[string]types.ChecksumAlgorithm{"amd64/kubelet": types.ChecksumAlgorithmSha256, "amd64/etcd": ""} {
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: &b.Name, Key: aws.String("team/k8s/example.com/v1/" + path), Body: strings.NewReader("old"), ChecksumAlgorithm: algorithm,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	plan, steps := u.newPlan(t, b, t.TempDir())
	if want := []string{"replace amd64/kubelet", "copy arm64/kubelet", "replace amd64/etcd"}; !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if err := plan.Copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, steps = u.newPlan(t, b, t.TempDir()); len(steps) > 0 {
		t.Errorf("after that the plan has %q", steps)
	}
}

// TestWrongContentsAreNotMirrored: neither from upstream, nor from the folder.
func TestWrongContentsAreNotMirrored(t *testing.T) {
	u := startUpstream(t)
	_, b := newBucket(t)
	folder := t.TempDir()
	local := filepath.Join(folder, "files/example.com/v1/arm64/kubelet")
	if err := errors.Join(os.MkdirAll(filepath.Dir(local), 0o755), os.WriteFile(local, []byte("another build"), 0o644)); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(folder, "files/example.com/v1/amd64/etcd")
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.WriteFile(kept, u.contents["/example.com/v1/amd64/etcd"], 0o644)); err != nil {
		t.Fatal(err)
	}
	u.catalog.Files[0].SHA256 = sumOf([]byte("the real kubelet"))
	plan, _ := u.newPlan(t, b, folder)
	err := plan.Copy(t.Context())
	if err == nil || !strings.Contains(err.Error(), "and the catalogue says "+u.catalog.Files[0].SHA256) {
		t.Errorf("a file with another hash: %v", err)
	}
	if slices.Contains(u.requests, "/example.com/v1/amd64/etcd") || !slices.Contains(u.requests, "/example.com/v1/arm64/kubelet") {
		t.Errorf("downloaded %q: want what the folder does not have with the right hash", u.requests)
	}
	if raw, err := os.ReadFile(local); err != nil || string(raw) != "another build" {
		t.Errorf("the folder was changed: %q, %v", raw, err)
	}
	if _, steps := u.newPlan(t, b, folder); !slices.Equal(steps, []string{"copy amd64/kubelet"}) {
		t.Errorf("the bucket lacks %q", steps)
	}
}

// TestErrorsOfS3NameTheFix: S3 sends no message with the answer to HEAD.
func TestErrorsOfS3NameTheFix(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusMovedPermanently: "bucket mirror-test is in region eu-central-1, not us-east-1",
		http.StatusForbidden:        "S3 denied access (403)",
		http.StatusNotFound:         "bucket mirror-test does not exist",
	} {
		u := startUpstream(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
			w.WriteHeader(status)
		}))
		creds := credentials.NewStaticCredentialsProvider("test", "test", "")
		b := &mirror.Bucket{API: s3.NewFromConfig(awstest.NewConfig(server.URL, "us-east-1", creds)), Name: "mirror-test", Region: "us-east-1"}
		_, err := mirror.NewPlan(t.Context(), mirror.Options{Catalog: u.catalog, Bucket: b})
		server.Close()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", status, err, want)
		}
	}
}

// discard is a bucket that reads what it gets, in small pieces.
type discard struct{ size int64 }

func (*discard) HeadBucket(context.Context, *s3.HeadBucketInput, ...func(*s3.Options)) (*s3.HeadBucketOutput, error) {
	return &s3.HeadBucketOutput{}, nil
}

func (*discard) HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	return nil, &types.NotFound{}
}

func (d *discard) PutObject(_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	n, err := io.Copy(io.Discard, in.Body)
	d.size += n
	return &s3.PutObjectOutput{}, err
}

// TestLargeFilesAreNotHeldInMemory: what a copy allocates does not grow with the file.
func TestLargeFilesAreNotHeldInMemory(t *testing.T) {
	const size = 64 << 20
	block := make([]byte, 1<<16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range size / len(block) {
			_, _ = w.Write(block)
		}
	}))
	defer server.Close()
	h := sha256.New()
	for range size / len(block) {
		_, _ = h.Write(block)
	}
	bucket := &discard{}
	plan, err := mirror.NewPlan(t.Context(), mirror.Options{
		Catalog: asset.Catalog{FileRepository: server.URL, Files: []asset.File{{
			Name: "kubelet", Version: "1.0.0", Arch: "amd64", URL: "https://example.com/kubelet", SHA256: hex.EncodeToString(h.Sum(nil)),
		}}},
		Folder: t.TempDir(), Bucket: &mirror.Bucket{API: bucket, Name: "mirror-test", Region: "us-east-1"},
		Transport: http.DefaultTransport, Log: io.Discard, Clock: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = plan.Copy(t.Context())
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || bucket.size != size || allocated > size/4 {
		t.Errorf("copied %d bytes and allocated %d, %v", bucket.size, allocated, err)
	}
}

func TestAddressesOfBuckets(t *testing.T) {
	for want, b := range map[string]mirror.Bucket{
		"https://b.s3.us-east-1.amazonaws.com":              {Name: "b", Region: "us-east-1"},
		"https://b.s3.cn-north-1.amazonaws.com.cn/p":        {Name: "b", Region: "cn-north-1", Prefix: "p"},
		"https://s3.eu-central-1.amazonaws.com/b.example/p": {Name: "b.example", Region: "eu-central-1", Prefix: "p"},
		"http://127.0.0.1:4566/b/p":                         {Name: "b", Region: "us-east-1", Prefix: "p", Endpoint: "http://127.0.0.1:4566/"},
	} {
		if got := b.URL(); got != want {
			t.Errorf("%+v: %s, want %s", b, got, want)
		}
	}
}

func TestTargetsAreParsed(t *testing.T) {
	for text, want := range map[string]mirror.Target{
		"s3://mirror":            {Bucket: "mirror"},
		"s3://mirror/team/k8s/":  {Bucket: "mirror", Prefix: "team/k8s"},
		"registry:5000":          {Registry: "registry:5000"},
		"127.0.0.1:5000/a/":      {Registry: "127.0.0.1:5000/a"},
		"registry.example.com/a": {Registry: "registry.example.com/a"},
	} {
		if got, err := mirror.ParseTarget(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s3://", "s3://Mirror", "s3://mirror/a//b", "s3://mirror/a b", "https://registry.example.com", "registry", "registry.example.com/A"} {
		if got, err := mirror.ParseTarget(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}
