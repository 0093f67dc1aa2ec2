// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "slices"

// ipPermission is a rule as EC2 takes it.
func ipPermission(rule object) object {
	p := object{}
	for _, k := range []string{"IpProtocol", "FromPort", "ToPort"} {
		if v, ok := rule[k]; ok && v != nil {
			p[k] = v
		}
	}

	peer := func(list, member string, from ...string) {
		for _, property := range from {
			if v, ok := rule[property]; ok && v != nil {
				m := object{member: v}
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
func allowAllEgress() object {
	return object{"IpProtocol": "-1", "IpRanges": []any{object{"CidrIp": "0.0.0.0/0"}}}
}

// authorizeRules adds rules to a group.
func (j *handlerRequest) authorizeRules(direction, group string, rules []any) error {
	for _, r := range rules {
		m, _ := r.(object)
		err := j.runOperation(
			"ec2",
			"AuthorizeSecurityGroup"+direction,
			object{"GroupId": group, "IpPermissions": []any{ipPermission(m)}},
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
			object{"GroupId": group, "IpPermissions": permissions},
		),
	)
}

func applyGroupRules(j *handlerRequest) error {
	j.attributes["GroupId"], j.attributes["Id"], j.attributes["VpcId"] = j.physicalID, j.physicalID, j.props["VpcId"]
	if rules := listAt(j.props["SecurityGroupEgress"]); len(rules) > 0 {
		// Its own rules take the place of the one that lets everything out.
		if !slices.ContainsFunc(
			rules,
			func(r any) bool { return canonicalText(ipPermission(r.(object))) == canonicalText(allowAllEgress()) },
		) { //nolint:errcheck // conform made objects of them
			if err := j.revokeRules("Egress", j.physicalID, []any{allowAllEgress()}); err != nil {
				return err
			}

			if err := j.authorizeRules("Egress", j.physicalID, rules); err != nil {
				return err
			}
		}
	}

	return j.authorizeRules("Ingress", j.physicalID, listAt(j.props["SecurityGroupIngress"]))
}

func updateSecurityGroup(j *handlerRequest) error {
	for _, direction := range []string{"Egress", "Ingress"} {
		more, fewer := diffLists(j.oldProps["SecurityGroup"+direction], j.props["SecurityGroup"+direction])
		if direction == "Egress" {
			had := len(listAt(j.oldProps["SecurityGroupEgress"])) > 0
			has := len(listAt(j.props["SecurityGroupEgress"])) > 0
			if had && !has {
				more = append(more, object{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"})
			}

			if !had && has {
				fewer = append(fewer, object{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"})
			}
		}

		var gone []any
		for _, r := range fewer {
			m, _ := r.(object)
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
				func(j *handlerRequest) object {
					return object{
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
				object{"GroupId": j.props["GroupId"], "IpPermissions": []any{ipPermission(j.props)}},
			)
			if err != nil {
				return err
			}

			return j.setPhysicalID(valueAt(out, "SecurityGroupRules", 0, "SecurityGroupRuleId"))
		},
		stabilize: setIDAttribute("Id"),
		update: func(j *handlerRequest) error {
			return j.runOperation(
				"ec2",
				"UpdateSecurityGroupRuleDescriptions"+direction,
				object{"GroupId": j.props["GroupId"], "IpPermissions": []any{ipPermission(j.props)}},
			)
		},
		delete: func(j *handlerRequest) error {
			return j.runOperation(
				"ec2",
				"RevokeSecurityGroup"+direction,
				object{"GroupId": j.props["GroupId"], "SecurityGroupRuleIds": []any{j.physicalID}},
			)
		},
		findCreated: func(j *handlerRequest) (bool, error) {
			out, err := j.callOperation(
				"ec2",
				"DescribeSecurityGroupRules",
				object{"Filters": []any{object{"Name": "group-id", "Values": []any{j.props["GroupId"]}}}},
			)

			for _, r := range listAt(out, "SecurityGroupRules") {
				if valueAt(r, "IsEgress") == (direction == "Egress") && matchesRule(r, j.props) {
					j.physicalID = stringAt(r, "SecurityGroupRuleId")
					return true, nil
				}
			}

			return false, err
		},
		replacementProperties: []string{"SourceSecurityGroupName", "SourceSecurityGroupOwnerId"},
	}
}

// matchesRule tells whether a rule of a group is the one that properties describe.
func matchesRule(rule any, props object) bool {
	port := func(v any) string {
		if t, ok := scalarText(v); ok {
			return t
		}

		return "-1"
	}

	group := stringAt(props, "SourceSecurityGroupId") + stringAt(props, "DestinationSecurityGroupId")
	list := stringAt(props, "SourcePrefixListId") + stringAt(props, "DestinationPrefixListId")

	return stringAt(rule, "IpProtocol") == stringAt(props, "IpProtocol") && port(valueAt(rule, "FromPort")) == port(props["FromPort"]) &&
		port(valueAt(rule, "ToPort")) == port(props["ToPort"]) &&
		stringAt(rule, "CidrIpv4") == stringAt(props, "CidrIp") &&
		stringAt(rule, "CidrIpv6") == stringAt(props, "CidrIpv6") &&
		stringAt(rule, "ReferencedGroupInfo", "GroupId") == group &&
		stringAt(rule, "PrefixListId") == list
}
