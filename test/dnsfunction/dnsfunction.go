// SPDX-License-Identifier: Apache-2.0

// Package dnsfunction lets a test run cmd/slipway-dns as a Lambda function of the local region: the test's own program is
// the function. Its deployment package is a script of a few bytes that starts it.
package dnsfunction

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	runtimeapi "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/machine/discovery"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// Main is the Lambda function if the local region starts this program as one; it does not return then. Call it at the
// beginning of TestMain. cmd/slipway-dns does the same.
//
//nolint:forbidigo // it is the main function of a program
func Main() {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") == "" {
		return
	}

	function, err := discovery.New(context.Background(), os.Getenv, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	runtimeapi.Start(function.Handle)
}

// bucketPoll is how often Publish asks for a bucket that S3 does not see yet.
const bucketPoll = 50 * time.Millisecond

// Publish puts the function into a bucket, which it creates, and returns the code for the model.
func Publish(t *testing.T, cfg aws.Config, bucket, key string) model.FunctionCode {
	t.Helper()
	body := regiontest.NewDeploymentPackage(t, regiontest.ScriptOfTest(t))
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := buckets.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}

	exists := s3.NewBucketExistsWaiter(buckets, func(o *s3.BucketExistsWaiterOptions) {
		o.MinDelay = time.Millisecond
		o.MaxDelay = bucketPoll
	})
	if err := exists.Wait(t.Context(), &s3.HeadBucketInput{Bucket: &bucket}, time.Minute); err != nil {
		t.Fatal(err)
	}

	in := &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)}
	if _, err := buckets.PutObject(t.Context(), in); err != nil {
		t.Fatal(err)
	}

	sum := sha256.Sum256(body)

	return model.FunctionCode{Key: key, SHA256: hex.EncodeToString(sum[:]), Arch: runtime.GOARCH}
}

// Build compiles cmd/slipway-dns for this machine and returns the path of the program.
func Build(dir string) (string, error) {
	path := filepath.Join(dir, "slipway-dns")
	cmd := exec.Command( //nolint:noctx // of a test
		"go", "build", "-trimpath", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", path,
		"github.com/slipway-k8s/slipway/cmd/slipway-dns",
	)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the function: %w: %s", err, out)
	}

	return path, nil
}
