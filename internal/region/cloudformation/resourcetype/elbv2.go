// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

const elbServiceName = "elasticloadbalancing"

func updateELBTags(ctx context.Context, req *Request) error {
	return req.updateTags("Tags", func(tags []any) error {
		return req.runOperation(ctx,
			elbServiceName,
			"AddTags",
			template.Object{"ResourceArns": []any{req.PhysicalID}, "Tags": tags},
		)
	}, func(keys []any) error {
		return req.runOperation(ctx,
			elbServiceName,
			"RemoveTags",
			template.Object{"ResourceArns": []any{req.PhysicalID}, "TagKeys": keys},
		)
	})
}

// modifyAttributes sets the attributes of a load balancer or a target group.
func (req *Request) modifyAttributes(ctx context.Context, property, op, member string) error {
	list := template.ListAt(req.Properties[property])
	if len(list) == 0 ||
		template.CanonicalText(req.Properties[property]) == template.CanonicalText(
			req.OldProperties[property],
		) && req.PhysicalID != "" &&
			!req.isCreation() {
		return nil
	}

	return req.runOperation(ctx, elbServiceName, op, template.Object{
		member:       req.PhysicalID,
		"Attributes": list,
	})
}

// isCreation reports whether the request creates the resource: its old properties equal the new ones.
func (req *Request) isCreation() bool {
	return template.CanonicalText(req.OldProperties) == template.CanonicalText(req.Properties)
}

// arnSuffix returns the part of an ARN after kind.
func arnSuffix(arn, kind string) string {
	_, rest, _ := strings.Cut(arn, kind)
	return rest
}

func balancerTypes() map[string]Type {
	return map[string]Type{
		"AWS::ElasticLoadBalancingV2::LoadBalancer": loadBalancerType(),
		"AWS::ElasticLoadBalancingV2::TargetGroup":  targetGroupType(),
		"AWS::ElasticLoadBalancingV2::Listener":     listenerType(),
	}
}

// checkListener refuses properties that the region's load balancers do not have.
func checkListener(req *Request) error {
	if req.hasProperty("ListenerAttributes") {
		return errors.New(
			"Encountered unsupported property ListenerAttributes: this region's load balancers have no attributes of listeners",
		)
	}

	return nil
}

func listenerType() Type {
	return Type{
		Create: func(ctx context.Context, req *Request) error {
			if err := checkListener(req); err != nil {
				return err
			}

			out, err := req.callOperation(ctx, elbServiceName, "CreateListener", req.omitProperties())
			if err != nil {
				return err
			}

			return req.setPhysicalID(ctx, template.ValueAt(out, "Listeners", 0, "ListenerArn"))
		},
		Stabilize: setIDAttribute("ListenerArn"),
		Update: func(ctx context.Context, req *Request) error {
			if err := checkListener(req); err != nil {
				return err
			}

			in := req.omitProperties("LoadBalancerArn")
			in["ListenerArn"] = req.PhysicalID

			return req.runOperation(ctx, elbServiceName, "ModifyListener", in)
		},
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, elbServiceName, "DeleteListener", template.Object{
				"ListenerArn": req.PhysicalID,
			})
		},
		FindCreated: func(ctx context.Context, req *Request) (bool, error) {
			out, err := req.callOperation(ctx, elbServiceName, "DescribeListeners", template.Object{
				"LoadBalancerArn": req.Properties["LoadBalancerArn"],
			})

			for _, l := range template.ListAt(out, "Listeners") {
				if template.StringAt(l, "Port") == req.stringProperty("Port") {
					req.PhysicalID = template.StringAt(l, "ListenerArn")
					return true, nil
				}
			}

			return false, err
		},
	}
}

func loadBalancerType() Type {
	return Type{
		NameProperty:  "Name",
		MaxNameLength: 32,
		Create:        createLoadBalancer,
		Stabilize:     stabilizeLoadBalancer,
		Update:        updateLoadBalancer,
		Delete:        deleteLoadBalancer,
		IsDeleted: func(ctx context.Context, req *Request) (bool, error) {
			lb, err := describeLoadBalancer(ctx, req)
			return lb == nil, err
		},
		FindCreated: findByName("DescribeLoadBalancers", "LoadBalancers", "LoadBalancerArn"),
	}
}

