// SPDX-License-Identifier: Apache-2.0

package awsfix_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/smithy-go/middleware"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
)

// slowConn pauses after each write, like a connection of a busy computer.
type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	time.Sleep(100 * time.Millisecond)
	return n, err
}

// TestAnswerToALargeRequestIsRead sends the headers of a response while the request is still being written, and its body
// after that.
func TestAnswerToALargeRequestIsRead(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		time.Sleep(300 * time.Millisecond)
		_, _ = io.WriteString(w, `{"KeyId": "ours"}`)
	}))
	t.Cleanup(server.Close)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return slowConn{c}, err
	}
	api := kms.New(kms.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}, Retryer: aws.NopRetryer{},
		APIOptions: []func(*middleware.Stack) error{awsfix.AddBodyMiddleware, awsfix.AddBodyMiddleware},
	})
	out, err := api.Encrypt(t.Context(), &kms.EncryptInput{KeyId: aws.String("ours"), Plaintext: []byte(strings.Repeat("x", 32<<10))})
	if err != nil || aws.ToString(out.KeyId) != "ours" {
		t.Errorf("%+v: %v", out, err)
	}
}
