// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "slices"

// permission is a rule as EC2 takes it.
func permission(rule tree) tree {
	p := tree{}
	for _, k := range []string{"IpProtocol", "FromPort", "ToPort"} {
		if v, ok := rule[k]; ok && v != nil {
			p[k] = v
		}
	}
	peer := func(list, member string, from ...string) {
		for _, property := range from {
			if v, ok := rule[property]; ok && v != nil {
				m := tree{member: v}
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

// everything is the rule that EC2 gives to every new group.
func everything() tree {
	return tree{"IpProtocol": "-1", "IpRanges": []any{tree{"CidrIp": "0.0.0.0/0"}}}
}

// authorize adds rules to a group.
func (j *job) authorize(direction, group string, rules []any) error {
	for _, r := range rules {
		m, _ := r.(tree)
		err := j.do("ec2", "AuthorizeSecurityGroup"+direction, tree{"GroupId": group, "IpPermissions": []any{permission(m)}})
		if err != nil && (!j.again || code(err) != "InvalidPermission.Duplicate") {
			return err
		}
	}
	return nil
}

func (j *job) revoke(direction, group string, permissions []any) error {
	if len(permissions) == 0 {
		return nil
	}
	return unlessAbsent(j.do("ec2", "RevokeSecurityGroup"+direction, tree{"GroupId": group, "IpPermissions": permissions}))
}

func groupRules(j *job) error {
	j.attributes["GroupId"], j.attributes["Id"], j.attributes["VpcId"] = j.id, j.id, j.props["VpcId"]
	if rules := list0(j.props["SecurityGroupEgress"]); len(rules) > 0 {
		// Its own rules take the place of the one that lets everything out.
		if !slices.ContainsFunc(rules, func(r any) bool { return canonical(permission(r.(tree))) == canonical(everything()) }) { //nolint:errcheck // conform made objects of them
			if err := j.revoke("Egress", j.id, []any{everything()}); err != nil {
				return err
			}
			if err := j.authorize("Egress", j.id, rules); err != nil {
				return err
			}
		}
	}
	return j.authorize("Ingress", j.id, list0(j.props["SecurityGroupIngress"]))
}

func changeGroup(j *job) error {
	for _, direction := range []string{"Egress", "Ingress"} {
		more, fewer := changes(j.old["SecurityGroup"+direction], j.props["SecurityGroup"+direction])
		if direction == "Egress" {
			had, has := len(list0(j.old["SecurityGroupEgress"])) > 0, len(list0(j.props["SecurityGroupEgress"])) > 0
			if had && !has {
				more = append(more, tree{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"})
			}
			if !had && has {
				fewer = append(fewer, tree{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"})
			}
		}
		var gone []any
		for _, r := range fewer {
			m, _ := r.(tree)
			gone = append(gone, permission(m))
		}
		if err := j.revoke(direction, j.id, gone); err != nil {
			return err
		}
		if err := j.authorize(direction, j.id, more); err != nil {
			return err
		}
	}
	return retagEC2(j)
}

func securityTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::EC2::SecurityGroup": {
			name: "GroupName", max: 255,
			make: makeEC2("CreateSecurityGroup", "security-group", "GroupId", func(j *job) tree {
				return tree{"GroupName": j.named(), "Description": j.props["GroupDescription"], "VpcId": j.props["VpcId"]}
			}),
			settle: groupRules, change: changeGroup,
			remove:     removeEC2("DeleteSecurityGroup", "GroupId"),
			attributes: []string{"VpcId"},
		},
		"AWS::EC2::SecurityGroupIngress": ruleType("Ingress"),
		"AWS::EC2::SecurityGroupEgress":  ruleType("Egress"),
	}
}

// ruleType is a rule of a group as a resource of its own.
func ruleType(direction string) resourceType {
	return resourceType{
		make: func(j *job) error {
			out, err := j.call("ec2", "AuthorizeSecurityGroup"+direction, tree{"GroupId": j.props["GroupId"], "IpPermissions": []any{permission(j.props)}})
			if err != nil {
				return err
			}
			return j.made(at(out, "SecurityGroupRules", 0, "SecurityGroupRuleId"))
		},
		settle: ownID("Id"),
		change: func(j *job) error {
			return j.do("ec2", "UpdateSecurityGroupRuleDescriptions"+direction, tree{"GroupId": j.props["GroupId"], "IpPermissions": []any{permission(j.props)}})
		},
		remove: func(j *job) error {
			return j.do("ec2", "RevokeSecurityGroup"+direction, tree{"GroupId": j.props["GroupId"], "SecurityGroupRuleIds": []any{j.id}})
		},
		adopt: func(j *job) (bool, error) {
			out, err := j.call("ec2", "DescribeSecurityGroupRules", tree{"Filters": []any{tree{"Name": "group-id", "Values": []any{j.props["GroupId"]}}}})
			for _, r := range list0(out, "SecurityGroupRules") {
				if at(r, "IsEgress") == (direction == "Egress") && sameRule(r, j.props) {
					j.id = textOf(r, "SecurityGroupRuleId")
					return true, nil
				}
			}
			return false, err
		},
		replaced: []string{"SourceSecurityGroupName", "SourceSecurityGroupOwnerId"},
	}
}

// sameRule tells whether a rule of a group is the one that properties describe.
func sameRule(rule any, props tree) bool {
	port := func(v any) string {
		if t, ok := text(v); ok {
			return t
		}
		return "-1"
	}
	group := textOf(props, "SourceSecurityGroupId") + textOf(props, "DestinationSecurityGroupId")
	list := textOf(props, "SourcePrefixListId") + textOf(props, "DestinationPrefixListId")
	return textOf(rule, "IpProtocol") == textOf(props, "IpProtocol") && port(at(rule, "FromPort")) == port(props["FromPort"]) &&
		port(at(rule, "ToPort")) == port(props["ToPort"]) && textOf(rule, "CidrIpv4") == textOf(props, "CidrIp") &&
		textOf(rule, "CidrIpv6") == textOf(props, "CidrIpv6") && textOf(rule, "ReferencedGroupInfo", "GroupId") == group &&
		textOf(rule, "PrefixListId") == list
}
