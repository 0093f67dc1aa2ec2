// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// ipPermission is a rule as EC2 takes it.
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

// allowAllEgress is the rule that EC2 gives to every new group.
func allowAllEgress() template.Object {
	return template.Object{"IpProtocol": "-1", "IpRanges": []any{template.Object{"CidrIp": "0.0.0.0/0"}}}
}

// authorizeRules adds rules to a group.
func (j *handlerRequest) authorizeRules(direction, group string, rules []any) error {
	for _, r := range rules {
		m, _ := r.(template.Object)
		err := j.runOperation(
			"ec2",
			"AuthorizeSecurityGroup"+direction,
			template.Object{"GroupId": group, "IpPermissions": []any{ipPermission(m)}},
		)
		if err != nil && (!j.resumed || errorCode(err) != "InvalidPermission.Duplicate") {
			return err
		}
	}

	return nil
}

func (j *handlerRequest) revokeRules(direction, group string, permissions []any) error {
	if len(permissions) == 0 {
		return nil
	}

	return ignoreNotFound(
		j.runOperation(
			"ec2",
			"RevokeSecurityGroup"+direction,
			template.Object{"GroupId": group, "IpPermissions": permissions},
		),
	)
}

func applyGroupRules(j *handlerRequest) error {
	j.attributes["GroupId"], j.attributes["Id"], j.attributes["VpcId"] = j.physicalID, j.physicalID, j.props["VpcId"]
	if rules := template.ListAt(j.props["SecurityGroupEgress"]); len(rules) > 0 {
		// Its own rules take the place of the one that lets everything out.
		if !slices.ContainsFunc(
			rules,
			func(r any) bool {
				return template.CanonicalText(ipPermission(r.(template.Object))) == template.CanonicalText(allowAllEgress())
			},
		) { //nolint:errcheck // conform made objects of them
			if err := j.revokeRules("Egress", j.physicalID, []any{allowAllEgress()}); err != nil {
				return err
			}

			if err := j.authorizeRules("Egress", j.physicalID, rules); err != nil {
				return err
			}
		}
	}

	return j.authorizeRules("Ingress", j.physicalID, template.ListAt(j.props["SecurityGroupIngress"]))
}

func updateSecurityGroup(j *handlerRequest) error {
	for _, direction := range []string{"Egress", "Ingress"} {
		more, fewer := diffLists(j.oldProps["SecurityGroup"+direction], j.props["SecurityGroup"+direction])
		if direction == "Egress" {
			had := len(template.ListAt(j.oldProps["SecurityGroupEgress"])) > 0
			has := len(template.ListAt(j.props["SecurityGroupEgress"])) > 0
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

		if err := j.revokeRules(direction, j.physicalID, gone); err != nil {
			return err
		}

		if err := j.authorizeRules(direction, j.physicalID, more); err != nil {
			return err
		}
	}

	return updateEC2Tags(j)
}

func securityTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::EC2::SecurityGroup": {
			nameProperty:  "GroupName",
			maxNameLength: 255,
			create: createEC2(
				"CreateSecurityGroup",
				"security-group",
				"GroupId",
				func(j *handlerRequest) template.Object {
					return template.Object{
						"GroupName":   j.physicalName(),
						"Description": j.props["GroupDescription"],
						"VpcId":       j.props["VpcId"],
					}
				},
			),
			stabilize:       applyGroupRules,
			update:          updateSecurityGroup,
			delete:          deleteEC2("DeleteSecurityGroup", "GroupId"),
			extraAttributes: []string{"VpcId"},
		},
		"AWS::EC2::SecurityGroupIngress": securityRuleType("Ingress"),
		"AWS::EC2::SecurityGroupEgress":  securityRuleType("Egress"),
	}
}

// securityRuleType is a rule of a group as a resource of its own.
func securityRuleType(direction string) resourceType {
	return resourceType{
		create: func(j *handlerRequest) error {
			out, err := j.callOperation(
				"ec2",
				"AuthorizeSecurityGroup"+direction,
				template.Object{"GroupId": j.props["GroupId"], "IpPermissions": []any{ipPermission(j.props)}},
			)
			if err != nil {
				return err
			}

			return j.setPhysicalID(template.ValueAt(out, "SecurityGroupRules", 0, "SecurityGroupRuleId"))
		},
		stabilize: setIDAttribute("Id"),
		update: func(j *handlerRequest) error {
			return j.runOperation(
				"ec2",
				"UpdateSecurityGroupRuleDescriptions"+direction,
				template.Object{"GroupId": j.props["GroupId"], "IpPermissions": []any{ipPermission(j.props)}},
			)
		},
		delete: func(j *handlerRequest) error {
			return j.runOperation(
				"ec2",
				"RevokeSecurityGroup"+direction,
				template.Object{"GroupId": j.props["GroupId"], "SecurityGroupRuleIds": []any{j.physicalID}},
			)
		},
		findCreated: func(j *handlerRequest) (bool, error) {
			out, err := j.callOperation(
				"ec2",
				"DescribeSecurityGroupRules",
				template.Object{"Filters": []any{template.Object{"Name": "group-id", "Values": []any{j.props["GroupId"]}}}},
			)

			for _, r := range template.ListAt(out, "SecurityGroupRules") {
				if template.ValueAt(r, "IsEgress") == (direction == "Egress") && matchesRule(r, j.props) {
					j.physicalID = template.StringAt(r, "SecurityGroupRuleId")
					return true, nil
				}
			}

			return false, err
		},
		replacementProperties: []string{"SourceSecurityGroupName", "SourceSecurityGroupOwnerId"},
	}
}

// matchesRule tells whether a rule of a group is the one that properties describe.
func matchesRule(rule any, props template.Object) bool {
	port := func(v any) string {
		if t, ok := template.ScalarText(v); ok {
			return t
		}

		return "-1"
	}

	group := template.StringAt(props, "SourceSecurityGroupId") + template.StringAt(props, "DestinationSecurityGroupId")
	list := template.StringAt(props, "SourcePrefixListId") + template.StringAt(props, "DestinationPrefixListId")

	return template.StringAt(rule, "IpProtocol") == template.StringAt(props, "IpProtocol") && port(template.ValueAt(rule, "FromPort")) == port(props["FromPort"]) &&
		port(template.ValueAt(rule, "ToPort")) == port(props["ToPort"]) &&
		template.StringAt(rule, "CidrIpv4") == template.StringAt(props, "CidrIp") &&
		template.StringAt(rule, "CidrIpv6") == template.StringAt(props, "CidrIpv6") &&
		template.StringAt(rule, "ReferencedGroupInfo", "GroupId") == group &&
		template.StringAt(rule, "PrefixListId") == list
}
