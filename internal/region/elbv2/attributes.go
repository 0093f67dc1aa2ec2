// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// defaultBalancerAttributes returns the attributes of a new network load balancer.
func defaultBalancerAttributes() map[string]string {
	return map[string]string{
		"access_logs.s3.bucket":             "",
		"access_logs.s3.enabled":            "false",
		"access_logs.s3.prefix":             "",
		"deletion_protection.enabled":       "false",
		"dns_record.client_routing_policy":  "any_availability_zone",
		"ipv6.deny_all_igw_traffic":         "false",
		"load_balancing.cross_zone.enabled": "false",
		"zonal_shift.config.enabled":        "false",
	}
}

// defaultGroupAttributes returns the attributes of a new target group.
func defaultGroupAttributes() map[string]string {
	return map[string]string{
		"deregistration_delay.connection_termination.enabled":                            "false",
		"deregistration_delay.timeout_seconds":                                           "300",
		"load_balancing.cross_zone.enabled":                                              "use_load_balancer_configuration",
		"preserve_client_ip.enabled":                                                     "true",
		"proxy_protocol_v2.enabled":                                                      "false",
		"stickiness.enabled":                                                             "false",
		"stickiness.type":                                                                "source_ip",
		"target_group_health.dns_failover.minimum_healthy_targets.count":                 "1",
		"target_group_health.dns_failover.minimum_healthy_targets.percentage":            "off",
		"target_group_health.unhealthy_state_routing.minimum_healthy_targets.count":      "1",
		"target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage": "off",
		"target_health_state.unhealthy.connection_termination.enabled":                   "true",
		"target_health_state.unhealthy.draining_interval_seconds":                        "0",
	}
}

// validateAttribute checks that the resource has an attribute key and that the value has the attribute's
// type.
func validateAttribute(have map[string]string, key, value *string) error {
	k := sdkshape.String(key)
	old, known := have[k]
	switch {
	case !known:
		return wire.Errorf("InvalidConfigurationRequest", "The attribute key '%s' is not recognized", k)
	case (old == "true" || old == "false") && !slices.Contains([]string{"true", "false"}, sdkshape.String(value)):
		return wire.Errorf(
			"InvalidConfigurationRequest",
			"The value of '%s' must be true or false, not '%s'",
			k,
			sdkshape.String(value),
		)
	}

	if k == "deregistration_delay.timeout_seconds" {
		if n, err := strconv.Atoi(sdkshape.String(value)); err != nil || n < 0 || n > 3600 {
			return wire.Errorf(
				"InvalidConfigurationRequest",
				"The value of '%s' must be between 0 and 3600, not '%s'",
				k,
				sdkshape.String(value),
			)
		}
	}

	return nil
}

func (s *Service) toBalancerAttributes(have map[string]string) []*sdk.LoadBalancerAttribute {
	var out []*sdk.LoadBalancerAttribute
	for _, k := range sdkshape.SortedKeys(have) {
		out = append(out, &sdk.LoadBalancerAttribute{Key: new(k), Value: new(have[k])})
	}

	return out
}

func (s *Service) describeLoadBalancerAttributes(
	in *sdk.DescribeLoadBalancerAttributesInput,
) (*sdk.DescribeLoadBalancerAttributesOutput, error) {
	b, err := s.findLoadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}

	return &sdk.DescribeLoadBalancerAttributesOutput{Attributes: s.toBalancerAttributes(b.Attributes)}, nil
}

func (s *Service) modifyLoadBalancerAttributes(
	in *sdk.ModifyLoadBalancerAttributesInput,
) (*sdk.ModifyLoadBalancerAttributesOutput, error) {
	b, err := s.findLoadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}

	for _, a := range in.Attributes {
		if err := validateAttribute(b.Attributes, a.Key, a.Value); err != nil {
			return nil, err
		}
	}

	for _, a := range in.Attributes {
		b.Attributes[*a.Key] = sdkshape.String(a.Value)
	}

	return &sdk.ModifyLoadBalancerAttributesOutput{Attributes: s.toBalancerAttributes(b.Attributes)}, nil
}

func toGroupAttributes(have map[string]string) []*sdk.TargetGroupAttribute {
	var out []*sdk.TargetGroupAttribute
	for _, k := range sdkshape.SortedKeys(have) {
		out = append(out, &sdk.TargetGroupAttribute{Key: new(k), Value: new(have[k])})
	}

	return out
}

func (s *Service) describeTargetGroupAttributes(
	in *sdk.DescribeTargetGroupAttributesInput,
) (*sdk.DescribeTargetGroupAttributesOutput, error) {
	g, err := s.findTargetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}

	return &sdk.DescribeTargetGroupAttributesOutput{Attributes: toGroupAttributes(g.Attributes)}, nil
}

func (s *Service) modifyTargetGroupAttributes(
	in *sdk.ModifyTargetGroupAttributesInput,
) (*sdk.ModifyTargetGroupAttributesOutput, error) {
	g, err := s.findTargetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}

	for _, a := range in.Attributes {
		if err := validateAttribute(g.Attributes, a.Key, a.Value); err != nil {
			return nil, err
		}
	}

	for _, a := range in.Attributes {
		g.Attributes[*a.Key] = sdkshape.String(a.Value)
	}

	return &sdk.ModifyTargetGroupAttributesOutput{Attributes: toGroupAttributes(g.Attributes)}, nil
}
