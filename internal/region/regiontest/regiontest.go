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
	Name      = "us-east-1"
	Account   = "123456789012"
	AccessKey = "AKIDEXAMPLE"
	SecretKey = "secret"
	// Image is Debian's for amd64; Parameter is the SSM parameter that names it. See images for the others.
	Image     = "ami-0123456789abcdef0"
	Parameter = "/aws/service/debian/release/12/latest/amd64"
	// delay is how long an eventual state takes.
	delay = 100 * time.Millisecond
)

// Options say what kind of region a test wants. The zero Options give the one of [Start].
type Options struct {
	// InProcess leaves out the network: only clients of [Region.Config] reach the region, by a call. With it a region
	// may live in a bubble of testing/synctest, where nobody really waits.
	InProcess bool
	// Faults go wrong from the beginning; more can be added to [Region.Faults]. Rules of fault.Provision set how long
	// things take.
	Faults []fault.Rule
	// From is what the region knows at its start; the zero Snapshot is an empty region.
	From Snapshot
	// Limit throttles those who call too often; nil throttles nobody.
	Limit *Limit
	// Trace sees every question that a policy of IAM decides; nil for nobody.
	Trace func(authz.Request, authz.Decision)
	// Quotas of EC2; zero fields are those of a new account.
	Quotas ec2.Quotas
	// Patience is how long a stack tries to delete what is in use; the default is CloudFormation's own here, 20 s.
	Patience time.Duration
}

// Region is a running region.
type Region struct {
	URL string
	// Faults decides which calls go wrong.
	Faults *fault.Engine

	server *server.Server
	parts  parts
	client *http.Client  // nil: the ordinary one
	ahead  *atomic.Int64 // how far the region's clock is ahead, in nanoseconds
}

// parts are the region's services, in the order of their snapshot.
type parts struct {
	iam     *iam.IAM
	kms     *kms.Service
	ec2     *ec2.Service
	elb     *elbv2.Service
	scaling *autoscaling.Service
	names   *route53.Service
	stacks  *cloudformation.Service
}

// Calls counts the calls that were answered, as in ec2:DescribeVpcs.
func (r Region) Calls() map[string]int { return r.server.Calls() }

// Config reaches the region as the account's root.
func (r Region) Config() aws.Config {
	cfg := aws.Config{
		Region: Name, BaseEndpoint: &r.URL, Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
		APIOptions: []func(*middleware.Stack) error{awsfix.Bodies},
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
		"AWS_ENDPOINT_URL": r.URL, "AWS_REGION": Name, "AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey,
		"AWS_EC2_METADATA_DISABLED": "true",
	}
}

// profiles is IAM as EC2 sees it.
type profiles struct{ iam *iam.IAM }

// InstanceProfile finds a profile by its name or ARN.
func (p profiles) InstanceProfile(nameOrARN string) (ec2.Profile, bool) {
	v, ok := p.iam.InstanceProfile(nameOrARN)
	arn, _ := p.iam.RoleARN(v.Role)
	return ec2.Profile{ARN: v.ARN, ID: v.ID, Role: v.Role, RoleARN: arn}, ok
}

// Start runs a region until the test ends.
func Start(t *testing.T) Region {
	t.Helper()
	return StartWith(t, Options{})
}

// StartWith runs a region with options until the test ends.
func StartWith(t *testing.T, o Options) Region {
	t.Helper()
	r, stop := Run(t, o)
	t.Cleanup(stop)
	return r
}

// T is what a region needs of a test: *testing.T and *rapid.T have it.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Run runs a region until stop is called, for a test that makes many.
func Run(t T, o Options) (r Region, stop func()) {
	t.Helper()
	r = Region{Faults: &fault.Engine{}, ahead: &atomic.Int64{}}
	for _, rule := range o.Faults {
		if _, err := r.Faults.Add(rule); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "region-") // rapid's tests have no folder of their own
	if err != nil {
		t.Fatal(err)
	}
	if err := build(&r, o, dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // it ends with stop: rapid's tests have no context of their own
	var wg sync.WaitGroup
	for _, run := range []func(context.Context){r.parts.ec2.Run, r.parts.elb.Run, r.parts.scaling.Run, r.parts.stacks.Run} {
		wg.Go(func() { run(ctx) })
	}
	end := func() {
		cancel()
		wg.Wait()
		_ = os.RemoveAll(dir) // a folder of the system's own for such things
	}
	if o.InProcess {
		r.URL = "http://127.0.0.1:1" // an address, so that names of buckets stay in the path
		r.client = &http.Client{Transport: direct{r.front()}}
		return r, end
	}
	web := httptest.NewServer(r.front())
	r.URL = web.URL
	return r, func() { web.Close(); end() }
}

// front answers all requests: those to wait condition handles have no signature.
func (r Region) front() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if h, ok := r.parts.stacks.Signals(q); ok {
			h.ServeHTTP(w, q)
			return
		}
		r.server.ServeHTTP(w, q)
	})
}

