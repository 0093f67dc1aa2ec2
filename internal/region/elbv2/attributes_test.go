// SPDX-License-Identifier: Apache-2.0

package elbv2_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2client "github.com/aws/aws-sdk-go-v2/service/ec2"
	lb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

func (s *stack) newBalancer(t *testing.T, subnets ...string) *string {
	t.Helper()
	in := s.input(func(in *lb.CreateLoadBalancerInput) { in.Subnets = subnets })

	return must[*lb.CreateLoadBalancerOutput](t)(s.lb.CreateLoadBalancer(t.Context(), in)).LoadBalancers[0].LoadBalancerArn
}

func (s *stack) newGroup(
	t *testing.T,
	name string,
	kind types.TargetTypeEnum,
	protocol types.ProtocolEnum,
) *string {
	t.Helper()
	out := must[*lb.CreateTargetGroupOutput](t)(s.lb.CreateTargetGroup(t.Context(), &lb.CreateTargetGroupInput{
		Name:       &name,
		TargetType: kind,
		Protocol:   protocol,
		Port:       aws.Int32(6443),
		VpcId:      &s.vpc,
	}))

	return out.TargetGroups[0].TargetGroupArn
}

func (s *stack) listen(t *testing.T, balancer, group *string, protocol types.ProtocolEnum) error {
	t.Helper()
	_, err := s.lb.CreateListener(t.Context(), &lb.CreateListenerInput{
		LoadBalancerArn: balancer,
		Port:            aws.Int32(6443),
		Protocol:        protocol,
		DefaultActions:  []types.Action{{Type: types.ActionTypeEnumForward, TargetGroupArn: group}},
	})

	return err
}

func (s *stack) setGroup(t *testing.T, group *string, key, value string) error {
	t.Helper()
	_, err := s.lb.ModifyTargetGroupAttributes(t.Context(), &lb.ModifyTargetGroupAttributesInput{
		TargetGroupArn: group,
		Attributes:     []types.TargetGroupAttribute{{Key: &key, Value: &value}},
	})

	return err
}

func (s *stack) setBalancer(t *testing.T, balancer *string, key, value string) error {
	t.Helper()
	_, err := s.lb.ModifyLoadBalancerAttributes(t.Context(), &lb.ModifyLoadBalancerAttributesInput{
		LoadBalancerArn: balancer,
		Attributes:      []types.LoadBalancerAttribute{{Key: &key, Value: &value}},
	})

	return err
}

const (
	invalid = "InvalidConfigurationRequest"
	missing = "NotImplemented"
)

func TestAttributesOfBalancers(t *testing.T) {
	s := newStack(t)
	arn := s.newBalancer(t, s.subnets[:2]...)
	for _, tt := range []struct{ key, value, want string }{
		{"load_balancing.cross_zone.enabled", "true", ""},
		{"load_balancing.cross_zone.enabled", "use_load_balancer_configuration", invalid},
		{"deletion_protection.enabled", "yes", invalid},
		{"access_logs.s3.enabled", "false", ""},
		{"access_logs.s3.enabled", "true", missing},
		{"access_logs.s3.bucket", "logs", missing},
		{"dns_record.client_routing_policy", "any_availability_zone", ""},
		{"dns_record.client_routing_policy", "availability_zone_affinity", missing},
		{"dns_record.client_routing_policy", "nearest", invalid},
		{"zonal_shift.config.enabled", "true", missing},
		{"idle_timeout.timeout_seconds", "60", invalid},
	} {
		if got := code(s.setBalancer(t, arn, tt.key, tt.value)); got != tt.want {
			t.Errorf("%s = %s: got %q, want %q", tt.key, tt.value, got, tt.want)
		}
	}
}