func describeLoadBalancer(ctx context.Context, req *Request) (any, error) {
	out, err := req.callOperation(ctx,
		elbServiceName,
		"DescribeLoadBalancers",
		template.Object{"LoadBalancerArns": []any{req.PhysicalID}},
	)

	return template.ValueAt(out, "LoadBalancers", 0), err
}

func createLoadBalancer(ctx context.Context, req *Request) error {
	in := req.pickProperties(
		"Scheme",
		"Type",
		"Subnets",
		"SubnetMappings",
		"SecurityGroups",
		"IpAddressType",
	)

	in["Name"] = req.physicalName()
	if tags := req.resourceTags(); len(tags) > 0 {
		in["Tags"] = tags
	}

	out, err := req.callOperation(ctx, elbServiceName, "CreateLoadBalancer", in)
	if err != nil {
		return err
	}

	return req.setPhysicalID(ctx, template.ValueAt(out, "LoadBalancers", 0, "LoadBalancerArn"))
}

func stabilizeLoadBalancer(ctx context.Context, req *Request) error {
	if err := req.modifyAttributes(
		ctx,
		"LoadBalancerAttributes",
		"ModifyLoadBalancerAttributes",
		"LoadBalancerArn",
	); err != nil {
		return err
	}

	return req.waitUntil(ctx, func() (bool, error) {
		lb, err := describeLoadBalancer(ctx, req)
		req.Attributes["LoadBalancerArn"] = req.PhysicalID
		req.Attributes["DNSName"] = template.StringAt(lb, "DNSName")

		req.Attributes["CanonicalHostedZoneID"] = template.StringAt(lb, "CanonicalHostedZoneId")
		req.Attributes["LoadBalancerName"] = template.StringAt(lb, "LoadBalancerName")

		req.Attributes["LoadBalancerFullName"] = arnSuffix(req.PhysicalID, ":loadbalancer/")
		req.Attributes["SecurityGroups"] = template.ListAt(lb, "SecurityGroups")

		return template.StringAt(lb, "State", "Code") == "active", err
	})
}

func updateLoadBalancer(ctx context.Context, req *Request) error {
	if req.propertyChanged("SecurityGroups") {
		if err := req.runOperation(ctx, elbServiceName, "SetSecurityGroups", template.Object{
			"LoadBalancerArn": req.PhysicalID,
			"SecurityGroups":  req.Properties["SecurityGroups"],
		}); err != nil {
			return err
		}
	}

	if req.propertyChanged("Subnets", "SubnetMappings") {
		in := req.pickProperties("Subnets", "SubnetMappings")
		in["LoadBalancerArn"] = req.PhysicalID
		if err := req.runOperation(ctx, elbServiceName, "SetSubnets", in); err != nil {
			return err
		}
	}

	if err := req.modifyAttributes(
		ctx,
		"LoadBalancerAttributes",
		"ModifyLoadBalancerAttributes",
		"LoadBalancerArn",
	); err != nil {
		return err
	}

	return updateELBTags(ctx, req)
}

func deleteLoadBalancer(ctx context.Context, req *Request) error {
	return req.runOperation(ctx,
		elbServiceName,
		"DeleteLoadBalancer",
		template.Object{"LoadBalancerArn": req.PhysicalID},
	)
}

// findByName returns a FindCreated function that looks for the name in the template.
func findByName(op, list, member string) func(context.Context, *Request) (bool, error) {
	return func(ctx context.Context, req *Request) (bool, error) {
		name := req.stringProperty("Name")
		if name == "" {
			return false, nil
		}

		out, err := req.callOperation(ctx, elbServiceName, op, template.Object{"Names": []any{name}})
		req.PhysicalID = template.StringAt(out, list, 0, member)

		return req.PhysicalID != "", IgnoreNotFound(err)
	}
}

