// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/ecrlogin"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// cmdECR returns the command of scripts `ecr`: it sets ECR to the private registry of the region, which the commands after it
// reach by its name in AWS, with TLS.
func cmdECR(t *testing.T) func(*testscript.TestScript, bool, []string) {
	t.Helper()

	return func(ts *testscript.TestScript, _ bool, _ []string) {
		r, ok := ts.Value("region").(regiontest.Region)
		if !ok {
			ts.Fatalf("no region")
		}
		const host = regiontest.AccountID + ".dkr.ecr.us-east-1.amazonaws.com"
		const layers = "prod-us-east-1-starport-layer-bucket.s3.us-east-1.amazonaws.com"
		for k, v := range regiontest.StartProxy(t, r.URL, host, layers) {
			ts.Setenv(k, v)
		}
		ts.Setenv("ECR", host)
	}
}

// cmdECRHas returns the command of scripts `ecrhas CATALOG`: it pulls all images of a catalogue by their digests, and compares them
// with those of their tags.
func cmdECRHas(t *testing.T) func(*testscript.TestScript, bool, []string) {
	t.Helper()

	return func(ts *testscript.TestScript, _ bool, args []string) { checkECR(t.Context(), ts, args[0]) }
}

// checkECR does what cmdECRHas says.
func checkECR(ctx context.Context, ts *testscript.TestScript, path string) {
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok {
		ts.Fatalf("no region")
	}
	catalog, err := asset.ParseCatalog([]byte(ts.ReadFile(path)))
	ts.Check(err)
	token, err := ecrlogin.GetToken(ctx, ecr.NewFromConfig(r.AWSConfig()))
	ts.Check(err)
	options := []remote.Option{
		remote.WithTransport(regiontest.HostNames{Region: r}), remote.WithContext(ctx),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: token.User, Password: token.Password})),
	}
	for _, i := range catalog.Images {
		ref, err := name.NewDigest(catalog.PullReference(i, "amd64"))
		ts.Check(err)
		image, err := remote.Image(ref, options...)
		ts.Check(err)
		ts.Check(validate.Image(image))
		tag, err := name.NewTag(catalog.ImagePrefix() + i.Ref)
		ts.Check(err)
		tagged, err := remote.Get(tag, options...)
		ts.Check(err)
		if tagged.Digest.String() != ref.DigestStr() {
			ts.Fatalf("the tag of %s has the digest %s", ref, tagged.Digest)
		}
	}
}