func TestAttributesOfTargetGroups(t *testing.T) {
	s := newStack(t)
	arn := s.newGroup(t, "one", types.TargetTypeEnumInstance, types.ProtocolEnumTcp)
	udp := s.newGroup(t, "two", types.TargetTypeEnumInstance, types.ProtocolEnumUdp)
	const (
		failover = "target_group_health.dns_failover.minimum_healthy_targets."
		routing  = "target_group_health.unhealthy_state_routing.minimum_healthy_targets."
	)
	for _, tt := range []struct {
		group            *string
		key, value, want string
	}{
		{arn, "load_balancing.cross_zone.enabled", "true", ""},
		{arn, "load_balancing.cross_zone.enabled", "use_load_balancer_configuration", ""},
		{arn, "load_balancing.cross_zone.enabled", "off", invalid},
		{arn, "preserve_client_ip.enabled", "false", ""},
		{udp, "preserve_client_ip.enabled", "true", ""},
		{udp, "preserve_client_ip.enabled", "false", invalid},
		{arn, "deregistration_delay.timeout_seconds", "3600", ""},
		{arn, "deregistration_delay.timeout_seconds", "3601", invalid},
		{arn, "deregistration_delay.timeout_seconds", "-1", invalid},
		{arn, "proxy_protocol_v2.enabled", "true", missing},
		{arn, "stickiness.enabled", "true", missing},
		{arn, "stickiness.type", "lb_cookie", invalid},
		{arn, failover + "count", "1", ""},
		{arn, failover + "count", "2", missing},
		{arn, failover + "percentage", "101", invalid},
		{arn, routing + "count", "off", invalid},
		{arn, routing + "percentage", "50", missing},
		{arn, "target_health_state.unhealthy.connection_termination.enabled", "false", ""},
		{arn, "target_health_state.unhealthy.draining_interval_seconds", "60", missing},
		{arn, "slow_start.duration_seconds", "30", invalid},
	} {
		if got := code(s.setGroup(t, tt.group, tt.key, tt.value)); got != tt.want {
			t.Errorf("%s = %s: got %q, want %q", tt.key, tt.value, got, tt.want)
		}
	}
}

func TestPreservationDependsOnTheTargets(t *testing.T) {
	s := newStack(t)
	for _, tt := range []struct {
		name     string
		kind     types.TargetTypeEnum
		protocol types.ProtocolEnum
		want     string
	}{
		{"instances", types.TargetTypeEnumInstance, types.ProtocolEnumTcp, "true"},
		{"addresses", types.TargetTypeEnumIp, types.ProtocolEnumTcp, "false"},
		{"addresses-tls", types.TargetTypeEnumIp, types.ProtocolEnumTls, "false"},
		{"addresses-udp", types.TargetTypeEnumIp, types.ProtocolEnumUdp, "true"},
	} {
		out := must[*lb.DescribeTargetGroupAttributesOutput](t)(s.lb.DescribeTargetGroupAttributes(
			t.Context(),
			&lb.DescribeTargetGroupAttributesInput{TargetGroupArn: s.newGroup(t, tt.name, tt.kind, tt.protocol)},
		))
		got := map[string]string{}
		for _, a := range out.Attributes {
			got[*a.Key] = *a.Value
		}

		if got["preserve_client_ip.enabled"] != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got["preserve_client_ip.enabled"], tt.want)
		}
	}
}

func TestNetworkFollowsAttributes(t *testing.T) {
	s := newStack(t)
	balancer := s.newBalancer(t, s.subnets[:2]...)
	group := s.newGroup(t, "one", types.TargetTypeEnumInstance, types.ProtocolEnumTcp)
	if err := s.listen(t, balancer, group, types.ProtocolEnumTcp); err != nil {
		t.Fatal(err)
	}

	const crossZone = "load_balancing.cross_zone.enabled"
	check := func(when string, err error, want netspec.TargetGroup) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}

		got := s.elb.LoadBalancers()[0].Listeners[0].TargetGroup
		got.ARN = ""
		got.HealthCheck = netspec.HealthCheck{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	want := netspec.TargetGroup{PreserveClientIP: true}
	check("new", s.setBalancer(t, balancer, crossZone, "false"), want)
	want.CrossZone = true
	check("all zones by the load balancer", s.setBalancer(t, balancer, crossZone, "true"), want)
	want.CrossZone = false
	check("one zone by the group", s.setGroup(t, group, crossZone, "false"), want)
	want.CrossZone = true
	err := s.setBalancer(t, balancer, crossZone, "false")
	check("all zones by the group", errors.Join(err, s.setGroup(t, group, crossZone, "true")), want)
	want.PreserveClientIP = false
	check("no preservation", s.setGroup(t, group, "preserve_client_ip.enabled", "false"), want)
	want.EndDeregistered = true
	check("connections end after the delay", s.setGroup(t, group, "deregistration_delay.connection_termination.enabled", "true"), want)
	want.KeepUnhealthy = true
	check("connections of unhealthy targets remain", s.setGroup(t, group, "target_health_state.unhealthy.connection_termination.enabled", "false"), want)
}

