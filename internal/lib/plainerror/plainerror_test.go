// SPDX-License-Identifier: Apache-2.0

package plainerror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// libraryMarks are texts that only libraries write.
var libraryMarks = []string{
	"strconv.", "json:", "yaml:", "unmarshal", "dial tcp", "lookup", "operation error", "StatusCode", "RequestID", "api error",
	"request send failed", "get identity", "x509", "context deadline", "context canceled", "EOF", "time:", "IMDS", "Go struct",
	"exceeded maximum number", "$PATH", "net/http",
}

// The errors come from the libraries themselves, so that a new version with other texts is noticed.
func TestErrorsOfLibraries(t *testing.T) {
	refused := unusedAddress(t)
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"atoi":        {atoi("x"), `"x" is not a number`},
		"too large":   {atoi("99999999999999999999"), `is too large`},
		"bool":        {second(strconv.ParseBool("si")), `"si" is not true or false`},
		"duration":    {second(time.ParseDuration("soon")), `"soon" is not a duration such as 30s or 10m`},
		"no unit":     {second(time.ParseDuration("10")), `"10" is not a duration`},
		"json syntax": {json.Unmarshal([]byte(`{"a":x}`), &struct{}{}), `not valid JSON at 'x'`},
		"json end":    {json.Unmarshal([]byte(`{"a":`), &struct{}{}), `the JSON ends too early`},
		"json type":   {json.Unmarshal([]byte(`{"a":"x"}`), &struct{ A int }{}), `field A cannot be a string`},
		"json value":  {json.Unmarshal([]byte(`"x"`), &struct{ A int }{}), `a string is not allowed here`},
		"yaml syntax": {yaml.Unmarshal([]byte("a: b: c"), &struct{ A int }{}), `mapping values are not allowed`},
		"yaml type":   {yaml.Unmarshal([]byte("a: [x]"), &struct{ A int }{}), `field A cannot be an array`},
		"yaml twice":  {yaml.UnmarshalStrict([]byte("a: 1\na: 2"), &struct{ A int }{}), `line 2: key "a" already set`},
		"no program":  {exec.CommandContext(t.Context(), "no-such-program").Run(), `program "no-such-program" is not in PATH`},
		"refused":     {get(t, "http://"+refused), `connect to ` + refused + `: connection refused`},
		"no host":     {get(t, "http://no-such-host.invalid/x?X-Amz-Signature=secret"), `no-such-host.invalid`},
		"certificate": {get(t, tlsServer(t)), `certificate is not valid`},
		"not tls":     {get(t, strings.Replace(plainServer(t), "http:", "https:", 1)), `answers with HTTP, not HTTPS`},
		"eof":         {fmt.Errorf("read x: %w", io.ErrUnexpectedEOF), "read x: the data ends too early"},
		"no address":  {fmt.Errorf("post x: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}), "post x: no answer"},
		"deadline":    {fmt.Errorf("get: %w", context.DeadlineExceeded), "get: no answer in time"},
		"cancelled":   {fmt.Errorf("get: %w", context.Canceled), "get: interrupted"},
		"aws refused": {describeVPCs(t, refused, "key"), "EC2 DescribeVpcs: after 2 attempts: http://" + refused + "/: connect to " + refused + ": connection refused"},
		"aws code":    {describeVPCs(t, strings.TrimPrefix(ec2Server(t, 403), "http://"), "key"), "EC2 DescribeVpcs: UnauthorizedOperation: You may not."},
		"aws 500":     {describeVPCs(t, strings.TrimPrefix(ec2Server(t, 500), "http://"), "key"), "HTTP 500, request req-1: UnauthorizedOperation"},
		"aws no keys": {describeVPCs(t, refused, ""), "EC2 DescribeVpcs: no AWS credentials are set"},
		"s3 head":     {headBucket(t, s3Server(t)), "S3 HeadBucket: "},
		"profile":     {profile(t), "AWS profile none-such does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.err == nil {
				t.Fatal("the library returns no error")
			}
			got := plainerror.Text("read x: " + test.err.Error())
			if !strings.Contains(got, test.want) {
				t.Errorf("%s\n\tgot  %s\n\twant %s", test.err, got, test.want)
			}
			for _, mark := range append(libraryMarks, "Amz-Signature") {
				if strings.Contains(got, mark) {
					t.Errorf("%s contains %q", got, mark)
				}
			}
		})
	}
}

// TestOtherTextsAreKept: texts without library errors are not changed.
func TestOtherTextsAreKept(t *testing.T) {
	for _, text := range []string{
		"", "there is no cluster demo in file:///x: not found", "open /x: no such file or directory",
		"JSON is printed with -o json",
		"open none.yaml: no such file or directory", "read a.json: unexpected field", "exec: x", "time: now",
	} {
		if got := plainerror.Text(text); got != text && !strings.HasPrefix(text, "exec") {
			t.Errorf("%q became %q", text, got)
		}
	}
	if plainerror.Wrap(nil) != nil {
		t.Error("nil became an error")
	}
	err := plainerror.Wrap(fmt.Errorf("context canceled: %w", fs.ErrNotExist))
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "interrupted: file does not exist" {
		t.Errorf("got %v", err)
	}
}

func atoi(s string) error { return second(strconv.Atoi(s)) }

func second[T any](_ T, err error) error { return err }

func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, url string) error {
	t.Helper()
	resp, err := http.Get(url)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

func tlsServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // it would report the client's refusal
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func plainServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.URL
}

func ec2Server(t *testing.T, status int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, `<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You may not.</Message></Error></Errors><RequestID>req-1</RequestID></Response>`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func s3Server(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(s.Close)
	return s.URL
}

func testConfig(address, key string) aws.Config {
	url := "http://" + strings.TrimPrefix(address, "http://")
	cfg := awstest.NewConfig(url, "us-east-1", credentials.NewStaticCredentialsProvider(key, key, ""))
	cfg.RetryMaxAttempts = 2

	return cfg
}

func describeVPCs(t *testing.T, address, key string) error {
	t.Helper()
	_, err := ec2.NewFromConfig(testConfig(address, key)).DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	return err
}

func headBucket(t *testing.T, address string) error {
	t.Helper()
	client := s3.NewFromConfig(testConfig(address, "key"), func(o *s3.Options) { o.UsePathStyle = true })
	_, err := client.HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: aws.String("b")})
	return err
}

func profile(t *testing.T) error {
	t.Helper()
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	_, err := config.LoadDefaultConfig(t.Context(), config.WithSharedConfigProfile("none-such"))
	return err
}
