// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// otherAccount owns the bucket that the operator takes for its own.
const otherAccount = "210987654321"

// expectedOwner is the header that names the account whose bucket is expected.
const expectedOwner = "X-Amz-Expected-Bucket-Owner"

// bucketOwners stands in front of the region's S3. It refuses requests that expect another owner, as AWS does, and
// collects those that expect none. The region has one account and checks the owner too, so a request that expects
// otherAccount, and rightly, is signed again for the region's account.
type bucketOwners struct {
	owner string

	mu        sync.Mutex
	checked   int
	unchecked []string
}

// serve returns the URL of S3 behind the check.
func (o *bucketOwners) serve(t *testing.T, region regiontest.Region) string {
	t.Helper()
	to, err := url.Parse(region.URL)
	if err != nil {
		t.Fatal(err)
	}

	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { // the host is signed, so it stays
		r.Out.URL.Scheme = to.Scheme
		r.Out.URL.Host = to.Host

		if r.Out.Header.Get(expectedOwner) == otherAccount {
			r.Out.Header.Set(expectedOwner, regiontest.AccountID)
			signAgain(t, r.Out, region.AWSConfig())
		}
	}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.isRefused(r) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")

			return
		}

		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)

	return srv.URL
}

// signAgain signs a request to S3, whose headers were changed.
func signAgain(t *testing.T, r *http.Request, cfg sdk.Config) {
	t.Helper()
	creds, err := cfg.Credentials.Retrieve(r.Context())
	if err != nil {
		t.Error(err)

		return
	}

	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if err := signer.SignHTTP(r.Context(), creds, r, hash, "s3", cfg.Region, time.Now()); err != nil {
		t.Error(err)
	}
}

func (o *bucketOwners) isRefused(r *http.Request) bool {
	if !strings.Contains(r.Header.Get("Authorization"), "/s3/aws4_request") {
		return false
	}

	isNew := r.Method == http.MethodPut && strings.Trim(r.URL.Path, "/") == bucket && r.URL.RawQuery == ""
	expected := r.Header.Get(expectedOwner)
	o.mu.Lock()
	defer o.mu.Unlock()

	switch {
	case isNew: // CreateBucket has no such parameter
	case expected == "":
		o.unchecked = append(o.unchecked, r.Method+" "+r.URL.String())
	default:
		o.checked++
	}

	return expected != "" && expected != o.owner
}

// newBucketLab is newLab with S3 behind a check of the owner.
func newBucketLab(t *testing.T, owners *bucketOwners) *lab {
	t.Helper()
	l := newLabWithoutStore(t)
	l.more = map[string]string{"AWS_ENDPOINT_URL_S3": owners.serve(t, l.region)}

	return l
}

// TestEveryCallExpectsTheOwner: a life of a cluster makes no call of S3 that another account could answer. Seen to
// fail before clients expected an owner (all calls).
func TestEveryCallExpectsTheOwner(t *testing.T) {
	owners := &bucketOwners{owner: regiontest.AccountID}
	l := newBucketLab(t, owners)
	l.must(caller{}, 0, "state", "init", "--yes")
	l.createCluster()
	l.must(caller{}, 0, "plan", "demo")
	l.must(caller{}, 0, "get", "clusters")
	l.must(caller{}, 0, "export", "kubeconfig", "demo", "--kubeconfig", filepath.Join(l.dir, "config"))
	l.must(caller{}, 0, "delete", "cluster", "demo", "--yes")

	t.Logf("%d requests told S3 whose bucket they expect", owners.checked)
	if owners.checked < 50 {
		t.Errorf("only %d requests passed the check", owners.checked)
	}

	if len(owners.unchecked) > 0 {
		t.Errorf("%d requests expect no owner: %s", len(owners.unchecked), strings.Join(owners.unchecked, ", "))
	}
}

// TestBucketOfAnotherAccount: somebody creates the bucket first, or after its owner deleted it, and opens it to
// everybody. The operator must not read its state from there, nor write to it. Seen to succeed before clients expected
// an owner: 'plan' read, and 'state init' and 'apply' wrote.
func TestBucketOfAnotherAccount(t *testing.T) {
	owners := &bucketOwners{owner: regiontest.AccountID}
	l := newBucketLab(t, owners)
	l.must(caller{}, 0, "state", "init", "--yes")
	l.createCluster()
	before := l.objects()
	owners.owner = otherAccount

	for _, args := range [][]string{
		{"plan", "demo"},
		{"apply", "demo", "--yes"},
		{"state", "init", "--yes"},
		{"create", "cluster", "second", "--zones", "us-east-1a", "--yes"},
		{"export", "kubeconfig", "demo", "--kubeconfig", filepath.Join(l.dir, "stolen")},
		{"delete", "cluster", "demo", "--yes"},
	} {
		out, errs, code := l.slipway(caller{}, args...)
		if code == 0 || !strings.Contains(errs, "owns bucket "+bucket) {
			t.Errorf("slipway %s used the bucket of another account: exit %d\n%s%s", args, code, out, errs)
		}
	}

	if after := l.objects(); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("the objects changed:\n%s\n%s", before, after)
	}

	l.more["SLIPWAY_STATE_OWNER"] = otherAccount // on purpose; the key is in the account of its bucket
	l.editSettings(func(text string) string { return strings.ReplaceAll(text, regiontest.AccountID, otherAccount) })
	l.must(caller{}, 0, "get", "clusters")
}
