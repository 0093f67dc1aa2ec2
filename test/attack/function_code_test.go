// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestForgedFunctionCode: who can write to the bucket replaces the code of the function that keeps DNS records. Nobody makes
// a function of it, and a published template is refused. Seen to fail: the function was made of the attacker's code, and got the
// role of the cluster's function.
func TestForgedFunctionCode(t *testing.T) {
	l := newLab(t)
	l.createFunctionCluster()
	keys := l.objectsBelow("team/demo/machine/function/")
	if len(keys) != 1 {
		t.Fatalf("objects with the code of the function: %q", keys)
	}

	_, err := l.s3(caller{}).PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: sdk.String(bucket), Key: &keys[0], Body: bytes.NewReader(regiontest.NewDeploymentPackage(t, "#!/bin/sh\nenv\n")),
	})
	l.check(err)

	// A change of somebody else is the simplest way to have the function created again.
	name := sdk.String("slipway-dns-demo")
	functions := lambda.NewFromConfig(l.config(caller{}))
	_, err = functions.DeleteFunction(t.Context(), &lambda.DeleteFunctionInput{FunctionName: name})
	l.check(err)

	for _, args := range [][]string{
		{"apply", "demo", "--yes"}, {"render", "terraform", "demo", "--publish", "--yes", "--out", l.dir + "/rendered"},
	} {
		out, errs, code := l.slipway(caller{}, args...)
		if code == 0 || !strings.Contains(errs, "it is not the code that slipway published") {
			t.Errorf("slipway %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
	}

	if f, err := functions.GetFunction(t.Context(), &lambda.GetFunctionInput{FunctionName: name}); err == nil {
		t.Errorf("there is a function with the code %s", sdk.ToString(f.Configuration.CodeSha256))
	}
}
