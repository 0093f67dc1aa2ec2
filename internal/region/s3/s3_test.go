// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	regions3 "github.com/slipway-k8s/slipway/internal/region/s3"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// serve serves the service through the wire layer and returns a client of AWS's SDK.
func serve(t *testing.T, dir string) (*s3.Client, *regions3.Service, string) {
	t.Helper()
	return serveIn(t, dir, "us-east-1")
}

// serveIn is serve for a region of another name.
func serveIn(t *testing.T, dir, region string) (*s3.Client, *regions3.Service, string) {
	t.Helper()
	return serveWith(t, regions3.Config{Dir: dir, Region: region, Now: time.Now})
}

// serveWith is serve for a service with settings of its own.
func serveWith(t *testing.T, cfg regions3.Config) (*s3.Client, *regions3.Service, string) {
	t.Helper()
	region := cfg.Region
	svc, err := regions3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := wire.NewEndpoint(svc.Wire())
	verifier := wire.Verifier{Keys: keys{}, Region: region, Now: time.Now}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := svc.PublicHandler(r); ok {
			h.ServeHTTP(w, r)
			return
		}
		signature, err := wire.ParseSignature(r)
		if err == nil {
			_, err = verifier.Verify(r, signature, endpoint.Service)
		}
		if err != nil {
			wire.WriteError(w, r, endpoint.Service, err, "id")
			return
		}
		endpoint.Serve(w, r.WithContext(wire.WithCaller(r.Context(), wire.Caller{Root: true})), "id", nil)
	}))
	t.Cleanup(srv.Close)
	client := s3.NewFromConfig(awstest.NewConfig(srv.URL, region, credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "secret", "")), func(o *s3.Options) { o.UsePathStyle = true })
	return client, svc, srv.URL
}

// keys has the one access key of these tests. The requests themselves are served for the root.
type keys struct{}

func (keys) FindKey(string) (wire.AccessKey, bool) { return wire.AccessKey{Secret: "secret"}, true }

func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return fmt.Sprint(err)
}

func put(t *testing.T, c *s3.Client, key, body string, change ...func(*s3.PutObjectInput)) (string, error) {
	t.Helper()
	in := &s3.PutObjectInput{Bucket: aws.String("b-1"), Key: &key, Body: strings.NewReader(body)}
	for _, f := range change {
		f(in)
	}
	out, err := c.PutObject(t.Context(), in)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

func get(t *testing.T, c *s3.Client, key string) string {
	t.Helper()
	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("b-1"), Key: &key})
	if err != nil {
		return code(err)
	}
	defer out.Body.Close()
	b, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func bucket(t *testing.T, c *s3.Client) {
	t.Helper()
	if _, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("b-1")}); err != nil {
		t.Fatal(err)
	}
}