func (s *stack) launch(t *testing.T, subnet string) *string {
	t.Helper()
	out := must[*ec2client.RunInstancesOutput](t)(s.ec2.RunInstances(t.Context(), &ec2client.RunInstancesInput{
		ImageId:      aws.String("ami-0123456789abcdef0"),
		InstanceType: "t3.medium",
		MinCount:     aws.Int32(1),
		MaxCount:     aws.Int32(1),
		SubnetId:     &subnet,
	}))

	return out.Instances[0].InstanceId
}

// Deregistered targets keep their connections during the delay, so the network still knows them.
func TestNetworkKnowsDrainingTargets(t *testing.T) {
	s, ctx := newStack(t), t.Context()
	balancer := s.newBalancer(t, s.subnets[0])
	group := s.newGroup(t, "one", types.TargetTypeEnumInstance, types.ProtocolEnumTcp)
	if err := s.listen(t, balancer, group, types.ProtocolEnumTcp); err != nil {
		t.Fatal(err)
	}

	targets := []types.TargetDescription{{Id: s.launch(t, s.subnets[0])}}
	must[*lb.RegisterTargetsOutput](t)(s.lb.RegisterTargets(ctx, &lb.RegisterTargetsInput{TargetGroupArn: group, Targets: targets}))
	var got [][2]int
	count := func() {
		g := s.elb.LoadBalancers()[0].Listeners[0].TargetGroup
		got = append(got, [2]int{len(g.Targets), len(g.Draining)})
	}
	count()
	must[*lb.DeregisterTargetsOutput](t)(s.lb.DeregisterTargets(ctx, &lb.DeregisterTargetsInput{TargetGroupArn: group, Targets: targets}))
	count()
	s.now = s.now.Add(301 * time.Second)
	count()
	if diff := cmp.Diff([][2]int{{1, 0}, {0, 1}, {0, 0}}, got); diff != "" {
		t.Errorf("targets and draining ones: registered, deregistered, after the delay (-want +got):\n%s", diff)
	}
}

func TestTargetsOfOtherZonesAreUnused(t *testing.T) {
	s, ctx := newStack(t), t.Context()
	balancer := s.newBalancer(t, s.subnets[0])
	group := s.newGroup(t, "one", types.TargetTypeEnumInstance, types.ProtocolEnumTcp)
	if err := s.listen(t, balancer, group, types.ProtocolEnumTcp); err != nil {
		t.Fatal(err)
	}

	ids := []*string{s.launch(t, s.subnets[0]), s.launch(t, s.subnets[1])}
	must[*lb.RegisterTargetsOutput](t)(s.lb.RegisterTargets(ctx, &lb.RegisterTargetsInput{
		TargetGroupArn: group,
		Targets:        []types.TargetDescription{{Id: ids[0]}, {Id: ids[1]}},
	}))

	var got []string
	for _, id := range ids {
		out := must[*lb.DescribeTargetHealthOutput](t)(s.lb.DescribeTargetHealth(ctx, &lb.DescribeTargetHealthInput{
			TargetGroupArn: group,
			Targets:        []types.TargetDescription{{Id: id}},
		}))
		health := out.TargetHealthDescriptions[0].TargetHealth
		got = append(got, string(health.State)+" "+string(health.Reason))
	}

	if diff := cmp.Diff([]string{"healthy ", "unused Target.NotInUse"}, got); diff != "" {
		t.Errorf("a target in the load balancer's zone and one in another (-want +got):\n%s", diff)
	}
}

func TestProtocolsOfListeners(t *testing.T) {
	s := newStack(t)
	balancer := s.newBalancer(t, s.subnets[0])
	for protocol, want := range map[types.ProtocolEnum]string{
		types.ProtocolEnumUdp:    missing,
		types.ProtocolEnumTcpUdp: missing,
		types.ProtocolEnumTls:    missing,
		types.ProtocolEnumHttp:   "UnsupportedProtocol",
	} {
		kind := protocol
		if protocol == types.ProtocolEnumHttp {
			kind = types.ProtocolEnumTcp
		}

		name := "g-" + map[bool]string{true: "both", false: string(kind)}[kind == types.ProtocolEnumTcpUdp]
		group := s.newGroup(t, name, types.TargetTypeEnumInstance, kind)
		if got := code(s.listen(t, balancer, group, protocol)); got != want {
			t.Errorf("%s: got %q, want %q", protocol, got, want)
		}
	}
}
