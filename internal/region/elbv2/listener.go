// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) listenerOps() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "CreateListener", s.createListener),
		state.WriteOperation(s.store, "ModifyListener", s.modifyListener),
		state.WriteOperation(s.store, "DeleteListener", s.deleteListener),
		state.ReadOperation(s.store, "DescribeListeners", s.describeListeners),
	}
}

// listenerTargetGroup returns the ARN of the target group that a listener forwards to; empty for none.
func listenerTargetGroup(l *sdk.Listener) string {
	if len(l.DefaultActions) == 0 {
		return ""
	}

	return sdkshape.String(l.DefaultActions[0].TargetGroupArn)
}

// listenersForGroup returns the listeners that forward to a target group, sorted by ARN.
func (s *Service) listenersForGroup(group string) []*sdk.Listener {
	var out []*sdk.Listener
	for _, id := range sdkshape.SortedKeys(s.st.Listeners) {
		if listenerTargetGroup(s.st.Listeners[id]) == group {
			out = append(out, s.st.Listeners[id])
		}
	}

	return out
}

// balancersForGroup returns the ARNs of the load balancers that use a target group, sorted.
func (s *Service) balancersForGroup(group string) []string {
	var out []string
	for _, l := range s.listenersForGroup(group) {
		out = append(out, sdkshape.String(l.LoadBalancerArn))
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// setDefaultAction sets the action of a listener, which must be to forward to one target group.
func (s *Service) setDefaultAction(l *sdk.Listener, actions []*sdk.Action) error {
	if len(actions) != 1 || sdkshape.String(actions[0].Type) != sdk.ActionTypeEnumForward {
		return newErrorf(
			codeInvalidLoadBalancerAction,
			"A network load balancer's listener has one default action, of type forward",
		)
	}

	a := *actions[0]
	arn := sdkshape.String(a.TargetGroupArn)
	if a.ForwardConfig != nil && len(a.ForwardConfig.TargetGroups) == 1 && arn == "" {
		arn = sdkshape.String(a.ForwardConfig.TargetGroups[0].TargetGroupArn)
	}

	g, err := s.findTargetGroup(&arn)
	if err != nil {
		return err
	}

	b := s.st.Balancers[sdkshape.String(l.LoadBalancerArn)]
	protocol := sdkshape.String(l.Protocol)

	switch {
	case sdkshape.String(g.Shape.VpcId) != sdkshape.String(b.Shape.VpcId):
		return newErrorf(
			codeInvalidConfigurationRequest,
			"The target group '%s' is not in the load balancer's VPC",
			arn,
		)

	case sdkshape.String(g.Shape.Protocol) != protocol && protocol != "TLS":
		return newErrorf(
			codeIncompatibleProtocols,
			"The protocol '%s' of the target group does not fit the listener's '%s'",
			sdkshape.String(g.Shape.Protocol),
			protocol,
		)
	}

	if used := s.balancersForGroup(arn); len(used) > 0 && used[0] != sdkshape.String(l.LoadBalancerArn) {
		return newErrorf(
			codeTargetGroupAssociationLimit,
			"The following target groups cannot be associated with more than one load balancer: %s",
			arn,
		)
	}

	a.TargetGroupArn = new(arn)
	a.Order = new(int64(1))
	a.ForwardConfig = &sdk.ForwardActionConfig{
		TargetGroups: []*sdk.TargetGroupTuple{{TargetGroupArn: new(arn)}},
	}
	l.DefaultActions = []*sdk.Action{&a}

	return nil
}

// findListenerByPort returns the listener of a load balancer on a port; nil if there is none.
func (s *Service) findListenerByPort(balancer *string, port int64) *sdk.Listener {
	for _, l := range s.st.Listeners {
		if sdkshape.String(l.LoadBalancerArn) == sdkshape.String(balancer) && *l.Port == port {
			return l
		}
	}

	return nil
}

// validateListenerProtocol refuses protocols that network load balancers or this region do not forward.
func validateListenerProtocol(protocol *string) error {
	switch p := sdkshape.String(protocol); p {
	case sdk.ProtocolEnumTcp:
		return nil
	case sdk.ProtocolEnumUdp, sdk.ProtocolEnumTcpUdp, sdk.ProtocolEnumTls:
		return newErrorf(
			codeNotImplemented,
			"This region does not implement listeners of protocol %s",
			p,
		)
	default:
		return newErrorf(
			codeUnsupportedProtocol,
			"Protocol '%s' is not one of TCP, UDP, TCP_UDP and TLS",
			p,
		)
	}
}

func (s *Service) createListener(in *sdk.CreateListenerInput) (*sdk.CreateListenerOutput, error) {
	b, err := s.findLoadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}

	if in.Port == nil || *in.Port < 1 || *in.Port > 65535 {
		return nil, newValidationError("A port between 1 and 65535 must be specified")
	}

	if err := validateListenerProtocol(in.Protocol); err != nil {
		return nil, err
	}

	tags, err := parseTags(in.Tags)
	if err != nil {
		return nil, err
	}

	prefix := strings.Replace(sdkshape.String(b.Shape.LoadBalancerArn), ":loadbalancer/", ":listener/", 1)
	id := prefix + "/" + sdkshape.RandomHex(s.cfg.Rand, 16)
	l := &sdk.Listener{
		ListenerArn:     new(id),
		LoadBalancerArn: in.LoadBalancerArn,
		Port:            in.Port,
		Protocol:        in.Protocol,
	}
	if err := s.setDefaultAction(l, in.DefaultActions); err != nil {
		return nil, err
	}

	if old := s.findListenerByPort(in.LoadBalancerArn, *in.Port); old != nil {
		if listenerTargetGroup(old) != listenerTargetGroup(l) ||
			sdkshape.String(old.Protocol) != sdkshape.String(l.Protocol) {
			return nil, newErrorf(
				codeDuplicateListener,
				"A listener already exists on this port for this load balancer '%s'",
				sdkshape.String(in.LoadBalancerArn),
			)
		}

		return &sdk.CreateListenerOutput{Listeners: []*sdk.Listener{old}}, nil
	}

	s.st.Listeners[id] = l
	s.setTags(id, tags)
	s.unseen.Track(id)

	return &sdk.CreateListenerOutput{Listeners: []*sdk.Listener{l}}, nil
}

func (s *Service) findListener(arn *string) (*sdk.Listener, error) {
	l := s.st.Listeners[sdkshape.String(arn)]
	if l == nil {
		return nil, newErrorf(
			codeListenerNotFound,
			"One or more listeners not found: '%s'",
			sdkshape.String(arn),
		)
	}

	return l, nil
}

func (s *Service) modifyListener(in *sdk.ModifyListenerInput) (*sdk.ModifyListenerOutput, error) {
	l, err := s.findListener(in.ListenerArn)
	if err != nil {
		return nil, err
	}

	after := *l
	if in.Protocol != nil {
		if err := validateListenerProtocol(in.Protocol); err != nil {
			return nil, err
		}

		after.Protocol = in.Protocol
	}

	if in.Port != nil {
		after.Port = in.Port
	}

	if other := s.findListenerByPort(l.LoadBalancerArn, *after.Port); other != nil && other != l {
		return nil, newErrorf(
			codeDuplicateListener,
			"A listener already exists on port %d",
			*after.Port,
		)
	}

	actions := in.DefaultActions
	if len(actions) == 0 {
		actions = l.DefaultActions
	}

	if err := s.setDefaultAction(&after, actions); err != nil {
		return nil, err
	}

	s.st.Listeners[sdkshape.String(in.ListenerArn)] = &after

	return &sdk.ModifyListenerOutput{Listeners: []*sdk.Listener{&after}}, nil
}

func (s *Service) deleteListener(in *sdk.DeleteListenerInput) (*sdk.DeleteListenerOutput, error) {
	if _, err := s.findListener(in.ListenerArn); err != nil {
		return nil, err
	}

	delete(s.st.Tags, *in.ListenerArn)
	delete(s.st.Listeners, *in.ListenerArn)

	return &sdk.DeleteListenerOutput{}, nil
}

func (s *Service) describeListeners(in *sdk.DescribeListenersInput) (*sdk.DescribeListenersOutput, error) {
	arns := sdkshape.Strings(in.ListenerArns)
	if in.LoadBalancerArn != nil {
		if _, err := s.findLoadBalancer(in.LoadBalancerArn); err != nil {
			return nil, err
		}

		for _, id := range sdkshape.SortedKeys(s.st.Listeners) {
			if sdkshape.String(s.st.Listeners[id].LoadBalancerArn) == *in.LoadBalancerArn {
				arns = append(arns, id)
			}
		}
	} else if len(arns) == 0 {
		return nil, newValidationError("You must specify either listener ARNs or a load balancer ARN")
	}

	slices.Sort(arns)
	arns, next, err := paginateKeys(arns, in.PageSize, in.Marker)
	if err != nil {
		return nil, err
	}

	out := &sdk.DescribeListenersOutput{NextMarker: next, Listeners: []*sdk.Listener{}}

	for _, arn := range arns {
		l, err := s.findListener(&arn)
		if err != nil {
			return nil, err
		}

		out.Listeners = append(out.Listeners, l)
	}

	return out, nil
}

// LoadBalancers describes the load balancers for package netbuilder. The address of a target that is an instance
// is not set: netbuilder looks it up.
func (s *Service) LoadBalancers() []netbuilder.LoadBalancer {
	var out []netbuilder.LoadBalancer
	err := s.store.WithLock(func() error {
		for _, arn := range sdkshape.SortedKeys(s.st.Balancers) {
			out = append(out, s.toNetworkBalancer(arn))
		}

		return nil
	})
	if err != nil {
		s.cfg.Log.Error("save the state of elbv2", slog.Any("error", err))
	}

	return out
}

func (s *Service) toNetworkBalancer(arn string) netbuilder.LoadBalancer {
	b := s.st.Balancers[arn]
	out := netbuilder.LoadBalancer{
		VPC:            sdkshape.String(b.Shape.VpcId),
		DNSName:        sdkshape.String(b.Shape.DNSName),
		SecurityGroups: sdkshape.Strings(b.Shape.SecurityGroups),
		LoadBalancer: netspec.LoadBalancer{
			ARN:      arn,
			Internal: b.Public == "",
			Addrs:    map[string]netip.Addr{},
		},
	}
	if b.Public != "" {
		out.PublicAddr = netip.MustParseAddr(b.Public)
	}

	for _, f := range b.Interfaces {
		out.Addrs[f.Subnet] = f.Addr
	}

	for _, id := range sdkshape.SortedKeys(s.st.Listeners) {
		l := s.st.Listeners[id]
		if sdkshape.String(l.LoadBalancerArn) == arn && s.st.Groups[listenerTargetGroup(l)] != nil {
			out.Listeners = append(
				out.Listeners,
				netspec.Listener{Port: int(*l.Port), TargetGroup: s.toNetworkGroup(b, listenerTargetGroup(l))},
			)
		}
	}

	return out
}

func (s *Service) toNetworkGroup(b *loadBalancer, arn string) netspec.TargetGroup {
	g := s.st.Groups[arn]
	port, err := strconv.Atoi(sdkshape.String(g.Shape.HealthCheckPort))
	if err != nil {
		port = 0 // the port is "traffic-port": the check uses the target's own port
	}

	out := netspec.TargetGroup{
		ARN:              arn,
		CrossZone:        g.crossesZones(b),
		PreserveClientIP: g.Attributes[keyPreserveClientIP] == valueTrue,
		KeepUnhealthy:    g.Attributes[keyEndUnhealthy] == valueFalse,
		EndDeregistered:  g.Attributes[keyEndDeregistered] == valueTrue,
		HealthCheck: netspec.HealthCheck{
			Protocol:           sdkshape.String(g.Shape.HealthCheckProtocol),
			Port:               port,
			Path:               sdkshape.String(g.Shape.HealthCheckPath),
			Interval:           int(*g.Shape.HealthCheckIntervalSeconds),
			Timeout:            int(*g.Shape.HealthCheckTimeoutSeconds),
			HealthyThreshold:   int(*g.Shape.HealthyThresholdCount),
			UnhealthyThreshold: int(*g.Shape.UnhealthyThresholdCount),
		},
	}

	for _, key := range sdkshape.SortedKeys(g.Targets) {
		t := g.Targets[key]
		f := netspec.Target{ID: t.ID, Port: int(t.Port), Zone: t.Zone}
		if addr, err := netip.ParseAddr(t.ID); err == nil {
			f.Addr = addr
		}

		if t.Leaving.IsZero() {
			out.Targets = append(out.Targets, f)
		} else {
			out.Draining = append(out.Draining, f)
		}
	}

	return out
}
