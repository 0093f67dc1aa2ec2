// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

const elbServiceName = "elasticloadbalancing"

func updateELBTags(j *handlerRequest) error {
	return j.updateTags("Tags", func(tags []any) error {
		return j.runOperation(
			elbServiceName,
			"AddTags",
			template.Object{"ResourceArns": []any{j.physicalID}, "Tags": tags},
		)
	}, func(keys []any) error {
		return j.runOperation(
			elbServiceName,
			"RemoveTags",
			template.Object{"ResourceArns": []any{j.physicalID}, "TagKeys": keys},
		)
	})
}

// modifyAttributes gives a load balancer or a target group its attributes.
func (j *handlerRequest) modifyAttributes(property, op, member string) error {
	list := template.ListAt(j.props[property])
	if len(list) == 0 ||
		template.CanonicalText(j.props[property]) == template.CanonicalText(j.oldProps[property]) && j.physicalID != "" &&
			!j.isCreation() {
		return nil
	}

	return j.runOperation(elbServiceName, op, template.Object{member: j.physicalID, "Attributes": list})
}

// isCreation tells whether the job makes something: then its old properties are the new ones.
func (j *handlerRequest) isCreation() bool {
	return template.CanonicalText(j.oldProps) == template.CanonicalText(j.props)
}

// arnSuffix is the part of an ARN after its kind.
func arnSuffix(arn, kind string) string {
	_, rest, _ := strings.Cut(arn, kind)
	return rest
}

func balancerTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::ElasticLoadBalancingV2::LoadBalancer": loadBalancerType(),
		"AWS::ElasticLoadBalancingV2::TargetGroup":  targetGroupType(),
		"AWS::ElasticLoadBalancingV2::Listener": {
			create: func(j *handlerRequest) error {
				out, err := j.callOperation(
					elbServiceName,
					"CreateListener",
					j.omitProperties("ListenerAttributes"),
				)
				if err != nil {
					return err
				}

				return j.setPhysicalID(template.ValueAt(out, "Listeners", 0, "ListenerArn"))
			},
			stabilize: setIDAttribute("ListenerArn"),
			update: func(j *handlerRequest) error {
				in := j.omitProperties("ListenerAttributes", "LoadBalancerArn")
				in["ListenerArn"] = j.physicalID
				return j.runOperation(elbServiceName, "ModifyListener", in)
			},
			delete: func(j *handlerRequest) error {
				return j.runOperation(elbServiceName, "DeleteListener", template.Object{"ListenerArn": j.physicalID})
			},
			findCreated: func(j *handlerRequest) (bool, error) {
				out, err := j.callOperation(
					elbServiceName,
					"DescribeListeners",
					template.Object{"LoadBalancerArn": j.props["LoadBalancerArn"]},
				)

				for _, l := range template.ListAt(out, "Listeners") {
					if template.StringAt(l, "Port") == j.stringProperty("Port") {
						j.physicalID = template.StringAt(l, "ListenerArn")
						return true, nil
					}
				}

				return false, err
			},
		},
	}
}

func loadBalancerType() resourceType {
	find := func(j *handlerRequest) (any, error) {
		out, err := j.callOperation(
			elbServiceName,
			"DescribeLoadBalancers",
			template.Object{"LoadBalancerArns": []any{j.physicalID}},
		)

		return template.ValueAt(out, "LoadBalancers", 0), err
	}

	return resourceType{
		nameProperty:  "Name",
		maxNameLength: 32,
		create: func(j *handlerRequest) error {
			in := j.pickProperties(
				"Scheme",
				"Type",
				"Subnets",
				"SubnetMappings",
				"SecurityGroups",
				"IpAddressType",
			)

			in["Name"] = j.physicalName()
			if tags := j.resourceTags(); len(tags) > 0 {
				in["Tags"] = tags
			}

			out, err := j.callOperation(elbServiceName, "CreateLoadBalancer", in)
			if err != nil {
				return err
			}

			return j.setPhysicalID(template.ValueAt(out, "LoadBalancers", 0, "LoadBalancerArn"))
		},
		stabilize: func(j *handlerRequest) error {
			if err := j.modifyAttributes("LoadBalancerAttributes", "ModifyLoadBalancerAttributes", "LoadBalancerArn"); err != nil {
				return err
			}

			return j.waitUntil(func() (bool, error) {
				lb, err := find(j)
				j.attributes["LoadBalancerArn"], j.attributes["DNSName"] = j.physicalID, template.StringAt(
					lb,
					"DNSName",
				)

				j.attributes["CanonicalHostedZoneID"], j.attributes["LoadBalancerName"] = template.StringAt(
					lb,
					"CanonicalHostedZoneId",
				), template.StringAt(
					lb,
					"LoadBalancerName",
				)

				j.attributes["LoadBalancerFullName"], j.attributes["SecurityGroups"] = arnSuffix(
					j.physicalID,
					":loadbalancer/",
				), template.ListAt(
					lb,
					"SecurityGroups",
				)

				return template.StringAt(lb, "State", "Code") == "active", err
			})
		},
		update: func(j *handlerRequest) error {
			if j.propertyChanged("SecurityGroups") {
				if err := j.runOperation(elbServiceName, "SetSecurityGroups", template.Object{"LoadBalancerArn": j.physicalID, "SecurityGroups": j.props["SecurityGroups"]}); err != nil {
					return err
				}
			}

			if j.propertyChanged("Subnets", "SubnetMappings") {
				in := j.pickProperties("Subnets", "SubnetMappings")
				in["LoadBalancerArn"] = j.physicalID
				if err := j.runOperation(elbServiceName, "SetSubnets", in); err != nil {
					return err
				}
			}

			if err := j.modifyAttributes("LoadBalancerAttributes", "ModifyLoadBalancerAttributes", "LoadBalancerArn"); err != nil {
				return err
			}

			return updateELBTags(j)
		},
		delete: func(j *handlerRequest) error {
			return j.runOperation(
				elbServiceName,
				"DeleteLoadBalancer",
				template.Object{"LoadBalancerArn": j.physicalID},
			)
		},
		isDeleted: func(j *handlerRequest) (bool, error) {
			lb, err := find(j)
			return lb == nil, err
		},
		findCreated: findByName("DescribeLoadBalancers", "LoadBalancers", "LoadBalancerArn"),
	}
}