func TestConditionalWrites(t *testing.T) {
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	etag, err := put(t, c, "k", "one", func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(t, c, "k", "two", func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") }); code(err) != "PreconditionFailed" {
		t.Errorf("second creation: %v", err)
	}
	if _, err := put(t, c, "k", "two", func(in *s3.PutObjectInput) { in.IfMatch = aws.String(`"x"`) }); code(err) != "PreconditionFailed" {
		t.Errorf("stale update: %v", err)
	}
	if _, err := put(t, c, "none", "two", func(in *s3.PutObjectInput) { in.IfMatch = &etag }); code(err) != "NoSuchKey" {
		t.Errorf("update of nothing: %v", err)
	}
	if _, err := put(t, c, "k", "two", func(in *s3.PutObjectInput) { in.IfMatch = &etag }); err != nil {
		t.Errorf("update: %v", err)
	}
	if got := get(t, c, "k"); got != "two" {
		t.Errorf("got %q", got)
	}
}

// TestOneWinner creates the same key from many goroutines at the same time.
func TestOneWinner(t *testing.T) {
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	var wg sync.WaitGroup
	var won atomic.Int32
	for i := range 16 {
		wg.Go(func() {
			if _, err := put(t, c, "marker", strconv.Itoa(i), func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") }); err == nil {
				won.Add(1)
			} else if code(err) != "PreconditionFailed" {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d writers won", won.Load())
	}
}

func TestListsByPage(t *testing.T) {
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	for _, k := range []string{"a/1", "a/2", "b/1", "c"} {
		if _, err := put(t, c, k, k); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	pages := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{Bucket: aws.String("b-1"), Delimiter: aws.String("/")}, func(o *s3.ListObjectsV2PaginatorOptions) { o.Limit = 2 })
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.CommonPrefixes {
			got = append(got, *p.Prefix)
		}
		for _, o := range page.Contents {
			got = append(got, *o.Key)
		}
	}
	if want := "a/ b/ c"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestVersionsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	c, _, _ := serve(t, dir)
	bucket(t, c)
	if _, err := c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: aws.String("b-1"), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}}); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"one", "two"} {
		if _, err := put(t, c, "k", body); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String("b-1"), Key: aws.String("k")}); err != nil {
		t.Fatal(err)
	}
	c, _, _ = serve(t, dir)
	if got := get(t, c, "k"); got != "NoSuchKey" {
		t.Errorf("a deleted key: %q", got)
	}
	out, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: aws.String("b-1")})
	if err != nil || len(out.Versions) != 2 || len(out.DeleteMarkers) != 1 {
		t.Fatalf("%d versions, %d markers, %v", len(out.Versions), len(out.DeleteMarkers), err)
	}
	if _, err := c.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: aws.String("b-1")}); code(err) != "BucketNotEmpty" {
		t.Errorf("delete a bucket with versions: %v", err)
	}
	var ids []types.ObjectIdentifier
	for _, v := range out.Versions {
		ids = append(ids, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
	}
	ids = append(ids, types.ObjectIdentifier{Key: aws.String("k"), VersionId: out.DeleteMarkers[0].VersionId})
	if _, err := c.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: aws.String("b-1"), Delete: &types.Delete{Objects: ids}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: aws.String("b-1")}); err != nil {
		t.Errorf("delete the empty bucket: %v", err)
	}
}

