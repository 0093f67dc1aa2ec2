// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	name := aws.String(b1)
	ctx := t.Context()
	version := func(v types.VersioningConfiguration) error {
		_, err := c.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: name, VersioningConfiguration: &v})
		return err
	}
	encrypt := func(rules ...types.ServerSideEncryptionByDefault) error {
		config := &types.ServerSideEncryptionConfiguration{Rules: []types.ServerSideEncryptionRule{}}
		for _, r := range rules {
			config.Rules = append(config.Rules, types.ServerSideEncryptionRule{ApplyServerSideEncryptionByDefault: &r})
		}

		_, err := c.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{Bucket: name, ServerSideEncryptionConfiguration: config})

		return err
	}
	expire := func(rules ...types.LifecycleRule) error {
		_, err := c.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{
			Bucket: name, LifecycleConfiguration: &types.BucketLifecycleConfiguration{Rules: rules},
		})

		return err
	}
	rule := func(e types.LifecycleExpiration) types.LifecycleRule {
		return types.LifecycleRule{
			ID: aws.String("r"), Status: types.ExpirationStatusEnabled,
			Filter: &types.LifecycleRuleFilter{Prefix: aws.String("p/")}, Expiration: &e,
		}
	}
	aes := types.ServerSideEncryptionByDefault{SSEAlgorithm: types.ServerSideEncryptionAes256}
	withKey := types.ServerSideEncryptionByDefault{SSEAlgorithm: types.ServerSideEncryptionAes256, KMSMasterKeyID: aws.String("k")}
	noFilter := rule(types.LifecycleExpiration{Days: aws.Int32(1)})
	noFilter.Filter = nil
	own := func(o types.ObjectOwnership) error {
		_, err := c.PutBucketOwnershipControls(ctx, &s3.PutBucketOwnershipControlsInput{
			Bucket: name, OwnershipControls: &types.OwnershipControls{Rules: []types.OwnershipControlsRule{{ObjectOwnership: o}}},
		})

		return err
	}
	tag := func(keys ...string) error {
		set := &types.Tagging{TagSet: []types.Tag{}}
		for _, k := range keys {
			set.TagSet = append(set.TagSet, types.Tag{Key: &k, Value: aws.String("v")})
		}

		_, err := c.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: name, Tagging: set})

		return err
	}

	for what, x := range map[string]struct {
		err  error
		want string
	}{
		"versioning without a status": {version(types.VersioningConfiguration{}), "IllegalVersioningConfigurationException"},
		"versioning of another kind":  {version(types.VersioningConfiguration{Status: "On"}), "MalformedXML"},
		"versioning with MFA":         {version(types.VersioningConfiguration{Status: "Enabled", MFADelete: "Enabled"}), "NotImplemented"},
		"no encryption":               {encrypt(), "MalformedXML"},
		"two encryptions":             {encrypt(aes, aes), "MalformedXML"},
		"a key for AES256":            {encrypt(withKey), "InvalidArgument"},
		"AES256":                      {encrypt(aes), ""},
		"no days":                     {expire(rule(types.LifecycleExpiration{})), "MalformedXML"},
		"zero days":                   {expire(rule(types.LifecycleExpiration{Days: aws.Int32(0)})), "InvalidArgument"},
		"noon":                        {expire(rule(types.LifecycleExpiration{Date: aws.Time(time.Unix(43200, 0))})), "InvalidArgument"},
		"no filter":                   {expire(noFilter), "MalformedXML"},
		"one ID twice":                {expire(rule(types.LifecycleExpiration{Days: aws.Int32(1)}), rule(types.LifecycleExpiration{Days: aws.Int32(2)})), "InvalidArgument"},
		"a good rule":                 {expire(rule(types.LifecycleExpiration{Days: aws.Int32(1)})), ""},
		"ownership with ACLs":         {own(types.ObjectOwnershipObjectWriter), "NotImplemented"},
		"no ownership":                {own("Bogus"), "MalformedXML"},
		"a tag twice":                 {tag("a", "a"), "InvalidTag"},
		"a tag of AWS":                {tag("aws:a"), "InvalidTag"},
		"a tag":                       {tag("a"), ""},
	} {
		if (x.err == nil) != (x.want == "") || x.err != nil && code(x.err) != x.want {
			t.Errorf("%s: %v, want %q", what, x.err, x.want)
		}
	}
}

