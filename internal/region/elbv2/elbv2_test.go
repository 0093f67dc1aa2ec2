// SPDX-License-Identifier: Apache-2.0

package elbv2_test

import (
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	ec2client "github.com/aws/aws-sdk-go-v2/service/ec2"
	lb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/elbv2"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

type stack struct {
	ec2     *ec2client.Client
	lb      *lb.Client
	elb     *elbv2.Service
	now     time.Time
	vpc     string
	subnets []string
	group   string
}

func serve(t *testing.T, s wire.Service) string {
	t.Helper()
	e := wire.NewEndpoint(s)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.Serve(w, r.WithContext(wire.WithCaller(r.Context(), wire.Caller{Root: true})), "req-1", nil)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
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

// newStack has a VPC with an internet gateway, subnets in two zones (the third shares the first's zone) and a group.
func newStack(t *testing.T) *stack {
	t.Helper()
	s := &stack{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	clock, random := func() time.Time { return s.now }, rand.New(rand.NewSource(3))
	cloud, err := ec2.New(ec2.Config{
		Region: "us-east-1", Account: "000000000000", Now: clock, Rand: random,
		Images: []ec2.Image{{ID: "ami-0123456789abcdef0", Architecture: "x86_64", RootDevice: "/dev/xvda", RootSizeGiB: 8}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.elb, err = elbv2.New(elbv2.Config{Region: "us-east-1", Account: "000000000000", Now: clock, Rand: random, TransitionDelay: time.Second, Cloud: cloud})
	if err != nil {
		t.Fatal(err)
	}
	cloud.SetLoadBalancers(s.elb.LoadBalancers)
	creds := credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")
	s.ec2 = ec2client.NewFromConfig(awstest.NewConfig(serve(t, cloud.Wire()), "us-east-1", creds))
	s.lb = lb.NewFromConfig(awstest.NewConfig(serve(t, s.elb.Wire()), "us-east-1", creds))
	ctx := t.Context()
	s.vpc = *must[*ec2client.CreateVpcOutput](t)(s.ec2.CreateVpc(ctx, &ec2client.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	for i, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1a"} {
		n := must[*ec2client.CreateSubnetOutput](t)(s.ec2.CreateSubnet(ctx, &ec2client.CreateSubnetInput{
			VpcId: &s.vpc, AvailabilityZone: aws.String(zone), CidrBlock: aws.String([]string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"}[i]),
		}))
		s.subnets = append(s.subnets, *n.Subnet.SubnetId)
	}
	s.group = *must[*ec2client.CreateSecurityGroupOutput](t)(s.ec2.CreateSecurityGroup(ctx, &ec2client.CreateSecurityGroupInput{
		GroupName: aws.String("lb"), Description: aws.String("lb"), VpcId: &s.vpc,
	})).GroupId
	return s
}

func (s *stack) gateway(t *testing.T) {
	t.Helper()
	igw := must[*ec2client.CreateInternetGatewayOutput](t)(s.ec2.CreateInternetGateway(t.Context(), &ec2client.CreateInternetGatewayInput{}))
	must[*ec2client.AttachInternetGatewayOutput](t)(s.ec2.AttachInternetGateway(t.Context(), &ec2client.AttachInternetGatewayInput{
		InternetGatewayId: igw.InternetGateway.InternetGatewayId, VpcId: &s.vpc,
	}))
}

func (s *stack) input(change func(*lb.CreateLoadBalancerInput)) *lb.CreateLoadBalancerInput {
	in := &lb.CreateLoadBalancerInput{
		Name: aws.String("api"), Type: "network", Scheme: "internal", Subnets: s.subnets[:2], SecurityGroups: []string{s.group},
		Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("a")}},
	}
	change(in)
	return in
}

func asIs(*lb.CreateLoadBalancerInput) {}

func TestBalancerFromProvisioningToGone(t *testing.T) {
	s, ctx := newStack(t), t.Context()
	s.gateway(t)
	in := s.input(func(in *lb.CreateLoadBalancerInput) { in.Scheme = "internet-facing" })
	made := must[*lb.CreateLoadBalancerOutput](t)(s.lb.CreateLoadBalancer(ctx, in)).LoadBalancers[0]
	if made.State.Code != "provisioning" || *made.DNSName != "127.77.0.1" {
		t.Errorf("new: %s at %s", made.State.Code, *made.DNSName)
	}
	again := must[*lb.CreateLoadBalancerOutput](t)(s.lb.CreateLoadBalancer(ctx, in)).LoadBalancers[0]
	if *again.LoadBalancerArn != *made.LoadBalancerArn {
		t.Error("a repeat made another load balancer")
	}
	s.now = s.now.Add(2 * time.Second)
	got := must[*lb.DescribeLoadBalancersOutput](t)(s.lb.DescribeLoadBalancers(ctx, &lb.DescribeLoadBalancersInput{Names: []string{"api"}})).LoadBalancers[0]
	if got.State.Code != "active" || len(got.AvailabilityZones) != 2 || *got.VpcId != s.vpc {
		t.Errorf("later: %+v", got)
	}
	dropGroup := func() string {
		_, err := s.ec2.DeleteSecurityGroup(ctx, &ec2client.DeleteSecurityGroupInput{GroupId: &s.group})
		return code(err)
	}
	protect := func(v string) {
		must[*lb.ModifyLoadBalancerAttributesOutput](t)(s.lb.ModifyLoadBalancerAttributes(ctx, &lb.ModifyLoadBalancerAttributesInput{
			LoadBalancerArn: made.LoadBalancerArn, Attributes: []types.LoadBalancerAttribute{{Key: aws.String("deletion_protection.enabled"), Value: &v}},
		}))
	}
	remove := func() string {
		_, err := s.lb.DeleteLoadBalancer(ctx, &lb.DeleteLoadBalancerInput{LoadBalancerArn: made.LoadBalancerArn})
		return code(err)
	}
	protect("true")
	states := []string{dropGroup(), remove()}
	protect("false")
	states = append(states, remove(), remove(), dropGroup())
	s.now = s.now.Add(2 * time.Second)
	_ = s.elb.LoadBalancers() // applies due transitions
	states = append(states, dropGroup())
	want := []string{"DependencyViolation", "OperationNotPermitted", "", "", "DependencyViolation", ""}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("group in use, protected, deleted, again, group still in use, free (-want +got):\n%s", diff)
	}
}

func TestBalancerErrors(t *testing.T) {
	s := newStack(t)
	must[*lb.CreateLoadBalancerOutput](t)(s.lb.CreateLoadBalancer(t.Context(), s.input(asIs)))
	for name, c := range map[string]struct {
		change func(*lb.CreateLoadBalancerInput)
		want   string
	}{
		"same name, else": {func(in *lb.CreateLoadBalancerInput) { in.Subnets = s.subnets[:1] }, "DuplicateLoadBalancerName"},
		"no internet":     {func(in *lb.CreateLoadBalancerInput) { in.Name, in.Scheme = aws.String("x"), "internet-facing" }, "InvalidSubnet"},
		"two subnets in a zone": {func(in *lb.CreateLoadBalancerInput) {
			in.Name, in.Subnets = aws.String("x"), []string{s.subnets[0], s.subnets[2]}
		}, "InvalidConfigurationRequest"},
		"unknown subnet": {func(in *lb.CreateLoadBalancerInput) {
			in.Name, in.Subnets = aws.String("x"), []string{"subnet-00000000000000000"}
		}, "SubnetNotFound"},
		"unknown group": {func(in *lb.CreateLoadBalancerInput) {
			in.Name, in.SecurityGroups = aws.String("x"), []string{"sg-00000000000000000"}
		}, "InvalidSecurityGroup"},
		"bad name": {func(in *lb.CreateLoadBalancerInput) { in.Name = aws.String("internal-x") }, "ValidationError"},
		"type":     {func(in *lb.CreateLoadBalancerInput) { in.Name, in.Type = aws.String("x"), "gateway" }, "InvalidConfigurationRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.lb.CreateLoadBalancer(t.Context(), s.input(c.change)); code(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	_, err := s.lb.DescribeLoadBalancers(t.Context(), &lb.DescribeLoadBalancersInput{Names: []string{"nobody"}})
	if code(err) != "LoadBalancerNotFound" {
		t.Errorf("describe nobody: %v", err)
	}
}

func TestListenersTargetsAndTags(t *testing.T) {
	s, ctx := newStack(t), t.Context()
	arn := must[*lb.CreateLoadBalancerOutput](t)(s.lb.CreateLoadBalancer(ctx, s.input(asIs))).LoadBalancers[0].LoadBalancerArn
	groups := map[string]*string{}
	for _, name := range []string{"one", "two"} {
		out := must[*lb.CreateTargetGroupOutput](t)(s.lb.CreateTargetGroup(ctx, &lb.CreateTargetGroupInput{
			Name: &name, Protocol: "TCP", Port: aws.Int32(6443), VpcId: &s.vpc, HealthCheckProtocol: "HTTPS", HealthCheckPath: aws.String("/readyz"), HealthCheckIntervalSeconds: aws.Int32(10),
		}))
		groups[name] = out.TargetGroups[0].TargetGroupArn
	}
	listen := func(port int32, group *string) error {
		_, err := s.lb.CreateListener(ctx, &lb.CreateListenerInput{
			LoadBalancerArn: arn, Port: &port, Protocol: "TCP", DefaultActions: []types.Action{{Type: "forward", TargetGroupArn: group}},
		})
		return err
	}
	got := []string{
		code(listen(6443, groups["one"])), code(listen(6443, groups["one"])), code(listen(6443, groups["two"])), code(listen(1, aws.String("arn:none"))),
	}
	if diff := cmp.Diff([]string{"", "", "DuplicateListener", "TargetGroupNotFound"}, got); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
	if _, err := s.lb.DeleteTargetGroup(ctx, &lb.DeleteTargetGroupInput{TargetGroupArn: groups["one"]}); code(err) != "ResourceInUse" {
		t.Errorf("delete a group in use: %v", err)
	}
	run := must[*ec2client.RunInstancesOutput](t)(s.ec2.RunInstances(ctx, &ec2client.RunInstancesInput{
		ImageId: aws.String("ami-0123456789abcdef0"), InstanceType: "t3.medium", MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &s.subnets[0],
	}))
	id := run.Instances[0].InstanceId
	register := func(id *string) string {
		_, err := s.lb.RegisterTargets(ctx, &lb.RegisterTargetsInput{TargetGroupArn: groups["one"], Targets: []types.TargetDescription{{Id: id}}})
		return code(err)
	}
	if got := []string{register(aws.String("i-00000000000000000")), register(id)}; got[0] != "InvalidTarget" || got[1] != "" {
		t.Errorf("register a stranger, then an instance: %q", got)
	}
	state := func() string {
		out := must[*lb.DescribeTargetHealthOutput](t)(s.lb.DescribeTargetHealth(ctx, &lb.DescribeTargetHealthInput{TargetGroupArn: groups["one"], Targets: []types.TargetDescription{{Id: id}}}))
		return string(out.TargetHealthDescriptions[0].TargetHealth.State)
	}
	drawn := s.elb.LoadBalancers()[0].Listeners[0]
	if drawn.Port != 6443 || len(drawn.TargetGroup.Targets) != 1 || drawn.TargetGroup.HealthCheck.Path != "/readyz" || drawn.TargetGroup.HealthCheck.Interval != 10 {
		t.Errorf("drawn: %+v", drawn)
	}
	states := []string{state()}
	must[*lb.DeregisterTargetsOutput](t)(s.lb.DeregisterTargets(ctx, &lb.DeregisterTargetsInput{TargetGroupArn: groups["one"], Targets: []types.TargetDescription{{Id: id}}}))
	states = append(states, state())
	s.now = s.now.Add(301 * time.Second)
	states = append(states, state())
	if diff := cmp.Diff([]string{"healthy", "draining", "unused"}, states); diff != "" {
		t.Errorf("target states (-want +got):\n%s", diff)
	}
	tags := must[*lb.DescribeTagsOutput](t)(s.lb.DescribeTags(ctx, &lb.DescribeTagsInput{ResourceArns: []string{*arn, *groups["two"]}}))
	if n := len(tags.TagDescriptions[0].Tags); n != 1 {
		t.Errorf("the load balancer has %d tags, want 1", n)
	}
	if _, err := s.lb.DescribeTags(ctx, &lb.DescribeTagsInput{ResourceArns: make([]string, 21)}); code(err) != "ValidationError" {
		t.Errorf("tags of 21 resources: %v", err)
	}
}

// failingCloud is an EC2 that refuses, or fails, to create network interfaces.
type failingCloud struct {
	elbv2.Cloud
	err error
}

func (c failingCloud) CreateManagedInterfaces([]ec2.ManagedInterface) ([]ec2.ManagedInterface, error) {
	return nil, c.err
}

func (c failingCloud) SubnetPlacements(subnets ...string) ([]ec2.SubnetPlacement, error) {
	var out []ec2.SubnetPlacement
	for _, id := range subnets {
		if id == "subnet-lost" {
			return nil, c.err
		}

		out = append(out, ec2.SubnetPlacement{Subnet: id, VPC: "vpc-1", Zone: "us-east-1a", HasInternetGateway: true})
	}

	return out, nil
}

func (failingCloud) LoadBalancersChanged() {}

func TestErrorsOfEC2AreTranslatedByCode(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		subnet string
		err    error
		want   string
	}{
		"security group":              {"subnet-1", wire.Errorf("InvalidGroup.NotFound", "none"), "InvalidSecurityGroup"},
		"wrapped":                     {"subnet-1", fmt.Errorf("create: %w", wire.Errorf("InvalidGroup.NotFound", "none")), "InvalidSecurityGroup"},
		"another code":                {"subnet-1", wire.Errorf("InvalidGroup.NotFoundAnywhere", "none"), "InvalidConfigurationRequest"},
		"text that looks like a code": {"subnet-1", errors.New("InvalidGroup.NotFound is a file that cannot be written"), "InternalError"},
		"failed save":                 {"subnet-1", errors.New("save the state of ec2: disk full"), "InternalError"},
		"unknown subnet":              {"subnet-lost", wire.Errorf("InvalidSubnetID.NotFound", "none"), "SubnetNotFound"},
		"failed save of subnets":      {"subnet-lost", errors.New("save the state of ec2: disk full"), "InternalError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc, err := elbv2.New(elbv2.Config{
				Region:  "us-east-1",
				Account: "000000000000",
				Now:     time.Now,
				Rand:    rand.New(rand.NewSource(1)),
				Cloud:   failingCloud{err: tc.err},
			})
			if err != nil {
				t.Fatal(err)
			}

			creds := credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")
			config := awstest.NewConfig(serve(t, svc.Wire()), "us-east-1", creds)
			config.RetryMaxAttempts = 1
			_, err = lb.NewFromConfig(config).CreateLoadBalancer(t.Context(), &lb.CreateLoadBalancerInput{
				Name: aws.String("api"), Type: "network", Subnets: []string{tc.subnet},
			})
			if got := code(err); got != tc.want {
				t.Errorf("CreateLoadBalancer returned %s, want %s", got, tc.want)
			}
		})
	}
}
