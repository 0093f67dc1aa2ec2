// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	v1s3 "github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// docsKey is the key of the examples in AWS's documentation of signatures.
type docsKey struct{}

func (docsKey) FindKey(string) (wire.AccessKey, bool) {
	return wire.AccessKey{Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", Caller: wire.Caller{Root: true}}, true
}

func docsNow() time.Time { return time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC) }

func s3Service(ops ...wire.Operation) wire.Service {
	return wire.Service{
		Name: "s3", Protocol: wire.S3Protocol, Operations: ops, Authorize: wire.AuthorizedInHandlers,
		Route: func(r *http.Request) (wire.Route, error) {
			bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			return wire.Route{Op: map[string]string{"PUT": "PutObject", "GET": "GetObject"}[r.Method], Path: map[string]string{"Bucket": bucket, "Key": key}}, nil
		},
	}
}

// docsRequest is the request of an example, with a chunk of 64 KiB, a chunk of 1 KiB and the final empty chunk.
func docsRequest(seed string, chunks [3]string, trailer string) *http.Request {
	var body bytes.Buffer
	for i, size := range []int{65536, 1024, 0} {
		fmt.Fprintf(&body, "%x;chunk-signature=%s\r\n", size, chunks[i])
		if size > 0 {
			body.WriteString(strings.Repeat("a", size) + "\r\n")
		}
	}
	body.WriteString(trailer + "\r\n")
	r := httptest.NewRequest(http.MethodPut, "http://s3.amazonaws.com/examplebucket/chunkObject.txt", &body)
	signed := "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class"
	r.Header.Set("X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
	r.ContentLength = 66824
	if trailer != "" {
		signed = strings.Replace(signed, "content-length;", "", 1) + ";x-amz-trailer"
		r.Header.Set("X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
		r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32c")
	}
	r.Header.Set("X-Amz-Date", "20130524T000000Z")
	r.Header.Set("X-Amz-Storage-Class", "REDUCED_REDUNDANCY")
	r.Header.Set("Content-Encoding", "aws-chunked")
	r.Header.Set("X-Amz-Decoded-Content-Length", "66560")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders="+signed+",Signature="+seed)
	return r
}

// TestSignedChunksOfTheDocumentation uses the examples of AWS's documentation ("Signature Calculations for the
// Authorization Header: Transferring Payload in Multiple Chunks"), so the expected signatures come from AWS.
func TestSignedChunksOfTheDocumentation(t *testing.T) {
	t.Parallel()
	plain := [3]string{
		"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
		"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
		"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
	}
	const plainSeed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
	trailing := [3]string{
		"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
		"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
		"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
	}
	const trailingSeed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
	const trailer = "x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n"
	forged := plain
	forged[1] = strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		r    *http.Request
		want string
	}{
		"signed chunks":      {docsRequest(plainSeed, plain, ""), ""},
		"with a trailer":     {docsRequest(trailingSeed, trailing, trailer), ""},
		"a forged chunk":     {docsRequest(plainSeed, forged, ""), "SignatureDoesNotMatch"},
		"a forged seed":      {docsRequest(strings.Repeat("0", 64), plain, ""), "SignatureDoesNotMatch"},
		"a changed trailer":  {docsRequest(trailingSeed, trailing, strings.Replace(trailer, "sOO8/Q==", "AAAAAA==", 1)), "SignatureDoesNotMatch"},
		"no trailer at all":  {docsRequest(trailingSeed, trailing, "\r\n"), "SignatureDoesNotMatch"},
		"a body cut in half": {short(docsRequest(plainSeed, plain, "")), "IncompleteBody"},
	} {
		sig, err := wire.ParseSignature(c.r)
		if err == nil {
			_, err = wire.Verifier{Keys: docsKey{}, Region: "us-east-1", Now: docsNow}.Verify(c.r, sig, s3Service())
		}
		var body []byte
		if err == nil {
			body, err = io.ReadAll(c.r.Body)
		}
		switch {
		case c.want == "" && (err != nil || len(body) != 66560):
			t.Errorf("%s: %d bytes, %v", name, len(body), err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func short(r *http.Request) *http.Request {
	r.Body = io.NopCloser(io.LimitReader(r.Body, 30000))
	return r
}

// TestS3ClientBodies sends bodies in all ways that the SDK supports over HTTP.
func TestS3ClientBodies(t *testing.T) {
	t.Parallel()
	var got []byte
	var sums map[string]string
	put := wire.NewOperation("PutObject", func(ctx context.Context, in *v1s3.PutObjectInput) (*v1s3.PutObjectOutput, error) {
		b, err := io.ReadAll(wire.HTTPRequest(ctx).Body)
		if err != nil {
			return nil, err
		}
		got, sums = b, wire.BodyChecksums(wire.HTTPRequest(ctx))
		if *in.Metadata["a"] != "b" || *in.Key != "x y/ü+" {
			return nil, wire.Errorf("Wrong", "key %q, metadata %v", *in.Key, in.Metadata)
		}
		return &v1s3.PutObjectOutput{ETag: new(`"e"`)}, nil
	})
	get := wire.NewOperation("GetObject", func(context.Context, *v1s3.GetObjectInput) (*v1s3.GetObjectOutput, error) {
		return &v1s3.GetObjectOutput{Body: io.NopCloser(strings.NewReader("body")), ContentLength: new(int64(4)), Metadata: map[string]*string{"a": new("b")}}, nil
	})
	endpoint := serve(t, s3Service(put, get), rootKey(), time.Now)
	client := s3.NewFromConfig(awstest.NewConfig(endpoint, "us-east-1", creds()), func(o *s3.Options) { o.UsePathStyle = true })
	body := strings.Repeat("slipway ", 40000)
	for _, algorithm := range []s3types.ChecksumAlgorithm{"", s3types.ChecksumAlgorithmCrc32c, s3types.ChecksumAlgorithmSha1, s3types.ChecksumAlgorithmSha256, s3types.ChecksumAlgorithmCrc64nvme} {
		out, err := client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: new("b"), Key: new("x y/ü+"), Body: strings.NewReader(body), Metadata: map[string]string{"A": "b"}, ChecksumAlgorithm: algorithm,
		})
		if err != nil || *out.ETag != `"e"` || string(got) != body {
			t.Errorf("%s: %v, %d bytes", algorithm, err, len(got))
		}
		if algorithm != "" && sums[strings.ToLower(string(algorithm))] == "" {
			t.Errorf("%s: checksums are %v", algorithm, sums)
		}
	}
	out, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: new("b"), Key: new("k")})
	if err != nil || out.Metadata["a"] != "b" {
		t.Fatalf("GetObject = %+v, %v", out, err)
	}
	signed, err := s3.NewPresignClient(client).PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: new("b"), Key: new("k")})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{signed.URL: http.StatusOK, signed.URL + "0": http.StatusForbidden, strings.Replace(signed.URL, "/k?", "/l?", 1): http.StatusForbidden} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
}

