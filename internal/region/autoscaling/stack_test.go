// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"errors"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	ec2client "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	lb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/autoscaling"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/elbv2"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// stack is the three services connected as in the region, with real clients over HTTP.
type stack struct {
	ec2   *ec2client.Client
	as    *as.Client
	lb    *lb.Client
	svc   *autoscaling.Service
	cloud *ec2.Service
	elb   *elbv2.Service

	mu   sync.Mutex
	now  time.Time
	full []string // instance types for which EC2 has no capacity
	sent []autoscaling.Event

	notified  []autoscaling.Notification
	noPublish error // of each notification
}

// publish records a notification.
func (s *stack) publish(n autoscaling.Notification) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noPublish == nil {
		s.notified = append(s.notified, n)
	}

	return s.noPublish
}

// emit records an event.
func (s *stack) emit(e autoscaling.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, e)
}

// fill lets EC2 have no capacity for instances of some types.
func (s *stack) fill(types ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = types
}

func (s *stack) lacksCapacity(instanceType string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.full, instanceType)
}

func (s *stack) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// advanceClock advances the clock by two seconds in steps, and reconciles the groups after each.
func (s *stack) advanceClock(tb testing.TB) {
	tb.Helper()
	for range 10 {
		s.mu.Lock()
		s.now = s.now.Add(200 * time.Millisecond)
		s.mu.Unlock()
		if err := s.svc.Reconcile(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
}

func serve(tb testing.TB, s wire.Service) string {
	tb.Helper()
	e := wire.NewEndpoint(s)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.Serve(w, r.WithContext(wire.WithCaller(r.Context(), wire.Caller{Root: true})), "req-1", nil)
	}))
	tb.Cleanup(server.Close)
	return server.URL
}

func newStack(tb testing.TB) *stack {
	tb.Helper()
	s := &stack{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	random := rand.New(rand.NewSource(7))
	var err error
	s.cloud, err = ec2.New(ec2.Config{
		Region: "eu-west-1", Account: "000000000000", Now: s.Now, Rand: random, TransitionDelay: 200 * time.Millisecond,
		Images: []ec2.Image{{ID: "ami-0123456789abcdef0", Architecture: "x86_64", RootDevice: "/dev/xvda", RootSizeGiB: 8}},
		Quotas: ec2.Quotas{VCPUs: 200}, LacksCapacity: s.lacksCapacity,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.elb, err = elbv2.New(elbv2.Config{Region: "eu-west-1", Account: "000000000000", Now: s.Now, Rand: random, TransitionDelay: 200 * time.Millisecond, Cloud: s.cloud})
	if err != nil {
		tb.Fatal(err)
	}
	s.cloud.SetLoadBalancers(s.elb.LoadBalancers)
	s.svc, err = autoscaling.New(autoscaling.Config{
		Region: "eu-west-1", Account: "000000000000", Now: s.Now, Rand: random, EC2: s.cloud, TargetGroups: s.elb, Emit: s.emit,
		Publish: s.publish,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.dial(tb)
	return s
}

// dial serves the services and creates clients for them.
func (s *stack) dial(tb testing.TB) {
	tb.Helper()
	creds := credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")
	s.ec2 = ec2client.NewFromConfig(awstest.NewConfig(serve(tb, s.cloud.Wire()), "eu-west-1", creds))
	s.as = as.NewFromConfig(awstest.NewConfig(serve(tb, s.svc.Wire()), "eu-west-1", creds))
	s.lb = lb.NewFromConfig(awstest.NewConfig(serve(tb, s.elb.Wire()), "eu-west-1", creds))
}

func code(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return err.Error()
}

func must[T any](tb testing.TB) func(T, error) T {
	tb.Helper()
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// testNetwork is a VPC with two subnets in two zones, an internet gateway, a launch template and a target group.
type testNetwork struct {
	vpc      string
	subnets  []string
	template string
	targets  string
}

func (s *stack) createTestNetwork(ctx context.Context, tb testing.TB) testNetwork {
	tb.Helper()
	g := testNetwork{vpc: *must[*ec2client.CreateVpcOutput](tb)(s.ec2.CreateVpc(ctx, &ec2client.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId}
	for i, zone := range []string{"eu-west-1a", "eu-west-1b"} {
		n := must[*ec2client.CreateSubnetOutput](tb)(s.ec2.CreateSubnet(ctx, &ec2client.CreateSubnetInput{
			VpcId: &g.vpc, AvailabilityZone: aws.String(zone), CidrBlock: aws.String([]string{"10.0.0.0/24", "10.0.1.0/24"}[i]),
		}))
		g.subnets = append(g.subnets, *n.Subnet.SubnetId)
	}
	igw := must[*ec2client.CreateInternetGatewayOutput](tb)(s.ec2.CreateInternetGateway(ctx, &ec2client.CreateInternetGatewayInput{}))
	must[*ec2client.AttachInternetGatewayOutput](tb)(s.ec2.AttachInternetGateway(ctx, &ec2client.AttachInternetGatewayInput{
		InternetGatewayId: igw.InternetGateway.InternetGatewayId, VpcId: &g.vpc,
	}))
	lt := must[*ec2client.CreateLaunchTemplateOutput](tb)(s.ec2.CreateLaunchTemplate(ctx, &ec2client.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("nodes"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId: aws.String("ami-0123456789abcdef0"), InstanceType: "t3.medium", UserData: aws.String("aGVsbG8="),
			MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required", HttpPutResponseHopLimit: aws.Int32(1)},
			TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{{
				ResourceType: "instance", Tags: []ec2types.Tag{{Key: aws.String("from"), Value: aws.String("template")}},
			}},
		},
	}))
	g.template = *lt.LaunchTemplate.LaunchTemplateId
	tg := must[*lb.CreateTargetGroupOutput](tb)(s.lb.CreateTargetGroup(ctx, &lb.CreateTargetGroupInput{
		Name: aws.String("api"), Protocol: "TCP", Port: aws.Int32(6443), VpcId: &g.vpc,
	}))
	g.targets = *tg.TargetGroups[0].TargetGroupArn
	return g
}
