// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// ipPermission returns a rule as EC2 expects it.
func ipPermission(rule template.Object) template.Object {
	p := template.Object{}
	for _, k := range []string{"IpProtocol", "FromPort", "ToPort"} {
		if v, ok := rule[k]; ok && v != nil {
			p[k] = v
		}
	}

	peer := func(list, member string, from ...string) {
		for _, property := range from {
			if v, ok := rule[property]; ok && v != nil {
				m := template.Object{member: v}
				if d, ok := rule["Description"]; ok {
					m["Description"] = d
				}

				p[list] = []any{m}
			}
		}
	}

	peer("IpRanges", "CidrIp", "CidrIp")
	peer("Ipv6Ranges", "CidrIpv6", "CidrIpv6")
	peer("PrefixListIds", "PrefixListId", "SourcePrefixListId", "DestinationPrefixListId")
	peer("UserIdGroupPairs", "GroupId", "SourceSecurityGroupId", "DestinationSecurityGroupId")

	return p
}

// allowAllEgress returns the rule that EC2 adds to every new group.
func allowAllEgress() template.Object {
	return template.Object{"IpProtocol": "-1", "IpRanges": []any{template.Object{"CidrIp": "0.0.0.0/0"}}}
}

// authorizeRules adds rules to a group.
func (req *Request) authorizeRules(ctx context.Context, direction, group string, rules []any) error {
	for _, r := range rules {
		m, _ := r.(template.Object)
		err := req.runOperation(ctx,
			"ec2",
			"AuthorizeSecurityGroup"+direction,
			template.Object{"GroupId": group, "IpPermissions": []any{ipPermission(m)}},
		)
		if err != nil && (!req.Resumed || ErrorCode(err) != "InvalidPermission.Duplicate") {
			return err
		}
	}

	return nil
}

func (req *Request) revokeRules(ctx context.Context, direction, group string, permissions []any) error {
	if len(permissions) == 0 {
		return nil
	}

	return IgnoreNotFound(
		req.runOperation(ctx,
			"ec2",
			"RevokeSecurityGroup"+direction,
			template.Object{"GroupId": group, "IpPermissions": permissions},
		),
	)
}

func applyGroupRules(ctx context.Context, req *Request) error {
	req.Attributes["GroupId"] = req.PhysicalID
	req.Attributes["Id"] = req.PhysicalID
	req.Attributes["VpcId"] = req.Properties["VpcId"]
	if rules := template.ListAt(req.Properties["SecurityGroupEgress"]); len(rules) > 0 {
		// Egress rules in the template replace the rule that EC2 adds.
		keepsDefault := slices.ContainsFunc(rules, func(r any) bool {
			rule, _ := r.(template.Object)
			return template.CanonicalText(ipPermission(rule)) == template.CanonicalText(allowAllEgress())
		})
		if !keepsDefault {
			if err := req.revokeRules(ctx, "Egress", req.PhysicalID, []any{allowAllEgress()}); err != nil {
				return err
			}

			if err := req.authorizeRules(ctx, "Egress", req.PhysicalID, rules); err != nil {
				return err
			}
		}
	}

	return req.authorizeRules(
		ctx,
		"Ingress",
		req.PhysicalID,
		template.ListAt(req.Properties["SecurityGroupIngress"]),
	)
}

