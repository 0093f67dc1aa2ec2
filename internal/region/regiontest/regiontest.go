// SPDX-License-Identifier: Apache-2.0

// Package regiontest runs the local region for the tests of other packages: the full control plane, without
// machines, network and root, over HTTP or inside the test's process.
package regiontest

import (
	"cmp"
	"context"
	"maps"
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
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/services"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// Properties of every test region.
const (
	RegionName = "us-east-1"
	AccountID  = "123456789012"
	AccessKey  = "AKIDEXAMPLE"
	SecretKey  = "secret"
	// ImageID is the Debian AMI for amd64, and ImageParameter the SSM parameter with its ID. See
	// publishedImages for the others.
	ImageID        = "ami-0123456789abcdef0"
	ImageParameter = "/aws/service/debian/release/12/latest/amd64"
	// LikeAWS is the VisibilityDelay of a region that people start.
	LikeAWS = visibility.DefaultTime
	// transitionDelay is how long a resource takes to become ready.
	transitionDelay = 100 * time.Millisecond
	// pollInterval is how often CloudFormation looks at a resource that is not ready yet.
	pollInterval = 20 * time.Millisecond
)

// Options are the options of a region. The zero value is that of [Start].
type Options struct {
	// InProcess serves the region without a network: only clients with [Region.AWSConfig] reach it. Such a
	// region can run in a bubble of testing/synctest.
	InProcess bool
	// Faults are rules that apply from the beginning; [Region.Faults] takes more. Rules of fault.Provision
	// set how long resources take to become ready.
	Faults []fault.Rule
	// Snapshot is the state of the region at its start; the zero Snapshot is an empty region.
	Snapshot Snapshot
	// RateLimit limits the rate of calls; nil for no limit.
	RateLimit *RateLimit
	// TraceAuthorization is called for each request that an IAM policy decides; nil for none.
	TraceAuthorization func(authz.Request, authz.Decision)
	// Quotas are the limits of EC2; a zero field is the limit of a new account.
	Quotas ec2.Quotas
	// IAMQuotas are the limits of IAM; a zero field is the limit of a new account.
	IAMQuotas iam.Quotas
	// MaxLoadBalancers is the limit of network load balancers; 0 is that of a new account.
	MaxLoadBalancers int
	// MaxStacks is the limit of stacks; 0 is that of a new account.
	MaxStacks int
	// NoDefaultVPC starts an account whose default VPC was deleted.
	NoDefaultVPC bool
	// RegionName is the name of the region; default [RegionName].
	RegionName string
	// Images are AMIs that EC2 offers besides those of publishedImages.
	Images []ec2.Image
	// PublicParameters are SSM parameters of AWS, by name, besides those of publishedImages.
	PublicParameters map[string]string
	// TransitionDelay is how long a resource takes to become ready; default 100 ms.
	TransitionDelay time.Duration
	// VisibilityDelay is how long what is new is not seen; 0 for not at all, which is the default for tests that
	// create something and read it in one breath. Tests of the product use that of a region that people start: [LikeAWS].
	VisibilityDelay time.Duration
	// DeleteRetryTimeout is how long CloudFormation retries the deletion of a resource in use; default 20 s.
	DeleteRetryTimeout time.Duration
}

// Region is a running region.
type Region struct {
	// URL is the endpoint of the region; with InProcess only clients of AWSConfig reach it.
	URL string
	// Faults injects faults into calls.
	Faults *fault.Engine

	services    *services.Services
	client      *http.Client  // nil for the default client
	clockOffset *atomic.Int64 // nanoseconds that the region's clock is ahead
}

// CallCounts returns the number of calls by service and operation, such as ec2:DescribeVpcs.
func (r Region) CallCounts() map[string]int { return r.services.Server.CallCounts() }

// AWSConfig returns the configuration of AWS clients that call the region as the account's root.
func (r Region) AWSConfig() aws.Config {
	cfg := awstest.NewConfig(
		r.URL,
		RegionName,
		credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	)
	cfg.RetryMaxAttempts = 0
	if r.client != nil {
		cfg.HTTPClient = r.client
	}

	return cfg
}

// Transport returns the HTTP transport to the region, for tests that wrap it.
func (r Region) Transport() http.RoundTripper {
	if r.client != nil {
		return r.client.Transport
	}

	return http.DefaultTransport
}

// Handler answers the requests to the region, for tests that serve it themselves.
func (r Region) Handler() http.Handler { return r.services.Handler() }

// Env returns the environment variables of a process that calls the region.
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

// T is the part of *testing.T that a region needs; *rapid.T has it too.
type T interface {
	Helper()
	Fatal(args ...any)
}

// StartStoppable runs a region until stop is called, for a test that starts many.
func StartStoppable(t T, o Options) (r Region, stop func()) {
	t.Helper()
	r = Region{Faults: &fault.Engine{}, clockOffset: &atomic.Int64{}}
	for _, rule := range o.Faults {
		if _, err := r.Faults.AddRule(rule); err != nil {
			t.Fatal(err)
		}
	}

	dir, err := os.MkdirTemp("", "region-") // rapid.T has no TempDir
	if err != nil {
		t.Fatal(err)
	}

	if err := buildServices(&r, o, dir); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // rapid.T has no context
	var wg sync.WaitGroup
	wg.Go(func() { r.services.Run(ctx) })

	end := func() {
		cancel()
		wg.Wait()
		_ = os.RemoveAll(dir) // in the system's folder for temporary files
	}
	if o.InProcess {
		r.URL = "http://127.0.0.1:1" // an IP address, so that clients put bucket names in the path
		r.client = &http.Client{Transport: inProcessTransport{r.services.Handler()}}
		return r, end
	}

	web := httptest.NewServer(r.services.Handler())
	r.URL = web.URL

	return r, func() { web.Close(); end() }
}

// AdvanceClock moves the region's clock forward; transitions that are due then are applied at the next call.
// The region refuses the signatures of clients whose clocks are more than five minutes behind.
func (r Region) AdvanceClock(d time.Duration) { r.clockOffset.Add(int64(d)) }

// now returns the region's time.
func (r Region) now() time.Time {
	real := time.Now() //nolint:forbidigo // a region for tests runs in real time, as its clients do
	return real.Add(time.Duration(r.clockOffset.Load()))
}

// buildServices builds a region's services over the records of the snapshot, with their buckets below dir.
func buildServices(r *Region, o Options, dir string) (err error) {
	now := r.now

	var before func(ctx context.Context, service, op string) error
	if o.RateLimit != nil {
		o.RateLimit.now = now
		before = o.RateLimit.checkRate
	}

	parameters := imageParameters(publishedImages())
	maps.Copy(parameters, o.PublicParameters)

	r.services, err = services.New(services.Config{
		Region:             cmp.Or(o.RegionName, RegionName),
		Account:            AccountID,
		AccessKeyID:        AccessKey,
		SecretKey:          SecretKey,
		Now:                now,
		State:              o.Snapshot.newBackend(),
		S3Dir:              filepath.Join(dir, "s3"),
		FunctionDir:        filepath.Join(dir, "functions"),
		RegistryDir:        filepath.Join(dir, "images"),
		Endpoint:           func() string { return r.URL },
		Faults:             r.Faults,
		TransitionDelay:    cmp.Or(o.TransitionDelay, transitionDelay),
		Images:             append(ec2Images(publishedImages()), o.Images...),
		PublicParameters:   parameters,
		Quotas:             o.Quotas,
		IAMQuotas:          o.IAMQuotas,
		MaxLoadBalancers:   o.MaxLoadBalancers,
		MaxStacks:          o.MaxStacks,
		NoDefaultVPC:       o.NoDefaultVPC,
		TraceAuthorization: o.TraceAuthorization,
		Visibility:         visibility.Delay{Time: o.VisibilityDelay},
		PollInterval:       pollInterval,
		DeleteRetryTimeout: o.DeleteRetryTimeout,
		Before:             before,
	})

	return err
}