// TestUnsignedTrailer sends a body as SDKs do over HTTPS.
func TestUnsignedTrailer(t *testing.T) {
	t.Parallel()
	sum := crc32.NewIEEE()
	sum.Write([]byte("hello"))
	right := base64.StdEncoding.EncodeToString(sum.Sum(nil))
	for body, want := range map[string]string{
		"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:" + right + "\r\n\r\n":  "",
		"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n":       "BadDigest",
		"5\r\nhello\r\n0\r\n\r\n":                                        "MalformedTrailerError",
		"6\r\nhello!\r\n0\r\nx-amz-checksum-crc32:" + right + "\r\n\r\n": "InvalidChunkSizeError",
		"4\r\nhell\r\n0\r\nx-amz-checksum-crc32:" + right + "\r\n\r\n":   "IncompleteBody",
		"-5\r\nhello\r\n0\r\n\r\n":                                       "InvalidChunkSizeError",
		"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:" + right + "\r\n":      "IncompleteBody",
		"5\r\nhelloo\r\n0\r\nx-amz-checksum-crc32:" + right + "\r\n\r\n": "IncompleteBody",
	} {
		err := readUnsigned(body)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", body, err, want)
		}
	}
}

// readUnsigned reads a body with the framing of a client. It does not verify the signature of the request.
func readUnsigned(body string) error {
	r := httptest.NewRequest(http.MethodPut, "/b/k", strings.NewReader(body))
	r.Header.Set("X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
	r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
	r.Header.Set("X-Amz-Decoded-Content-Length", "5")
	if err := wire.DecodeAnonymousBody(r); err != nil {
		return err
	}
	_, err := io.ReadAll(r.Body)
	return err
}

func FuzzUnframe(f *testing.F) {
	f.Add("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n")
	f.Fuzz(func(_ *testing.T, body string) { _ = readUnsigned(body) })
}

func FuzzReadSignature(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=k/20130524/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=0", "")
	f.Add("", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=60&X-Amz-Credential=k%2F20130524%2Fus-east-1%2Fs3%2Faws4_request")
	f.Fuzz(func(_ *testing.T, header, query string) {
		r := httptest.NewRequest(http.MethodPut, "/b/k", http.NoBody)
		r.URL.RawQuery = query
		r.Header.Set("Authorization", header)
		r.Header.Set("X-Amz-Date", "20130524T000000Z")
		if sig, err := wire.ParseSignature(r); err == nil {
			_, _ = wire.Verifier{Keys: docsKey{}, Region: "us-east-1", Now: docsNow}.Verify(r, sig, s3Service())
		}
	})
}