func updateSecurityGroup(ctx context.Context, req *Request) error {
	for _, direction := range []string{"Egress", "Ingress"} {
		more, fewer := diffLists(
			req.OldProperties["SecurityGroup"+direction],
			req.Properties["SecurityGroup"+direction],
		)
		if direction == "Egress" {
			had := len(template.ListAt(req.OldProperties["SecurityGroupEgress"])) > 0
			has := len(template.ListAt(req.Properties["SecurityGroupEgress"])) > 0
			if had && !has {
				more = append(more, template.Object{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"})
			}

			if !had && has {
				fewer = append(fewer, template.Object{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"})
			}
		}

		var gone []any
		for _, r := range fewer {
			m, _ := r.(template.Object)
			gone = append(gone, ipPermission(m))
		}

		if err := req.revokeRules(ctx, direction, req.PhysicalID, gone); err != nil {
			return err
		}

		if err := req.authorizeRules(ctx, direction, req.PhysicalID, more); err != nil {
			return err
		}
	}

	return updateEC2Tags(ctx, req)
}

func securityTypes() map[string]Type {
	return map[string]Type{
		"AWS::EC2::SecurityGroup": {
			NameProperty:  "GroupName",
			MaxNameLength: 255,
			Create: createEC2(
				"CreateSecurityGroup",
				"security-group",
				"GroupId",
				func(req *Request) template.Object {
					return template.Object{
						"GroupName":   req.physicalName(),
						"Description": req.Properties["GroupDescription"],
						"VpcId":       req.Properties["VpcId"],
					}
				},
			),
			Stabilize:       applyGroupRules,
			Update:          updateSecurityGroup,
			Delete:          deleteEC2("DeleteSecurityGroup", "GroupId"),
			extraAttributes: []string{"VpcId"},
		},
		"AWS::EC2::SecurityGroupIngress": securityRuleType("Ingress"),
		"AWS::EC2::SecurityGroupEgress":  securityRuleType("Egress"),
	}
}

// securityRuleType is a rule of a security group as a resource of its own.
func securityRuleType(direction string) Type {
	return Type{
		Create: func(ctx context.Context, req *Request) error {
			out, err := req.callOperation(ctx,
				"ec2",
				"AuthorizeSecurityGroup"+direction,
				template.Object{
					"GroupId":       req.Properties["GroupId"],
					"IpPermissions": []any{ipPermission(req.Properties)},
				},
			)
			if err != nil {
				return err
			}

			return req.setPhysicalID(
				ctx,
				template.ValueAt(out, "SecurityGroupRules", 0, "SecurityGroupRuleId"),
			)
		},
		Stabilize: setIDAttribute("Id"),
		Update: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx,
				"ec2",
				"UpdateSecurityGroupRuleDescriptions"+direction,
				template.Object{
					"GroupId":       req.Properties["GroupId"],
					"IpPermissions": []any{ipPermission(req.Properties)},
				},
			)
		},
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx,
				"ec2",
				"RevokeSecurityGroup"+direction,
				template.Object{
					"GroupId":              req.Properties["GroupId"],
					"SecurityGroupRuleIds": []any{req.PhysicalID},
				},
			)
		},
		FindCreated:           findCreatedRule(direction),
		ReplacementProperties: []string{"SourceSecurityGroupName", "SourceSecurityGroupOwnerId"},
	}
}

// findCreatedRule returns a FindCreated function that looks for the rule in its group.
func findCreatedRule(direction string) func(context.Context, *Request) (bool, error) {
	return func(ctx context.Context, req *Request) (bool, error) {
		out, err := req.callOperation(ctx, "ec2", "DescribeSecurityGroupRules", template.Object{
			"Filters": []any{template.Object{
				"Name":   "group-id",
				"Values": []any{req.Properties["GroupId"]},
			}},
		})

		for _, r := range template.ListAt(out, "SecurityGroupRules") {
			if template.ValueAt(r, "IsEgress") == (direction == "Egress") && matchesRule(r, req.Properties) {
				req.PhysicalID = template.StringAt(r, "SecurityGroupRuleId")
				return true, nil
			}
		}

		return false, err
	}
}

// matchesRule reports whether a rule of a group is the one that properties describe.
func matchesRule(rule any, props template.Object) bool {
	port := func(v any) string {
		if t, ok := template.ScalarText(v); ok {
			return t
		}

		return "-1"
	}

	group := template.StringAt(
		props,
		"SourceSecurityGroupId",
	) + template.StringAt(props, "DestinationSecurityGroupId")
	list := template.StringAt(
		props,
		"SourcePrefixListId",
	) + template.StringAt(props, "DestinationPrefixListId")

	return template.StringAt(rule, "IpProtocol") == template.StringAt(props, "IpProtocol") && port(
		template.ValueAt(rule, "FromPort"),
	) == port(props["FromPort"]) &&
		port(template.ValueAt(rule, "ToPort")) == port(props["ToPort"]) &&
		template.StringAt(rule, "CidrIpv4") == template.StringAt(props, "CidrIp") &&
		template.StringAt(rule, "CidrIpv6") == template.StringAt(props, "CidrIpv6") &&
		template.StringAt(rule, "ReferencedGroupInfo", "GroupId") == group &&
		template.StringAt(rule, "PrefixListId") == list
}
