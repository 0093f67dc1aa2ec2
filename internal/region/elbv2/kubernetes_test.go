// SPDX-License-Identifier: Apache-2.0

package elbv2_test

import (
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	lb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// serviceTags are the tags of the load balancer of a Service, as the cloud controller manager sets them.
func serviceTags() []types.Tag {
	return []types.Tag{
		{Key: aws.String("kubernetes.io/cluster/demo"), Value: aws.String("owned")},
		{Key: aws.String("kubernetes.io/service-name"), Value: aws.String("default/web")},
	}
}

// TestRepeatsWithTagsInAnotherOrder: the cloud controller manager keeps tags in a map, so it repeats a request that was
// interrupted with its tags in another order. The second request was seen to fail with DuplicateTargetGroupName.
func TestRepeatsWithTagsInAnotherOrder(t *testing.T) {
	s, ctx := newStack(t), t.Context()
	turned := serviceTags()
	slices.Reverse(turned)
	for _, tags := range [][]types.Tag{serviceTags(), turned} {
		must[*lb.CreateTargetGroupOutput](t)(s.lb.CreateTargetGroup(ctx, &lb.CreateTargetGroupInput{
			Name: aws.String("web"), Protocol: "TCP", Port: aws.Int32(30080), VpcId: &s.vpc, Tags: tags,
		}))
		must[*lb.CreateLoadBalancerOutput](t)(s.lb.CreateLoadBalancer(ctx, s.input(func(in *lb.CreateLoadBalancerInput) { in.Tags = tags })))
	}
	other := serviceTags()
	other[1].Value = aws.String("default/other")
	_, err := s.lb.CreateTargetGroup(ctx, &lb.CreateTargetGroupInput{
		Name: aws.String("web"), Protocol: "TCP", Port: aws.Int32(30080), VpcId: &s.vpc, Tags: other,
	})
	if code(err) != "DuplicateTargetGroupName" {
		t.Errorf("a repeat with other tags: %v", err)
	}
}

// TestNamesOfServices: Kubernetes refuses an address as the host name of a Service, so its load balancer has another DNS
// name for its loopback address.
func TestNamesOfServices(t *testing.T) {
	s := newStack(t)
	s.gateway(t)
	for name, want := range map[string]struct {
		tags   []types.Tag
		scheme types.LoadBalancerSchemeEnum
		dns    string
	}{
		"api":    {nil, "internet-facing", "127.77.0.1"},
		"public": {serviceTags(), "internet-facing", "127.5046273"}, // 77 * 65536 + 1
	} {
		in := s.input(func(in *lb.CreateLoadBalancerInput) { in.Name, in.Tags, in.Scheme = &name, want.tags, want.scheme })
		made := must[*lb.CreateLoadBalancerOutput](t)(s.lb.CreateLoadBalancer(t.Context(), in)).LoadBalancers[0]
		if *made.DNSName != want.dns {
			t.Errorf("%s has the DNS name %s, want %s", name, *made.DNSName, want.dns)
		}
		must[*lb.DeleteLoadBalancerOutput](t)(s.lb.DeleteLoadBalancer(t.Context(), &lb.DeleteLoadBalancerInput{LoadBalancerArn: made.LoadBalancerArn}))
	}
}