// Advance puts the region's clock forward: what takes time has happened at its next call. Clients whose clocks stay
// behind by more than five minutes are refused from then on.
func (r Region) Advance(d time.Duration) { r.ahead.Add(int64(d)) }

// build makes a region's services and joins them.
func build(r *Region, o Options, dir string) (err error) {
	from, p := o.From.saver(), &r.parts
	now := func() time.Time {
		return time.Now().Add(time.Duration(r.ahead.Load())) //nolint:forbidigo // a region for tests runs in real time, as its clients do
	}
	if p.iam, err = iam.New(iam.Config{Account: Account, AccessKeyID: AccessKey, SecretKey: SecretKey, State: from, Now: now, Trace: o.Trace}); err != nil {
		return err
	}
	if p.kms, err = kms.New(kms.Config{Region: Name, Account: Account, State: from, Now: now, Identities: p.iam}); err != nil {
		return err
	}
	objects, err := s3.New(s3.Config{Dir: filepath.Join(dir, "s3"), Region: Name, Now: now, Identities: p.iam, Keys: p.kms})
	if err != nil {
		return err
	}
	parameters, err := ssm.New(ssm.Config{Region: Name, Account: Account, State: from, Now: now, Public: parametersOf(images())})
	if err != nil {
		return err
	}
	p.ec2, err = ec2.New(ec2.Config{
		Region: Name, Account: Account, Now: now, Rand: rand.Reader, Delay: delay, Profiles: profiles{p.iam}, Saver: from,
		Images:       recordsOf(images()),
		Provisioning: r.Faults.Provisioning, Quotas: o.Quotas,
	})
	if err != nil {
		return err
	}
	if err := p.buildScaling(from, now, r.Faults); err != nil {
		return err
	}
	cfg := server.Config{Region: Name, Keys: p.iam, Authorizer: p.iam, Now: now, Faults: r.Faults}
	if o.Limit != nil {
		o.Limit.now = now
		cfg.Before = o.Limit.before
	}
	cfg.Services = append(cfg.Services, p.iam.Service(), sts.Service(p.iam), p.kms.Wire(), objects.Wire(), parameters.Wire(),
		servicequotas.Service(servicequotas.Config{Region: Name, Account: Account, EC2: o.Quotas}),
		p.ec2.Wire(), p.elb.Wire(), p.scaling.Wire(), p.names.Wire())
	if err := p.buildStacks(o, from, cfg.Services, now); err != nil {
		return err
	}
	cfg.Services = append(cfg.Services, p.stacks.Wire())
	r.server, err = server.New(cfg)
	return err
}

// buildStacks makes CloudFormation over all the other services.
func (p *parts) buildStacks(o Options, from *memory, services []wire.Service, now func() time.Time) (err error) {
	p.stacks, err = cloudformation.New(cloudformation.Config{
		Region: Name, Account: Account, Now: now, Rand: rand.Reader, Saver: from, Zones: p.ec2.Zones(), Services: services, Authorizer: p.iam, Roles: p.iam,
		Poll: 20 * time.Millisecond, Patience: o.Patience,
		Mark: map[string]cloudformation.Marker{
			"elasticloadbalancing": p.elb.Mark, "iam": p.iam.Mark, "kms": p.kms.Mark, "route53": p.names.Mark,
		},
	})
	return err
}

// buildScaling makes load balancing and Auto Scaling over EC2.
func (p *parts) buildScaling(from *memory, now func() time.Time, faults *fault.Engine) (err error) {
	p.elb, err = elbv2.New(elbv2.Config{
		Region: Name, Account: Account, Now: now, Rand: rand.Reader, Delay: delay, Cloud: p.ec2, Saver: from, Provisioning: faults.Provisioning,
	})
	if err != nil {
		return err
	}
	p.ec2.SetBalancers(p.elb.Balancers)
	p.names, err = route53.New(route53.Config{
		Region: Name, Now: now, Rand: rand.Reader, Delay: delay, Saver: from, VPC: p.ec2.HasVPC, Target: p.elb.HasTarget, Changed: p.ec2.Changed,
	})
	if err != nil {
		return err
	}
	p.ec2.SetHosted(p.names.Names)
	p.scaling, err = autoscaling.New(autoscaling.Config{
		Region: Name, Account: Account, Now: now, Rand: rand.Reader, Cloud: p.ec2, Balancers: p.elb, Saver: from,
	})
	if err != nil {
		return err
	}
	p.ec2.Watch(p.scaling.Kick)
	return nil
}
