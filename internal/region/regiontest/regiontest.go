// SPDX-License-Identifier: Apache-2.0

// Package regiontest runs the local region in records mode for the tests of other packages: every rule of AWS's control
// plane that the region has, without machines and without root, over real HTTP or inside the test's own process. It
// knows nothing of who calls it.
package regiontest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/services"
)

// What the region is called and has.
const (
	RegionName = "us-east-1"
	AccountID  = "123456789012"
	AccessKey  = "AKIDEXAMPLE"
	SecretKey  = "secret"
	// ImageID is Debian's for amd64; Parameter is the SSM parameter that names it. See images for the others.
	ImageID        = "ami-0123456789abcdef0"
	ImageParameter = "/aws/service/debian/release/12/latest/amd64"
	// transitionDelay is how long an eventual state takes.
	transitionDelay = 100 * time.Millisecond
	// pollInterval is how often CloudFormation looks at a resource that is not ready yet.
	pollInterval = 20 * time.Millisecond
)

// Options say what kind of region a test wants. The zero Options give the one of [Start].
type Options struct {
	// InProcess leaves out the network: only clients of [Region.AWSConfig] reach the region, by a call. With it a region
	// may live in a bubble of testing/synctest, where nobody really waits.
	InProcess bool
	// Faults go wrong from the beginning; more can be added to [Region.Faults]. Rules of fault.Provision set how long
	// things take.
	Faults []fault.Rule
	// Snapshot is what the region knows at its start; the zero Snapshot is an empty region.
	Snapshot Snapshot
	// RateLimit throttles those who call too often; nil throttles nobody.
	RateLimit *RateLimit
	// TraceAuthorization sees every question that a policy of IAM decides; nil for nobody.
	TraceAuthorization func(authz.Request, authz.Decision)
	// Quotas of EC2; zero fields are those of a new account.
	Quotas ec2.Quotas
	// DeleteRetryTimeout is how long a stack tries to delete what is in use; the default is CloudFormation's own here, 20 s.
	DeleteRetryTimeout time.Duration
}

// Region is a running region.
type Region struct {
	URL string
	// Faults decides which calls go wrong.
	Faults *fault.Engine

	services    *services.Services
	client      *http.Client  // nil: the ordinary one
	clockOffset *atomic.Int64 // how far the region's clock is ahead, in nanoseconds
}

// CallCounts counts the calls that were answered, as in ec2:DescribeVpcs.
func (r Region) CallCounts() map[string]int { return r.services.Server.Calls() }

// AWSConfig reaches the region as the account's root.
func (r Region) AWSConfig() aws.Config {
	cfg := awstest.NewConfig(r.URL, RegionName, credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""))
	cfg.RetryMaxAttempts = 0
	if r.client != nil {
		cfg.HTTPClient = r.client
	}

	return cfg
}

// Transport carries requests to the region, to be wrapped by what disturbs them.
func (r Region) Transport() http.RoundTripper {
	if r.client != nil {
		return r.client.Transport
	}

	return http.DefaultTransport
}

// Env reaches the region as a process's environment does.
func (r Region) Env() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL": r.URL, "AWS_REGION": RegionName, "AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey,
		"AWS_EC2_METADATA_DISABLED": "true",
	}
}

// Start runs a region until the test ends.
func Start(t *testing.T) Region {
	t.Helper()
	return StartWith(t, Options{})
}

// StartWith runs a region with options until the test ends.
func StartWith(t *testing.T, o Options) Region {
	t.Helper()
	r, stop := StartStoppable(t, o)
	t.Cleanup(stop)

	return r
}

// T is what a region needs of a test: *testing.T and *rapid.T have it.
type T interface {
	Helper()
	Fatal(args ...any)
}

// StartStoppable runs a region until stop is called, for a test that makes many.
func StartStoppable(t T, o Options) (r Region, stop func()) {
	t.Helper()
	r = Region{Faults: &fault.Engine{}, clockOffset: &atomic.Int64{}}
	for _, rule := range o.Faults {
		if _, err := r.Faults.Add(rule); err != nil {
			t.Fatal(err)
		}
	}

	dir, err := os.MkdirTemp("", "region-") // rapid's tests have no folder of their own
	if err != nil {
		t.Fatal(err)
	}

	if err := buildServices(&r, o, dir); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(
		context.Background(),
	) //nolint:forbidigo // it ends with stop: rapid's tests have no context of their own
	var wg sync.WaitGroup
	wg.Go(func() { r.services.Run(ctx) })

	end := func() {
		cancel()
		wg.Wait()
		_ = os.RemoveAll(dir) // a folder of the system's own for such things
	}
	if o.InProcess {
		r.URL = "http://127.0.0.1:1" // an address, so that names of buckets stay in the path
		r.client = &http.Client{Transport: inProcessTransport{r.services.Handler()}}
		return r, end
	}

	web := httptest.NewServer(r.services.Handler())
	r.URL = web.URL

	return r, func() { web.Close(); end() }
}

// AdvanceClock puts the region's clock forward: what takes time has happened at its next call. Clients whose clocks stay
// behind by more than five minutes are refused from then on.
func (r Region) AdvanceClock(d time.Duration) { r.clockOffset.Add(int64(d)) }

// buildServices builds a region's services over the records of the snapshot, with their buckets below dir.
func buildServices(r *Region, o Options, dir string) (err error) {
	now := func() time.Time {
		real := time.Now() //nolint:forbidigo // a region for tests runs in real time, as its clients do
		return real.Add(time.Duration(r.clockOffset.Load()))
	}

	var before func(ctx context.Context, service, op string) error
	if o.RateLimit != nil {
		o.RateLimit.now = now
		before = o.RateLimit.checkRate
	}

	r.services, err = services.New(services.Config{
		Region:             RegionName,
		Account:            AccountID,
		AccessKeyID:        AccessKey,
		SecretKey:          SecretKey,
		Now:                now,
		State:              o.Snapshot.newBackend(),
		S3Dir:              filepath.Join(dir, "s3"),
		Faults:             r.Faults,
		TransitionDelay:    transitionDelay,
		Images:             ec2Images(publishedImages()),
		PublicParameters:   imageParameters(publishedImages()),
		Quotas:             o.Quotas,
		TraceAuthorization: o.TraceAuthorization,
		PollInterval:       pollInterval,
		DeleteRetryTimeout: o.DeleteRetryTimeout,
		Before:             before,
	})

	return err
}
