// SPDX-License-Identifier: Apache-2.0

// Package regiontest runs the local region in records mode for the tests of other packages: every rule of AWS's control
// plane that the region has, without machines and without root, over real HTTP or inside the test's own process. It
// knows nothing of who calls it.
package regiontest

import (
	"context"
	"crypto/rand"
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
	"github.com/aws/smithy-go/middleware"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/autoscaling"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/elbv2"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/kms"
	"github.com/slipway-k8s/slipway/internal/region/route53"
	"github.com/slipway-k8s/slipway/internal/region/s3"
	"github.com/slipway-k8s/slipway/internal/region/server"
	"github.com/slipway-k8s/slipway/internal/region/servicequotas"
	"github.com/slipway-k8s/slipway/internal/region/ssm"
	"github.com/slipway-k8s/slipway/internal/region/sts"
	"github.com/slipway-k8s/slipway/internal/region/wire"
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

	server      *server.Server
	services    regionServices
	client      *http.Client  // nil: the ordinary one
	clockOffset *atomic.Int64 // how far the region's clock is ahead, in nanoseconds
}

// regionServices are the region's services, in the order of their snapshot.
type regionServices struct {
	iam            *iam.IAM
	kms            *kms.Service
	ec2            *ec2.Service
	elbv2          *elbv2.Service
	autoscaling    *autoscaling.Service
	route53        *route53.Service
	cloudformation *cloudformation.Service
}

// CallCounts counts the calls that were answered, as in ec2:DescribeVpcs.
func (r Region) CallCounts() map[string]int { return r.server.Calls() }

// AWSConfig reaches the region as the account's root.
func (r Region) AWSConfig() aws.Config {
	cfg := aws.Config{
		Region:       RegionName,
		BaseEndpoint: &r.URL,
		Credentials:  credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
		APIOptions:   []func(*middleware.Stack) error{awsfix.AddBodyMiddleware},
	}
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

// instanceProfiles is IAM as EC2 sees it.
type instanceProfiles struct{ iam *iam.IAM }

// InstanceProfile finds a profile by its name or ARN.
func (p instanceProfiles) InstanceProfile(nameOrARN string) (ec2.Profile, bool) {
	v, ok := p.iam.InstanceProfile(nameOrARN)
	arn, _ := p.iam.RoleARN(v.Role)
	return ec2.Profile{
		ARN:     v.ARN,
		ID:      v.ID,
		Role:    v.Role,
		RoleARN: arn,
	}, ok
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
	for _, run := range []func(context.Context){r.services.ec2.Run, r.services.elbv2.Run, r.services.autoscaling.Run, r.services.cloudformation.Run} {
		wg.Go(func() { run(ctx) })
	}

	end := func() {
		cancel()
		wg.Wait()
		_ = os.RemoveAll(dir) // a folder of the system's own for such things
	}
	if o.InProcess {
		r.URL = "http://127.0.0.1:1" // an address, so that names of buckets stay in the path
		r.client = &http.Client{Transport: inProcessTransport{r.newHandler()}}
		return r, end
	}

	web := httptest.NewServer(r.newHandler())
	r.URL = web.URL

	return r, func() { web.Close(); end() }
}

// newHandler answers all requests: those to wait condition handles have no signature.
func (r Region) newHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if h, ok := r.services.cloudformation.SignalHandler(q); ok {
			h.ServeHTTP(w, q)
			return
		}

		r.server.ServeHTTP(w, q)
	})
}

// AdvanceClock puts the region's clock forward: what takes time has happened at its next call. Clients whose clocks stay
// behind by more than five minutes are refused from then on.
func (r Region) AdvanceClock(d time.Duration) { r.clockOffset.Add(int64(d)) }

