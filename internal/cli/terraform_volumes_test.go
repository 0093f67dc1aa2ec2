// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestTerraformMachinesCreateNoVolumes: with Terraform, which creates a lost volume itself, machines neither create one nor may.
// CloudFormation does not create again what it has created once: there machines do.
func TestTerraformMachinesCreateNoVolumes(t *testing.T) {
	r := regiontest.StartWith(t, regiontest.Options{})
	s := newShell(t, r)
	s.must("state", "init", "--yes")
	s.must("create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	h := newHand(t.Context(), r)
	for _, output := range []string{"terraform", "cloudformation"} {
		creates := output == "cloudformation"
		if got := strings.Contains(s.must("render", output, "demo", "--publish", "--yes"), "ec2:CreateVolume"); got != creates {
			t.Errorf("%s: a role may create volumes: %v, want %v", output, got, creates)
		}
		if got := h.countNewVolumes(t); (got > 0) != creates {
			t.Errorf("%s: %d documents have newVolumes, want them: %v", output, got, creates)
		}
	}
}

// countNewVolumes returns how many published documents of the control plane tell machines to create volumes.
func (h hand) countNewVolumes(t *testing.T) int {
	t.Helper()
	bucket := "slipway-test"
	listed, err := h.s3.ListObjectsV2(h.ctx, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: new("demo/machine/controlplane/documents/")})
	if err != nil || len(listed.Contents) == 0 {
		t.Fatalf("%+v, %v", listed, err)
	}
	count := 0
	for _, o := range listed.Contents {
		out, err := h.s3.GetObject(h.ctx, &s3.GetObjectInput{Bucket: &bucket, Key: o.Key})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(out.Body)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), `"newVolumes"`) {
			count++
		}
	}
	return count
}