// healthCheckProperties are the properties of a target group that ModifyTargetGroup can change.
func healthCheckProperties() []string {
	return []string{
		"HealthCheckEnabled", "HealthCheckIntervalSeconds", "HealthCheckPath", "HealthCheckPort", "HealthCheckProtocol",
		"HealthCheckTimeoutSeconds", "HealthyThresholdCount", "UnhealthyThresholdCount", "Matcher",
	}
}

func targetGroupType() Type {
	return Type{
		NameProperty:  "Name",
		MaxNameLength: 32,
		Create:        createTargetGroup,
		Stabilize:     stabilizeTargetGroup,
		Update:        updateTargetGroup,
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, elbServiceName, "DeleteTargetGroup", template.Object{
				"TargetGroupArn": req.PhysicalID,
			})
		},
		FindCreated: findByName("DescribeTargetGroups", "TargetGroups", "TargetGroupArn"),
	}
}

func createTargetGroup(ctx context.Context, req *Request) error {
	in := req.pickProperties(
		append(
			[]string{"Port", "Protocol", "ProtocolVersion", "VpcId", "TargetType", "IpAddressType"},
			healthCheckProperties()...)...)

	in["Name"] = req.physicalName()
	if tags := req.resourceTags(); len(tags) > 0 {
		in["Tags"] = tags
	}

	out, err := req.callOperation(ctx, elbServiceName, "CreateTargetGroup", in)
	if err != nil {
		return err
	}

	return req.setPhysicalID(ctx, template.ValueAt(out, "TargetGroups", 0, "TargetGroupArn"))
}

func stabilizeTargetGroup(ctx context.Context, req *Request) error {
	if err := req.modifyAttributes(
		ctx,
		"TargetGroupAttributes",
		"ModifyTargetGroupAttributes",
		"TargetGroupArn",
	); err != nil {
		return err
	}

	out, err := req.callOperation(ctx,
		elbServiceName,
		"DescribeTargetGroups",
		template.Object{"TargetGroupArns": []any{req.PhysicalID}},
	)
	if err != nil {
		return err
	}

	req.Attributes["TargetGroupArn"] = req.PhysicalID
	req.Attributes["TargetGroupName"] = template.StringAt(out, "TargetGroups", 0, "TargetGroupName")

	req.Attributes["TargetGroupFullName"] = "targetgroup/" + arnSuffix(req.PhysicalID, ":targetgroup/")
	req.Attributes["LoadBalancerArns"] = template.ListAt(out, "TargetGroups", 0, "LoadBalancerArns")

	return syncTargets(ctx, req, nil, req.Properties["Targets"])
}

func updateTargetGroup(ctx context.Context, req *Request) error {
	if req.propertyChanged(healthCheckProperties()...) {
		in := req.pickProperties(healthCheckProperties()...)
		in["TargetGroupArn"] = req.PhysicalID
		if err := req.runOperation(ctx, elbServiceName, "ModifyTargetGroup", in); err != nil {
			return err
		}
	}

	if err := req.modifyAttributes(
		ctx,
		"TargetGroupAttributes",
		"ModifyTargetGroupAttributes",
		"TargetGroupArn",
	); err != nil {
		return err
	}

	if err := syncTargets(ctx, req, req.OldProperties["Targets"], req.Properties["Targets"]); err != nil {
		return err
	}

	return updateELBTags(ctx, req)
}

// syncTargets registers and deregisters the targets in the properties of a target group.
func syncTargets(ctx context.Context, req *Request, before, after any) error {
	more, fewer := diffLists(before, after)
	if len(more) > 0 {
		if err := req.runOperation(ctx, elbServiceName, "RegisterTargets", template.Object{
			"TargetGroupArn": req.PhysicalID,
			"Targets":        more,
		}); err != nil {
			return err
		}
	}

	if len(fewer) > 0 {
		return req.runOperation(ctx,
			elbServiceName,
			"DeregisterTargets",
			template.Object{"TargetGroupArn": req.PhysicalID, "Targets": fewer},
		)
	}

	return nil
}