// buildServices makes a region's services and joins them.
func buildServices(r *Region, o Options, dir string) (err error) {
	from := o.Snapshot.newBackend()
	p := &r.services
	now := func() time.Time {
		return time.Now().Add(
			time.Duration(r.clockOffset.Load()),
		) //nolint:forbidigo // a region for tests runs in real time, as its clients do
	}
	if p.iam, err = iam.New(iam.Config{
		Account:     AccountID,
		AccessKeyID: AccessKey,
		SecretKey:   SecretKey,
		State:       from,
		Now:         now,
		Trace:       o.TraceAuthorization,
	}); err != nil {
		return err
	}

	if p.kms, err = kms.New(kms.Config{
		Region:     RegionName,
		Account:    AccountID,
		State:      from,
		Now:        now,
		Identities: p.iam,
	}); err != nil {
		return err
	}

	objects, err := s3.New(s3.Config{
		Dir:        filepath.Join(dir, "s3"),
		Region:     RegionName,
		Now:        now,
		Identities: p.iam,
		Keys:       p.kms,
	})
	if err != nil {
		return err
	}

	parameters, err := ssm.New(ssm.Config{
		Region:  RegionName,
		Account: AccountID,
		State:   from,
		Now:     now,
		Public:  imageParameters(publishedImages()),
	})
	if err != nil {
		return err
	}

	p.ec2, err = ec2.New(ec2.Config{
		Region:            RegionName,
		Account:           AccountID,
		Now:               now,
		Rand:              rand.Reader,
		TransitionDelay:   transitionDelay,
		Profiles:          instanceProfiles{p.iam},
		Saver:             from,
		Images:            ec2Images(publishedImages()),
		ProvisioningDelay: r.Faults.Provisioning,
		Quotas:            o.Quotas,
	})
	if err != nil {
		return err
	}

	if err := p.buildBalancersAndScaling(from, now, r.Faults); err != nil {
		return err
	}

	cfg := server.Config{
		Region:     RegionName,
		Keys:       p.iam,
		Authorizer: p.iam,
		Now:        now,
		Faults:     r.Faults,
	}
	if o.RateLimit != nil {
		o.RateLimit.now = now
		cfg.Before = o.RateLimit.checkRate
	}

	cfg.Services = append(
		cfg.Services,
		p.iam.Service(),
		sts.Service(p.iam),
		p.kms.Wire(),
		objects.Wire(),
		parameters.Wire(),
		servicequotas.Service(servicequotas.Config{Region: RegionName, Account: AccountID, EC2: o.Quotas}),
		p.ec2.Wire(),
		p.elbv2.Wire(),
		p.autoscaling.Wire(),
		p.route53.Wire(),
	)
	if err := p.buildCloudFormation(o, from, cfg.Services, now); err != nil {
		return err
	}

	cfg.Services = append(cfg.Services, p.cloudformation.Wire())
	r.server, err = server.New(cfg)

	return err
}

// buildCloudFormation makes CloudFormation over all the other services.
func (p *regionServices) buildCloudFormation(
	o Options,
	from *snapshotBackend,
	services []wire.Service,
	now func() time.Time,
) (err error) {
	p.cloudformation, err = cloudformation.New(cloudformation.Config{
		Region:             RegionName,
		Account:            AccountID,
		Now:                now,
		Rand:               rand.Reader,
		State:              from,
		Zones:              p.ec2.Zones(),
		Services:           services,
		Authorizer:         p.iam,
		Roles:              p.iam,
		PollInterval:       20 * time.Millisecond,
		DeleteRetryTimeout: o.DeleteRetryTimeout,
		SystemTaggers: map[string]cloudformation.SystemTagger{
			"elasticloadbalancing": p.elbv2.Mark, "iam": p.iam.Mark, "kms": p.kms.Mark, "route53": p.route53.Mark,
		},
	})

	return err
}

// buildBalancersAndScaling makes load balancing and Auto Scaling over EC2.
func (p *regionServices) buildBalancersAndScaling(
	from *snapshotBackend,
	now func() time.Time,
	faults *fault.Engine,
) (err error) {
	p.elbv2, err = elbv2.New(elbv2.Config{
		Region:       RegionName,
		Account:      AccountID,
		Now:          now,
		Rand:         rand.Reader,
		Delay:        transitionDelay,
		Cloud:        p.ec2,
		Saver:        from,
		Provisioning: faults.Provisioning,
	})
	if err != nil {
		return err
	}

	p.ec2.SetLoadBalancers(p.elbv2.Balancers)
	p.route53, err = route53.New(route53.Config{
		Region:  RegionName,
		Now:     now,
		Rand:    rand.Reader,
		Delay:   transitionDelay,
		Saver:   from,
		VPC:     p.ec2.HasVPC,
		Target:  p.elbv2.HasTarget,
		Changed: p.ec2.LoadBalancersChanged,
	})
	if err != nil {
		return err
	}

	p.ec2.SetHostedZones(p.route53.Names)
	p.autoscaling, err = autoscaling.New(autoscaling.Config{
		Region:       RegionName,
		Account:      AccountID,
		Now:          now,
		Rand:         rand.Reader,
		EC2:          p.ec2,
		TargetGroups: p.elbv2,
		Saver:        from,
	})
	if err != nil {
		return err
	}

	p.ec2.AddWatcher(p.autoscaling.RequestReconcile)

	return nil
}
