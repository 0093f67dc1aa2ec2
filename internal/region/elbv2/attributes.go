// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// Values of attributes.
const (
	valueTrue  = "true"
	valueFalse = "false"
	valueOff   = "off"
	// valueOfBalancer is a target group's value that leaves the decision to the load balancer.
	valueOfBalancer = "use_load_balancer_configuration"
)

// Keys of the attributes that the network obeys.
const (
	keyCrossZone          = "load_balancing.cross_zone.enabled"
	keyDeletionProtection = "deletion_protection.enabled"
	keyDeregistrationTime = "deregistration_delay.timeout_seconds"
	keyEndDeregistered    = "deregistration_delay.connection_termination.enabled"
	keyPreserveClientIP   = "preserve_client_ip.enabled"
	keyEndUnhealthy       = "target_health_state.unhealthy.connection_termination.enabled"
)

// attribute is what is known about one attribute of load balancers or target groups.
type attribute struct {
	// initial is the value after the creation.
	initial string
	// values are the words that AWS accepts.
	values []string
	// least and most are the numbers that AWS accepts; none if both are 0.
	least, most int
	// anyText is set if AWS accepts any text.
	anyText bool
	// fixed is set if the region implements only the initial value.
	fixed bool
}

func boolAttribute(initial string) attribute {
	return attribute{initial: initial, values: []string{valueTrue, valueFalse}}
}

// only returns an attribute of which the region implements only the initial value.
func only(a attribute) attribute {
	a.fixed = true
	return a
}

// balancerAttributes returns the attributes of network load balancers by key.
func balancerAttributes() map[string]attribute {
	return map[string]attribute{
		"access_logs.s3.bucket":  only(attribute{anyText: true}),
		"access_logs.s3.enabled": only(boolAttribute(valueFalse)),
		"access_logs.s3.prefix":  only(attribute{anyText: true}),
		"dns_record.client_routing_policy": only(attribute{
			initial: "any_availability_zone",
			values: []string{
				"any_availability_zone",
				"availability_zone_affinity",
				"partial_availability_zone_affinity",
			},
		}),
		"ipv6.deny_all_igw_traffic":  only(boolAttribute(valueFalse)),
		"zonal_shift.config.enabled": only(boolAttribute(valueFalse)),
		keyCrossZone:                 boolAttribute(valueFalse),
		keyDeletionProtection:        boolAttribute(valueFalse),
	}
}

// groupAttributes returns the attributes of target groups by key.
func groupAttributes() map[string]attribute {
	const (
		failover = "target_group_health.dns_failover.minimum_healthy_targets."
		routing  = "target_group_health.unhealthy_state_routing.minimum_healthy_targets."
	)

	return map[string]attribute{
		"proxy_protocol_v2.enabled": only(boolAttribute(valueFalse)),
		"stickiness.enabled":        only(boolAttribute(valueFalse)),
		"stickiness.type":           {initial: "source_ip", values: []string{"source_ip"}},
		"target_health_state.unhealthy.draining_interval_seconds": only(
			attribute{initial: "0", most: 360000},
		),
		failover + "count": only(
			attribute{initial: "1", values: []string{valueOff}, least: 1, most: maxTargets},
		),
		failover + "percentage": only(
			attribute{initial: valueOff, values: []string{valueOff}, least: 1, most: 100},
		),
		routing + "count": only(attribute{initial: "1", least: 1, most: maxTargets}),
		routing + "percentage": only(
			attribute{initial: valueOff, values: []string{valueOff}, least: 1, most: 100},
		),
		keyCrossZone: {
			initial: valueOfBalancer,
			values:  []string{valueTrue, valueFalse, valueOfBalancer},
		},
		keyDeregistrationTime: {initial: "300", most: 3600},
		keyEndDeregistered:    boolAttribute(valueFalse),
		keyEndUnhealthy:       boolAttribute(valueTrue),
		keyPreserveClientIP:   boolAttribute(valueTrue),
	}
}

// maxTargets is AWS's quota of targets of a target group.
const maxTargets = 1000

func initialValues(all map[string]attribute) map[string]string {
	out := map[string]string{}
	for key, a := range all {
		out[key] = a.initial
	}

	return out
}

// newGroupAttributes returns the attributes of a new target group. Only groups of IP addresses over TCP and TLS
// do not preserve the addresses of clients.
func newGroupAttributes(shape *sdk.TargetGroup) map[string]string {
	out := initialValues(groupAttributes())
	if sdkshape.String(shape.TargetType) == sdk.TargetTypeEnumIp && !forwardsUDP(shape) {
		out[keyPreserveClientIP] = valueFalse
	}

	return out
}

func forwardsUDP(shape *sdk.TargetGroup) bool {
	protocol := sdkshape.String(shape.Protocol)
	return protocol == sdk.ProtocolEnumUdp || protocol == sdk.ProtocolEnumTcpUdp
}

// validateAttribute checks a value of an attribute: AWS must accept it, and the region must implement it.
func validateAttribute(all map[string]attribute, key, value *string) error {
	k := sdkshape.String(key)
	v := sdkshape.String(value)
	a, known := all[k]
	if !known {
		return newErrorf(
			codeInvalidConfigurationRequest,
			"The attribute key '%s' is not recognized",
			k,
		)
	}

	if !a.accepts(v) {
		return newErrorf(
			codeInvalidConfigurationRequest,
			"The value of '%s' must be %s, not '%s'",
			k,
			a.describeValues(),
			v,
		)
	}

	if a.fixed && v != a.initial {
		return newErrorf(
			codeNotImplemented,
			"This region does not implement the value '%s' of attribute '%s'",
			v,
			k,
		)
	}

	return nil
}

// accepts reports whether AWS accepts a value.
func (a attribute) accepts(v string) bool {
	if a.anyText || slices.Contains(a.values, v) {
		return true
	}

	n, err := strconv.Atoi(v)

	return err == nil && a.most > 0 && n >= a.least && n <= a.most
}

// describeValues returns the values that AWS accepts, such as "true or false".
func (a attribute) describeValues() string {
	words := slices.Clone(a.values)
	if a.most > 0 {
		words = append(words, fmt.Sprintf("between %d and %d", a.least, a.most))
	}

	return strings.Join(words, " or ")
}

// validateAttribute checks a value of an attribute of a target group.
func (g *targetGroup) validateAttribute(a *sdk.TargetGroupAttribute) error {
	if err := validateAttribute(groupAttributes(), a.Key, a.Value); err != nil {
		return err
	}

	if sdkshape.String(a.Key) == keyPreserveClientIP && sdkshape.String(a.Value) == valueFalse && forwardsUDP(g.Shape) {
		return newErrorf(
			codeInvalidConfigurationRequest,
			"The value of '%s' must be true for target groups of protocol %s",
			keyPreserveClientIP,
			sdkshape.String(g.Shape.Protocol),
		)
	}

	return nil
}

// crossesZones reports whether connections of a target group are distributed over all zones.
func (g *targetGroup) crossesZones(b *loadBalancer) bool {
	if own := g.Attributes[keyCrossZone]; own != valueOfBalancer {
		return own == valueTrue
	}

	return b.Attributes[keyCrossZone] == valueTrue
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
		if err := validateAttribute(balancerAttributes(), a.Key, a.Value); err != nil {
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
		if err := g.validateAttribute(a); err != nil {
			return nil, err
		}
	}

	for _, a := range in.Attributes {
		g.Attributes[*a.Key] = sdkshape.String(a.Value)
	}

	return &sdk.ModifyTargetGroupAttributesOutput{Attributes: toGroupAttributes(g.Attributes)}, nil
}
