// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "strings"

const elb = "elasticloadbalancing"

func retagELB(j *job) error {
	return j.retag("Tags", func(tags []any) error {
		return j.do(elb, "AddTags", tree{"ResourceArns": []any{j.id}, "Tags": tags})
	}, func(keys []any) error {
		return j.do(elb, "RemoveTags", tree{"ResourceArns": []any{j.id}, "TagKeys": keys})
	})
}

// setOptions gives a load balancer or a target group its attributes.
func (j *job) setOptions(property, op, member string) error {
	list := list0(j.props[property])
	if len(list) == 0 || canonical(j.props[property]) == canonical(j.old[property]) && j.id != "" && !j.fresh0() {
		return nil
	}
	return j.do(elb, op, tree{member: j.id, "Attributes": list})
}

// fresh0 tells whether the job makes something: then its old properties are the new ones.
func (j *job) fresh0() bool { return canonical(j.old) == canonical(j.props) }

// tail is the part of an ARN after its kind.
func tail(arn, kind string) string {
	_, rest, _ := strings.Cut(arn, kind)
	return rest
}

func balancerTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::ElasticLoadBalancingV2::LoadBalancer": loadBalancerType(),
		"AWS::ElasticLoadBalancingV2::TargetGroup":  targetGroupType(),
		"AWS::ElasticLoadBalancingV2::Listener": {
			make: func(j *job) error {
				out, err := j.call(elb, "CreateListener", j.takeAll("ListenerAttributes"))
				if err != nil {
					return err
				}
				return j.made(at(out, "Listeners", 0, "ListenerArn"))
			},
			settle: ownID("ListenerArn"),
			change: func(j *job) error {
				in := j.takeAll("ListenerAttributes", "LoadBalancerArn")
				in["ListenerArn"] = j.id
				return j.do(elb, "ModifyListener", in)
			},
			remove: func(j *job) error { return j.do(elb, "DeleteListener", tree{"ListenerArn": j.id}) },
			adopt: func(j *job) (bool, error) {
				out, err := j.call(elb, "DescribeListeners", tree{"LoadBalancerArn": j.props["LoadBalancerArn"]})
				for _, l := range list0(out, "Listeners") {
					if textOf(l, "Port") == j.text("Port") {
						j.id = textOf(l, "ListenerArn")
						return true, nil
					}
				}
				return false, err
			},
		},
	}
}

func loadBalancerType() resourceType {
	find := func(j *job) (any, error) {
		out, err := j.call(elb, "DescribeLoadBalancers", tree{"LoadBalancerArns": []any{j.id}})
		return at(out, "LoadBalancers", 0), err
	}
	return resourceType{
		name: "Name", max: 32,
		make: func(j *job) error {
			in := j.take("Scheme", "Type", "Subnets", "SubnetMappings", "SecurityGroups", "IpAddressType")
			in["Name"] = j.named()
			if tags := j.tagsOf(); len(tags) > 0 {
				in["Tags"] = tags
			}
			out, err := j.call(elb, "CreateLoadBalancer", in)
			if err != nil {
				return err
			}
			return j.made(at(out, "LoadBalancers", 0, "LoadBalancerArn"))
		},
		settle: func(j *job) error {
			if err := j.setOptions("LoadBalancerAttributes", "ModifyLoadBalancerAttributes", "LoadBalancerArn"); err != nil {
				return err
			}
			return j.wait(func() (bool, error) {
				lb, err := find(j)
				j.attributes["LoadBalancerArn"], j.attributes["DNSName"] = j.id, textOf(lb, "DNSName")
				j.attributes["CanonicalHostedZoneID"], j.attributes["LoadBalancerName"] = textOf(lb, "CanonicalHostedZoneId"), textOf(lb, "LoadBalancerName")
				j.attributes["LoadBalancerFullName"], j.attributes["SecurityGroups"] = tail(j.id, ":loadbalancer/"), list0(lb, "SecurityGroups")
				return textOf(lb, "State", "Code") == "active", err
			})
		},
		change: func(j *job) error {
			if j.differs("SecurityGroups") {
				if err := j.do(elb, "SetSecurityGroups", tree{"LoadBalancerArn": j.id, "SecurityGroups": j.props["SecurityGroups"]}); err != nil {
					return err
				}
			}
			if j.differs("Subnets", "SubnetMappings") {
				in := j.take("Subnets", "SubnetMappings")
				in["LoadBalancerArn"] = j.id
				if err := j.do(elb, "SetSubnets", in); err != nil {
					return err
				}
			}
			if err := j.setOptions("LoadBalancerAttributes", "ModifyLoadBalancerAttributes", "LoadBalancerArn"); err != nil {
				return err
			}
			return retagELB(j)
		},
		remove: func(j *job) error { return j.do(elb, "DeleteLoadBalancer", tree{"LoadBalancerArn": j.id}) },
		gone: func(j *job) (bool, error) {
			lb, err := find(j)
			return lb == nil, err
		},
		adopt: j2ARN("DescribeLoadBalancers", "LoadBalancers", "LoadBalancerArn"),
	}
}

