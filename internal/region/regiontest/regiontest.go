// SPDX-License-Identifier: Apache-2.0

// Package regiontest runs the local region in records mode for the tests of other packages: every rule of AWS's control
// plane that the region has, over real HTTP, without machines and without root. It knows nothing of who calls it.
package regiontest

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/slipway-k8s/slipway/internal/region/autoscaling"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/elbv2"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/kms"
	"github.com/slipway-k8s/slipway/internal/region/s3"
	"github.com/slipway-k8s/slipway/internal/region/server"
	"github.com/slipway-k8s/slipway/internal/region/ssm"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/sts"
)

// What the region is called and has.
const (
	Name      = "us-east-1"
	Account   = "123456789012"
	AccessKey = "AKIDEXAMPLE"
	SecretKey = "secret"
	// Image is the only machine image, for amd64; Parameter is the SSM parameter that names it.
	Image     = "ami-0123456789abcdef0"
	Parameter = "/aws/service/debian/release/12/latest/amd64"
	// delay is how long an eventual state takes.
	delay = 100 * time.Millisecond
)

// Region is a running region.
type Region struct {
	URL    string
	server *server.Server
}

// Calls counts the calls that were answered, as in ec2:DescribeVpcs.
func (r Region) Calls() map[string]int { return r.server.Calls() }

// Config reaches the region as the account's root.
func (r Region) Config() aws.Config {
	return aws.Config{
		Region: Name, BaseEndpoint: &r.URL, Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	}
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
	return ec2.Profile{ARN: v.ARN, ID: v.ID, Role: v.Role}, ok
}

// Start runs a region until the test ends.
func Start(t *testing.T) Region {
	t.Helper()
	made := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := state.Dir(t.TempDir())
	now := time.Now //nolint:forbidigo // a region for tests runs in real time, as its clients do
	id, err := iam.New(iam.Config{Account: Account, AccessKeyID: AccessKey, SecretKey: SecretKey, State: dir, Now: now})
	made(err)
	keys, err := kms.New(kms.Config{Region: Name, Account: Account, State: dir, Now: now, Identities: id})
	made(err)
	objects, err := s3.New(s3.Config{Dir: filepath.Join(t.TempDir(), "s3"), Region: Name, Now: now})
	made(err)
	parameters, err := ssm.New(ssm.Config{Region: Name, Account: Account, State: dir, Now: now, Public: map[string]string{Parameter: Image}})
	made(err)
	cloud, err := ec2.New(ec2.Config{
		Region: Name, Account: Account, Now: now, Rand: rand.Reader, Delay: delay, Profiles: profiles{id},
		Images: []ec2.Image{{ID: Image, Architecture: "x86_64", RootDevice: "/dev/xvda", RootSizeGiB: 8}},
	})
	made(err)
	lb, err := elbv2.New(elbv2.Config{Region: Name, Account: Account, Now: now, Rand: rand.Reader, Delay: delay, Cloud: cloud})
	made(err)
	cloud.SetBalancers(lb.Balancers)
	scaling, err := autoscaling.New(autoscaling.Config{Region: Name, Account: Account, Now: now, Rand: rand.Reader, Cloud: cloud, Balancers: lb})
	made(err)
	cloud.Watch(scaling.Kick)
	cfg := server.Config{Region: Name, Keys: id, Authorizer: id, Now: now}
	cfg.Services = append(cfg.Services, id.Service(), sts.Service(id), keys.Wire(), objects.Wire(), parameters.Wire(), cloud.Wire(), lb.Wire(), scaling.Wire())
	front, err := server.New(cfg)
	made(err)
	web := httptest.NewServer(http.Handler(front))
	var wg sync.WaitGroup
	wg.Go(func() { cloud.Run(t.Context()) })
	wg.Go(func() { lb.Run(t.Context()) })
	wg.Go(func() { scaling.Run(t.Context()) })
	t.Cleanup(func() { web.Close(); wg.Wait() })
	return Region{URL: web.URL, server: front}
}