func TestNewBucketsAreAsInS3(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	bucket(t, c) // the owner's second request succeeds in us-east-1
	name := aws.String(b1)
	encryption, err := c.GetBucketEncryption(t.Context(), &s3.GetBucketEncryptionInput{Bucket: name})
	if err != nil || encryption.ServerSideEncryptionConfiguration.Rules[0].ApplyServerSideEncryptionByDefault.SSEAlgorithm != types.ServerSideEncryptionAes256 {
		t.Errorf("encryption: %+v, %v", encryption, err)
	}

	owner, err := c.GetBucketOwnershipControls(t.Context(), &s3.GetBucketOwnershipControlsInput{Bucket: name})
	if err != nil || owner.OwnershipControls.Rules[0].ObjectOwnership != types.ObjectOwnershipBucketOwnerEnforced {
		t.Errorf("ownership: %+v, %v", owner, err)
	}

	for location, want := range map[types.BucketLocationConstraint]string{
		"us-east-1": "InvalidLocationConstraint",
		"nowhere":   "InvalidLocationConstraint",
		"eu-west-1": "IllegalLocationConstraintException",
	} {
		_, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{
			Bucket: aws.String("b-2"), CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: location},
		})
		if code(err) != want {
			t.Errorf("%s: %v, want %s", location, err, want)
		}
	}

	for name, want := range map[string]func(*s3.CreateBucketInput){
		"NotImplemented":                func(in *s3.CreateBucketInput) { in.ObjectLockEnabledForBucket = aws.Bool(true) },
		"AccessControlListNotSupported": func(in *s3.CreateBucketInput) { in.ACL = types.BucketCannedACLPublicRead },
	} {
		in := &s3.CreateBucketInput{Bucket: aws.String("b-2")}
		want(in)
		if _, err := c.CreateBucket(t.Context(), in); code(err) != name {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

// upload sends one part with a checksum and returns the upload's id and the part.
func upload(t *testing.T, c *s3.Client, algorithm types.ChecksumAlgorithm, kind types.ChecksumType) (*string, types.CompletedPart) {
	t.Helper()
	up, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{
		Bucket: aws.String(b1), Key: aws.String("k"), ChecksumAlgorithm: algorithm, ChecksumType: kind,
	})
	if err != nil {
		t.Fatal(err)
	}

	part, err := c.UploadPart(t.Context(), &s3.UploadPartInput{
		Bucket: aws.String(b1), Key: aws.String("k"), UploadId: up.UploadId, PartNumber: aws.Int32(1),
		Body: strings.NewReader("content"), ChecksumAlgorithm: algorithm,
	})
	if err != nil {
		t.Fatal(err)
	}

	return up.UploadId, types.CompletedPart{
		PartNumber: aws.Int32(1), ETag: part.ETag, ChecksumSHA256: part.ChecksumSHA256, ChecksumCRC32: part.ChecksumCRC32,
	}
}

func TestChecksumsOfUploads(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	id, part := upload(t, c, types.ChecksumAlgorithmSha256, "")
	complete := func(p types.CompletedPart, change func(*s3.CompleteMultipartUploadInput)) (*s3.CompleteMultipartUploadOutput, error) {
		in := &s3.CompleteMultipartUploadInput{
			Bucket: aws.String(b1), Key: aws.String("k"), UploadId: id,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{p}},
		}
		change(in)

		return c.CompleteMultipartUpload(t.Context(), in)
	}
	same := func(*s3.CompleteMultipartUploadInput) {}
	wrong := part
	wrong.ChecksumSHA256 = aws.String("AAAA")
	missing := part
	missing.ChecksumSHA256 = nil

	for name, x := range map[string]struct {
		part   types.CompletedPart
		change func(*s3.CompleteMultipartUploadInput)
		want   string
	}{
		"another checksum": {wrong, same, "InvalidPart"},
		"no checksum":      {missing, same, "InvalidRequest"},
		"another size":     {part, func(in *s3.CompleteMultipartUploadInput) { in.MpuObjectSize = aws.Int64(3) }, "InvalidRequest"},
		"another mode":     {part, func(in *s3.CompleteMultipartUploadInput) { in.ChecksumType = types.ChecksumTypeFullObject }, "InvalidRequest"},
		"another sum": {part, func(in *s3.CompleteMultipartUploadInput) {
			in.ChecksumSHA256 = aws.String("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
		}, "BadDigest"},
	} {
		if _, err := complete(x.part, x.change); code(err) != x.want {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}

	// The sum of the sum of "content".
	const want = "xO7IXrZrebj1n/dql9XZeqwbXsqMZnW06Yil3up4blM=-1"
	done, err := complete(part, func(in *s3.CompleteMultipartUploadInput) { in.MpuObjectSize = aws.Int64(7) })
	if err != nil || aws.ToString(done.ChecksumSHA256) != want {
		t.Errorf("completion: %+v, %v, want the checksum %s", done, err, want)
	}

	_, err = c.UploadPart(t.Context(), &s3.UploadPartInput{
		Bucket: aws.String(b1), Key: aws.String("k"), UploadId: id, PartNumber: aws.Int32(1), Body: strings.NewReader("x"),
	})
	if code(err) != "NoSuchUpload" {
		t.Errorf("a part of a completed upload: %v", err)
	}

	_, err = c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{
		Bucket: aws.String(b1), Key: aws.String("k"), ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ChecksumType: types.ChecksumTypeFullObject,
	})
	if code(err) != "InvalidRequest" {
		t.Errorf("a full SHA256: %v", err)
	}

	id, part = upload(t, c, types.ChecksumAlgorithmCrc32, types.ChecksumTypeFullObject)
	full, err := complete(part, same)
	if err != nil || aws.ToString(full.ChecksumCRC32) != aws.ToString(part.ChecksumCRC32) {
		t.Errorf("a checksum of the whole object: %+v, %v, want %s", full, err, aws.ToString(part.ChecksumCRC32))
	}

	head, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(b1), Key: aws.String("k"), PartNumber: aws.Int32(1)})
	if err != nil || aws.ToInt32(head.PartsCount) != 1 || aws.ToString(head.ContentRange) != "bytes 0-6/7" {
		t.Errorf("a part: %+v, %v", head, err)
	}

	if _, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(b1), Key: aws.String("k"), PartNumber: aws.Int32(2)}); code(err) != "InvalidPartNumber" {
		t.Errorf("a missing part: %v", err)
	}
}

