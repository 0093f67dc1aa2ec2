// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) targetGroupOps() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "CreateTargetGroup", s.createTargetGroup),
		state.WriteOperation(s.store, "ModifyTargetGroup", s.modifyTargetGroup),
		state.WriteOperation(s.store, "DeleteTargetGroup", s.deleteTargetGroup),
		state.ReadOperation(s.store, "DescribeTargetGroups", s.describeTargetGroups),
		state.ReadOperation(s.store, "DescribeTargetGroupAttributes", s.describeTargetGroupAttributes),
		state.WriteOperation(s.store, "ModifyTargetGroupAttributes", s.modifyTargetGroupAttributes),
		state.WriteOperation(s.store, "RegisterTargets", s.registerTargets),
		state.WriteOperation(s.store, "DeregisterTargets", s.deregisterTargets),
		state.ReadOperation(s.store, "DescribeTargetHealth", s.describeTargetHealth),
	}
}

func (s *Service) findTargetGroup(arn *string) (*targetGroup, error) {
	g := s.st.Groups[sdkshape.String(arn)]
	if g == nil {
		return nil, newErrorf(
			codeTargetGroupNotFound,
			"Target groups '%s' not found",
			sdkshape.String(arn),
		)
	}

	return g, nil
}

func intOrDefault(p *int64, otherwise int64) *int64 {
	if p != nil {
		return p
	}

	return new(otherwise)
}

func stringOrDefault(p *string, otherwise string) *string {
	if p != nil {
		return p
	}

	return new(otherwise)
}

// validateTargetGroup checks a request as far as that needs no state.
func validateTargetGroup(in *sdk.CreateTargetGroupInput, name, kind string) error {
	protocol := sdkshape.String(in.Protocol)
	switch {
	case !slices.Contains([]string{"TCP", "TLS", "UDP", "TCP_UDP"}, protocol):
		return newValidationError(
			"Protocol '%s' is not one of TCP, TLS, UDP and TCP_UDP, which network load balancers forward",
			protocol,
		)

	case in.Port == nil || *in.Port < 1 || *in.Port > 65535:
		return newValidationError("A port between 1 and 65535 must be specified")
	case in.VpcId == nil:
		return newValidationError("A VPC ID must be specified")
	case kind != "instance" && kind != "ip":
		return newValidationError("Target type '%s' is not one of instance and ip", kind)
	}

	return validateName(name, "target group")
}

func (s *Service) createTargetGroup(in *sdk.CreateTargetGroupInput) (*sdk.CreateTargetGroupOutput, error) {
	name := sdkshape.String(in.Name)
	kind := sdkshape.String(stringOrDefault(in.TargetType, "instance"))
	if err := validateTargetGroup(in, name, kind); err != nil {
		return nil, err
	}

	if err := checkIPv4(in.IpAddressType); err != nil {
		return nil, err
	}

	if err := checkHealthCheckEnabled(in.HealthCheckEnabled); err != nil {
		return nil, err
	}

	tags, err := parseTags(in.Tags)
	if err != nil {
		return nil, err
	}

	if has := s.cfg.HasVPC; has != nil && !has(*in.VpcId) {
		return nil, newValidationError("The VPC ID '%s' is not found", *in.VpcId)
	}

	sortTags(in.Tags)
	if old := s.findTargetGroupByName(name); old != nil {
		if old.Request != encodeRequest(in) {
			return nil, newErrorf(
				codeDuplicateTargetGroupName,
				"A target group with the same name '%s' exists, but with different settings",
				name,
			)
		}

		return &sdk.CreateTargetGroupOutput{TargetGroups: []*sdk.TargetGroup{old.Shape}}, nil
	}

	shape := newTargetGroupShape(in, kind)
	shape.TargetGroupArn = new(s.resourceARN("targetgroup/" + name + "/" + sdkshape.RandomHex(s.cfg.Rand, 16)))
	if err := validateHealthCheck(shape); err != nil {
		return nil, err
	}

	arn := sdkshape.String(shape.TargetGroupArn)
	s.st.Groups[arn] = &targetGroup{
		Shape:      shape,
		Attributes: newGroupAttributes(shape),
		Targets:    map[string]*registeredTarget{},
		Request:    encodeRequest(in),
	}

	s.setTags(arn, tags)
	s.unseen.Track(arn, groupPrefix+name)

	return &sdk.CreateTargetGroupOutput{TargetGroups: []*sdk.TargetGroup{shape}}, nil
}