func TestSettings(t *testing.T) {
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	name := aws.String("b-1")
	block, err := c.GetPublicAccessBlock(t.Context(), &s3.GetPublicAccessBlockInput{Bucket: name})
	if err != nil || !aws.ToBool(block.PublicAccessBlockConfiguration.RestrictPublicBuckets) {
		t.Errorf("the block of a new bucket: %+v %v", block, err)
	}
	if _, err := c.DeletePublicAccessBlock(t.Context(), &s3.DeletePublicAccessBlockInput{Bucket: name}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetPublicAccessBlock(t.Context(), &s3.GetPublicAccessBlockInput{Bucket: name}); code(err) != "NoSuchPublicAccessBlockConfiguration" {
		t.Errorf("unset block: %v", err)
	}
	if _, err := c.PutPublicAccessBlock(t.Context(), &s3.PutPublicAccessBlockInput{Bucket: name, PublicAccessBlockConfiguration: &types.PublicAccessBlockConfiguration{BlockPublicAcls: aws.Bool(true)}}); err != nil {
		t.Fatal(err)
	}
	out, err := c.GetPublicAccessBlock(t.Context(), &s3.GetPublicAccessBlockInput{Bucket: name})
	if err != nil || !aws.ToBool(out.PublicAccessBlockConfiguration.BlockPublicAcls) {
		t.Errorf("block: %+v %v", out, err)
	}
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::b-1/*"}]}`
	if _, err := c.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: name, Policy: &policy}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: name}); err != nil || *got.Policy != policy {
		t.Errorf("policy: %+v %v", got, err)
	}
}

func TestRangesAndUploads(t *testing.T) {
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	body := make([]byte, 6<<20)
	rand.Read(body)
	up, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: aws.String("b-1"), Key: aws.String("big")})
	if err != nil {
		t.Fatal(err)
	}
	var parts []types.CompletedPart
	for i, part := range [][]byte{body[:5<<20], body[5<<20:]} {
		n := aws.Int32(int32(i + 1))
		out, err := c.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: aws.String("b-1"), Key: aws.String("big"), UploadId: up.UploadId, PartNumber: n, Body: bytes.NewReader(part)})
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, types.CompletedPart{PartNumber: n, ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32})
	}
	if _, err := c.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{Bucket: aws.String("b-1"), Key: aws.String("big"), UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, c, "big"); got != string(body) {
		t.Errorf("%d bytes come back, not the %d that were written", len(got), len(body))
	}
	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("b-1"), Key: aws.String("big"), Range: aws.String("bytes=10-19")})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	if got, _ := io.ReadAll(out.Body); !bytes.Equal(got, body[10:20]) {
		t.Errorf("range: %x, want %x", got, body[10:20])
	}
	head, err := c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("b-1"), Key: aws.String("big")})
	if err != nil || aws.ToInt64(head.ContentLength) != int64(len(body)) {
		t.Errorf("head: %+v %v", head, err)
	}
}

func TestMountedFolder(t *testing.T) {
	_, svc, url := serve(t, t.TempDir())
	outer := t.TempDir()
	dir := filepath.Join(outer, "mirror")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{filepath.Join(dir, "f"): "public", filepath.Join(outer, "secret"): "private"} {
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	svc.MountDir("mirror", dir)
	for path, want := range map[string]int{"/mirror/f": 200, "/mirror/none": 404, "/mirror/out": 404, "/mirror/../secret": 404} {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, res.Status, want)
		}
	}
}

// TestDeleteObjectsIsStrict: S3 requires a checksum of the request, and 1 to 1,000 keys in it.
func TestDeleteObjectsIsStrict(t *testing.T) {
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	for _, key := range []string{"a", "b"} {
		if _, err := put(t, c, key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	list := func(keys ...string) *types.Delete {
		d := &types.Delete{}
		for _, key := range keys {
			d.Objects = append(d.Objects, types.ObjectIdentifier{Key: &key})
		}
		return d
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	remove := func(d *types.Delete, with ...func(*s3.Options)) (*s3.DeleteObjectsOutput, error) {
		return c.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: aws.String("b-1"), Delete: d}, with...)
	}
	header := func(name, value string) func(*s3.Options) {
		return func(o *s3.Options) {
			o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
				if _, err := stack.Finalize.Remove("AWSChecksum:ComputeInputPayloadChecksum"); err != nil {
					return err
				}
				return smithyhttp.SetHeaderValue(name, value)(stack)
			})
		}
	}
	for name, x := range map[string]struct {
		list *types.Delete
		with []func(*s3.Options)
		want string
	}{
		"no checksum":     {list("a"), []func(*s3.Options){header("X-Other", "1")}, "InvalidRequest"},
		"the wrong MD5":   {list("a"), []func(*s3.Options){header("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==")}, "BadDigest"},
		"an invalid MD5":  {list("a"), []func(*s3.Options){header("Content-MD5", "x")}, "InvalidDigest"},
		"an empty key":    {list(""), nil, "InvalidArgument"},
		"more than 1,000": {list(many...), nil, "MalformedXML"},
	} {
		if _, err := remove(x.list, x.with...); code(err) != x.want {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}
	loud, err := remove(list("a", "none"))
	if err != nil || len(loud.Deleted) != 2 || len(loud.Errors) != 0 {
		t.Errorf("%+v, %v", loud, err)
	}
	d := list("b")
	d.Quiet = aws.Bool(true)
	quiet, err := remove(d)
	if err != nil || len(quiet.Deleted) != 0 || len(quiet.Errors) != 0 {
		t.Errorf("quiet: %+v, %v", quiet, err)
	}
	if got := get(t, c, "b"); got != "NoSuchKey" {
		t.Errorf("b: %s", got)
	}
}