func TestReadsAreAsInS3(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	etag, err := put(t, c, "k", "0123456789", func(in *s3.PutObjectInput) { in.Metadata = map[string]string{"MyKey": "V"} })
	if err != nil {
		t.Fatal(err)
	}

	var headers http.Header
	in := &s3.GetObjectInput{Bucket: aws.String(b1), Key: aws.String("k"), Range: aws.String("bytes=2-4"), ChecksumMode: types.ChecksumModeEnabled}
	out, err := c.GetObject(t.Context(), in, keepHeaders(&headers))
	if err != nil {
		t.Fatal(err)
	}

	body, err := io.ReadAll(out.Body)
	if err != nil || string(body) != "234" || out.ChecksumCRC32 != nil {
		t.Errorf("a range: %q, %v, checksum %v", body, err, out.ChecksumCRC32)
	}

	presigned, err := s3.NewPresignClient(c).PresignGetObject(t.Context(), &s3.GetObjectInput{
		Bucket: aws.String(b1), Key: aws.String("k"), ResponseContentType: aws.String("text/x"),
		ResponseContentDisposition: aws.String("attachment"),
	})
	if err != nil {
		t.Fatal(err)
	}

	raw := rawGet(t, presigned.URL)
	if !bytes.Contains(raw, []byte("\r\nContent-Type: text/x\r\n")) || !bytes.Contains(raw, []byte("\r\nContent-Disposition: attachment\r\n")) {
		t.Errorf("response-content-type had no effect:\n%s", raw)
	}

	if !bytes.Contains(raw, []byte("\r\nx-amz-meta-mykey: V\r\n")) {
		t.Errorf("metadata is not in lower case:\n%s", raw)
	}

	_, err = c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(b1), Key: aws.String("k"), IfNoneMatch: &etag}, keepHeaders(&headers))
	if err == nil || headers.Get("Etag") != etag {
		t.Errorf("not modified: %v, %v, want the ETag", err, headers)
	}
}