// findTargetGroupByName returns the target group of that name; nil if there is none.
func (s *Service) findTargetGroupByName(name string) *targetGroup {
	for _, g := range s.st.Groups {
		if sdkshape.String(g.Shape.TargetGroupName) == name {
			return g
		}
	}

	return nil
}

// newTargetGroupShape returns a target group as a request describes it, with AWS's defaults and without an
// ARN.
func newTargetGroupShape(in *sdk.CreateTargetGroupInput, kind string) *sdk.TargetGroup {
	shape := &sdk.TargetGroup{
		TargetGroupName:            in.Name,
		Protocol:                   in.Protocol,
		Port:                       in.Port,
		VpcId:                      in.VpcId,
		TargetType:                 new(kind),
		IpAddressType:              new("ipv4"),
		LoadBalancerArns:           []*string{},
		HealthCheckEnabled:         new(true),
		HealthCheckPort:            stringOrDefault(in.HealthCheckPort, "traffic-port"),
		HealthCheckProtocol:        stringOrDefault(in.HealthCheckProtocol, "TCP"),
		HealthCheckIntervalSeconds: intOrDefault(in.HealthCheckIntervalSeconds, 30),
		HealthyThresholdCount:      intOrDefault(in.HealthyThresholdCount, 5),
		UnhealthyThresholdCount:    intOrDefault(in.UnhealthyThresholdCount, 2),
		HealthCheckPath:            in.HealthCheckPath,
		Matcher:                    in.Matcher,
	}

	timeout := int64(10)
	if sdkshape.String(shape.HealthCheckProtocol) == "HTTP" {
		timeout = 6
	}

	shape.HealthCheckTimeoutSeconds = intOrDefault(
		in.HealthCheckTimeoutSeconds,
		min(timeout, *shape.HealthCheckIntervalSeconds),
	)

	return shape
}

// checkHealthCheckEnabled refuses to disable health checks, which AWS allows for Lambda functions only.
func checkHealthCheckEnabled(enabled *bool) error {
	if enabled != nil && !*enabled {
		return newValidationError("Health check enabled must be true for groups with target type 'instance' or 'ip'")
	}

	return nil
}

// validateHealthCheck rejects health checks that AWS rejects. For HTTP and HTTPS it sets the default path and
// matcher.
func validateHealthCheck(g *sdk.TargetGroup) error {
	for _, c := range []struct {
		name  string
		value *int64
		least int64
		most  int64
	}{
		{"interval in seconds", g.HealthCheckIntervalSeconds, 5, 300},
		{"timeout in seconds", g.HealthCheckTimeoutSeconds, 2, 120},
		{"healthy threshold", g.HealthyThresholdCount, 2, 10},
		{"unhealthy threshold", g.UnhealthyThresholdCount, 2, 10},
	} {
		if *c.value < c.least || *c.value > c.most {
			return newValidationError(
				"Health check %s must be between %d and %d, not %d",
				c.name,
				c.least,
				c.most,
				*c.value,
			)
		}
	}

	switch p := sdkshape.String(g.HealthCheckProtocol); {
	case !slices.Contains([]string{"TCP", "HTTP", "HTTPS"}, p):
		return newValidationError("Health check protocol '%s' must be TCP, HTTP or HTTPS", p)
	case *g.HealthCheckTimeoutSeconds > *g.HealthCheckIntervalSeconds:
		return newValidationError("Health check timeout must not be greater than its interval")
	case p == "TCP" && g.HealthCheckPath != nil:
		return newValidationError("Health check path is not supported for TCP health checks")
	case p != "TCP":
		g.HealthCheckPath = stringOrDefault(g.HealthCheckPath, "/")
		if g.Matcher == nil {
			g.Matcher = &sdk.Matcher{HttpCode: new("200-399")}
		}
	}

	return nil
}

