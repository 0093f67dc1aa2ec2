// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"strconv"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// cmdObjects is 'objects PREFIX N [BUCKET]': the state bucket, or another one, holds N objects below PREFIX.
func cmdObjects(ts *testscript.TestScript, _ bool, args []string) {
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: objects PREFIX N [BUCKET]")
	}
	bucket := append(args, "slipway-test")[2]
	api := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	out, err := api.ListObjectsV2(context.Background(), &s3.ListObjectsV2Input{Bucket: sdk.String(bucket), Prefix: &args[0]})
	ts.Check(err)
	if got := strconv.Itoa(len(out.Contents)); got != args[1] {
		ts.Fatalf("%s objects below %s, want %s", got, args[0], args[1])
	}
}