// rawGet returns the response to a GET as it is on the wire, without its date.
func rawGet(t *testing.T, url string) []byte {
	t.Helper()
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	conn := dial(t, host)
	_, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	if _, err := fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host); err != nil {
		t.Fatal(err)
	}

	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// TestHeadersInPresignedURLs: S3 takes an x-amz- header from the query string of a presigned URL, and says when the URL has expired.
func TestHeadersInPresignedURLs(t *testing.T) {
	t.Parallel()
	c, _, url := serve(t, t.TempDir())
	bucket(t, c)
	for query, want := range map[string]struct {
		signedAt time.Time
		answer   string
	}{
		"x-amz-storage-class=BOGUS": {time.Now(), "<Code>InvalidStorageClass</Code>"},
		"":                          {time.Now().Add(-2 * time.Minute), "<Code>AccessDenied</Code><Message>Request has expired</Message>"},
	} {
		signed := presignPut(t, url+"/b-1/k?X-Amz-Expires=60&"+query, want.signedAt)
		if status, body := rawPut(t, signed, nil); !strings.Contains(body, want.answer) {
			t.Errorf("%s: %v: %s", query, status, body)
		}
	}
}

// presignPut presigns a PUT of 60 seconds.
func presignPut(t *testing.T, url string, at time.Time) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, nil)
	if err != nil {
		t.Fatal(err)
	}

	signed, _, err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).PresignHTTP(
		t.Context(), aws.Credentials{AccessKeyID: "AKIAEXAMPLE", SecretAccessKey: "secret"}, req, "UNSIGNED-PAYLOAD", "s3", "us-east-1", at)
	if err != nil {
		t.Fatal(err)
	}

	return signed
}

// TestUnsignedHeadersAreRefused: a client that has a presigned URL must not add what its signer has not signed, except the
// hash of the contents.
func TestUnsignedHeadersAreRefused(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	presigned, err := s3.NewPresignClient(c).PresignPutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(b1), Key: aws.String("k")})
	if err != nil {
		t.Fatal(err)
	}

	for header, want := range map[string]string{
		"X-Amz-Storage-Class":                         "AccessDenied",
		"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "AccessDenied",
		"X-Amz-Meta-Owner":                            "AccessDenied",
		"X-Amz-Content-Sha256":                        "",
		"Content-Type":                                "",
	} {
		value := "STANDARD_IA"
		if header == "X-Amz-Content-Sha256" {
			value = "UNSIGNED-PAYLOAD"
		}

		status, body := rawPut(t, presigned.URL, map[string]string{header: value})
		if isOK := status == http.StatusOK; isOK != (want == "") || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", header, status, body, want)
		}

		if want != "" && !strings.Contains(body, "<HeadersNotSigned>"+strings.ToLower(header)+"</HeadersNotSigned>") {
			t.Errorf("%s: %s does not name the header", header, body)
		}
	}
}

// TestSignatureVersion2IsRefused: the region refuses the former signatures by name, and does not take such
// requests for anonymous ones.
func TestSignatureVersion2IsRefused(t *testing.T) {
	t.Parallel()
	_, _, url := serve(t, t.TempDir())
	for where, request := range map[string]struct {
		query  string
		header map[string]string
	}{
		"URL":    {"?AWSAccessKeyId=AKIAEXAMPLE&Signature=c2lnbmF0dXJl&Expires=1999999999", nil},
		"header": {"", map[string]string{"Authorization": "AWS AKIAEXAMPLE:c2lnbmF0dXJl"}},
	} {
		status, body := rawPut(t, url+"/b-1/k"+request.query, request.header)
		if status != http.StatusBadRequest || !strings.Contains(body, "<Code>InvalidRequest</Code>") || !strings.Contains(body, "AWS4-HMAC-SHA256") {
			t.Errorf("%s: %d %s, want InvalidRequest that names AWS4-HMAC-SHA256", where, status, body)
		}
	}
}

// rawPut puts an object without an SDK, and returns the status and the body of the response.
func rawPut(t *testing.T, url string, headers map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("v"))
	if err != nil {
		t.Fatal(err)
	}

	for name, value := range headers {
		req.Header.Set(name, value)
	}

	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}

	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}

	return res.StatusCode, string(body)
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = conn.Close() })

	return conn
}