func (s *Service) modifyTargetGroup(in *sdk.ModifyTargetGroupInput) (*sdk.ModifyTargetGroupOutput, error) {
	g, err := s.findTargetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}

	if err := checkHealthCheckEnabled(in.HealthCheckEnabled); err != nil {
		return nil, err
	}

	after := *g.Shape
	after.HealthCheckIntervalSeconds = intOrDefault(
		in.HealthCheckIntervalSeconds,
		*after.HealthCheckIntervalSeconds,
	)

	after.HealthCheckTimeoutSeconds = intOrDefault(
		in.HealthCheckTimeoutSeconds,
		*after.HealthCheckTimeoutSeconds,
	)
	after.HealthyThresholdCount = intOrDefault(in.HealthyThresholdCount, *after.HealthyThresholdCount)
	after.UnhealthyThresholdCount = intOrDefault(in.UnhealthyThresholdCount, *after.UnhealthyThresholdCount)
	after.HealthCheckPort = stringOrDefault(in.HealthCheckPort, sdkshape.String(after.HealthCheckPort))
	after.HealthCheckProtocol = stringOrDefault(
		in.HealthCheckProtocol,
		sdkshape.String(after.HealthCheckProtocol),
	)
	if in.HealthCheckPath != nil {
		after.HealthCheckPath = in.HealthCheckPath
	}

	if sdkshape.String(after.HealthCheckProtocol) == "TCP" && in.HealthCheckPath == nil {
		after.HealthCheckPath = nil
		after.Matcher = nil
	}

	if in.Matcher != nil {
		after.Matcher = in.Matcher
	}

	if err := validateHealthCheck(&after); err != nil {
		return nil, err
	}

	g.Shape = &after

	return &sdk.ModifyTargetGroupOutput{TargetGroups: []*sdk.TargetGroup{g.Shape}}, nil
}

// deleteTargetGroup deletes a target group. As in AWS, it succeeds if the target group does not exist.
func (s *Service) deleteTargetGroup(in *sdk.DeleteTargetGroupInput) (*sdk.DeleteTargetGroupOutput, error) {
	arn := sdkshape.String(in.TargetGroupArn)
	if len(s.listenersForGroup(arn)) > 0 {
		return nil, newErrorf(
			codeResourceInUse,
			"Target group '%s' is currently in use by a listener or a rule",
			arn,
		)
	}

	delete(s.st.Groups, arn)
	delete(s.st.Tags, arn)

	return &sdk.DeleteTargetGroupOutput{}, nil
}

func (s *Service) describeTargetGroups(
	in *sdk.DescribeTargetGroupsInput,
) (*sdk.DescribeTargetGroupsOutput, error) {
	arns := sdkshape.Strings(in.TargetGroupArns)
	for _, name := range sdkshape.Strings(in.Names) {
		g := s.findTargetGroupByName(name)
		if g == nil {
			return nil, newErrorf(codeTargetGroupNotFound, "One or more target groups not found")
		}

		arns = append(arns, sdkshape.String(g.Shape.TargetGroupArn))
	}

	if len(in.TargetGroupArns)+len(in.Names) == 0 {
		arns = sdkshape.SortedKeys(s.st.Groups)
	}

	if in.LoadBalancerArn != nil {
		if _, err := s.findLoadBalancer(in.LoadBalancerArn); err != nil {
			return nil, err
		}

		arns = slices.DeleteFunc(
			arns,
			func(a string) bool { return !slices.Contains(s.balancersForGroup(a), *in.LoadBalancerArn) },
		)
	}

	slices.Sort(arns)
	arns, next, err := paginateKeys(arns, in.PageSize, in.Marker)
	if err != nil {
		return nil, err
	}

	out := &sdk.DescribeTargetGroupsOutput{NextMarker: next, TargetGroups: []*sdk.TargetGroup{}}

	for _, arn := range arns {
		g, err := s.findTargetGroup(&arn)
		if err != nil {
			return nil, err
		}

		g.Shape.LoadBalancerArns = sdkshape.StringPointers(s.balancersForGroup(arn))
		out.TargetGroups = append(out.TargetGroups, g.Shape)
	}

	return out, nil
}