// j2ARN adopts what has the name that the template gives.
func j2ARN(op, list, member string) func(*job) (bool, error) {
	return func(j *job) (bool, error) {
		name := j.text("Name")
		if name == "" {
			return false, nil
		}
		out, err := j.call(elb, op, tree{"Names": []any{name}})
		j.id = textOf(out, list, 0, member)
		return j.id != "", unlessAbsent(err)
	}
}

func targetGroupType() resourceType {
	health := []string{
		"HealthCheckEnabled", "HealthCheckIntervalSeconds", "HealthCheckPath", "HealthCheckPort", "HealthCheckProtocol",
		"HealthCheckTimeoutSeconds", "HealthyThresholdCount", "UnhealthyThresholdCount", "Matcher",
	}
	return resourceType{
		name: "Name", max: 32,
		make: func(j *job) error {
			in := j.take(append([]string{"Port", "Protocol", "ProtocolVersion", "VpcId", "TargetType", "IpAddressType"}, health...)...)
			in["Name"] = j.named()
			if tags := j.tagsOf(); len(tags) > 0 {
				in["Tags"] = tags
			}
			out, err := j.call(elb, "CreateTargetGroup", in)
			if err != nil {
				return err
			}
			return j.made(at(out, "TargetGroups", 0, "TargetGroupArn"))
		},
		settle: func(j *job) error {
			if err := j.setOptions("TargetGroupAttributes", "ModifyTargetGroupAttributes", "TargetGroupArn"); err != nil {
				return err
			}
			out, err := j.call(elb, "DescribeTargetGroups", tree{"TargetGroupArns": []any{j.id}})
			if err != nil {
				return err
			}
			j.attributes["TargetGroupArn"], j.attributes["TargetGroupName"] = j.id, textOf(out, "TargetGroups", 0, "TargetGroupName")
			j.attributes["TargetGroupFullName"] = "targetgroup/" + tail(j.id, ":targetgroup/")
			j.attributes["LoadBalancerArns"] = list0(out, "TargetGroups", 0, "LoadBalancerArns")
			return registerTargets(j, nil, j.props["Targets"])
		},
		change: func(j *job) error {
			if j.differs(health...) {
				in := j.take(health...)
				in["TargetGroupArn"] = j.id
				if err := j.do(elb, "ModifyTargetGroup", in); err != nil {
					return err
				}
			}
			if err := j.setOptions("TargetGroupAttributes", "ModifyTargetGroupAttributes", "TargetGroupArn"); err != nil {
				return err
			}
			if err := registerTargets(j, j.old["Targets"], j.props["Targets"]); err != nil {
				return err
			}
			return retagELB(j)
		},
		remove: func(j *job) error { return j.do(elb, "DeleteTargetGroup", tree{"TargetGroupArn": j.id}) },
		adopt:  j2ARN("DescribeTargetGroups", "TargetGroups", "TargetGroupArn"),
	}
}

// registerTargets brings a target group's own targets to what they should be.
func registerTargets(j *job, before, after any) error {
	more, fewer := changes(before, after)
	if len(more) > 0 {
		if err := j.do(elb, "RegisterTargets", tree{"TargetGroupArn": j.id, "Targets": more}); err != nil {
			return err
		}
	}
	if len(fewer) > 0 {
		return j.do(elb, "DeregisterTargets", tree{"TargetGroupArn": j.id, "Targets": fewer})
	}
	return nil
}