// findByName adopts what has the name that the template gives.
func findByName(op, list, member string) func(*handlerRequest) (bool, error) {
	return func(j *handlerRequest) (bool, error) {
		name := j.stringProperty("Name")
		if name == "" {
			return false, nil
		}

		out, err := j.callOperation(elbServiceName, op, template.Object{"Names": []any{name}})
		j.physicalID = template.StringAt(out, list, 0, member)

		return j.physicalID != "", ignoreNotFound(err)
	}
}

func targetGroupType() resourceType {
	health := []string{
		"HealthCheckEnabled", "HealthCheckIntervalSeconds", "HealthCheckPath", "HealthCheckPort", "HealthCheckProtocol",
		"HealthCheckTimeoutSeconds", "HealthyThresholdCount", "UnhealthyThresholdCount", "Matcher",
	}

	return resourceType{
		nameProperty:  "Name",
		maxNameLength: 32,
		create: func(j *handlerRequest) error {
			in := j.pickProperties(
				append(
					[]string{"Port", "Protocol", "ProtocolVersion", "VpcId", "TargetType", "IpAddressType"},
					health...)...)

			in["Name"] = j.physicalName()
			if tags := j.resourceTags(); len(tags) > 0 {
				in["Tags"] = tags
			}

			out, err := j.callOperation(elbServiceName, "CreateTargetGroup", in)
			if err != nil {
				return err
			}

			return j.setPhysicalID(template.ValueAt(out, "TargetGroups", 0, "TargetGroupArn"))
		},
		stabilize: func(j *handlerRequest) error {
			if err := j.modifyAttributes("TargetGroupAttributes", "ModifyTargetGroupAttributes", "TargetGroupArn"); err != nil {
				return err
			}

			out, err := j.callOperation(
				elbServiceName,
				"DescribeTargetGroups",
				template.Object{"TargetGroupArns": []any{j.physicalID}},
			)
			if err != nil {
				return err
			}

			j.attributes["TargetGroupArn"], j.attributes["TargetGroupName"] = j.physicalID, template.StringAt(
				out,
				"TargetGroups",
				0,
				"TargetGroupName",
			)

			j.attributes["TargetGroupFullName"] = "targetgroup/" + arnSuffix(j.physicalID, ":targetgroup/")
			j.attributes["LoadBalancerArns"] = template.ListAt(out, "TargetGroups", 0, "LoadBalancerArns")

			return syncTargets(j, nil, j.props["Targets"])
		},
		update: func(j *handlerRequest) error {
			if j.propertyChanged(health...) {
				in := j.pickProperties(health...)
				in["TargetGroupArn"] = j.physicalID
				if err := j.runOperation(elbServiceName, "ModifyTargetGroup", in); err != nil {
					return err
				}
			}

			if err := j.modifyAttributes("TargetGroupAttributes", "ModifyTargetGroupAttributes", "TargetGroupArn"); err != nil {
				return err
			}

			if err := syncTargets(j, j.oldProps["Targets"], j.props["Targets"]); err != nil {
				return err
			}

			return updateELBTags(j)
		},
		delete: func(j *handlerRequest) error {
			return j.runOperation(elbServiceName, "DeleteTargetGroup", template.Object{"TargetGroupArn": j.physicalID})
		},
		findCreated: findByName("DescribeTargetGroups", "TargetGroups", "TargetGroupArn"),
	}
}

// syncTargets brings a target group's own targets to what they should be.
func syncTargets(j *handlerRequest, before, after any) error {
	more, fewer := diffLists(before, after)
	if len(more) > 0 {
		if err := j.runOperation(elbServiceName, "RegisterTargets", template.Object{"TargetGroupArn": j.physicalID, "Targets": more}); err != nil {
			return err
		}
	}

	if len(fewer) > 0 {
		return j.runOperation(
			elbServiceName,
			"DeregisterTargets",
			template.Object{"TargetGroupArn": j.physicalID, "Targets": fewer},
		)
	}

	return nil
}
