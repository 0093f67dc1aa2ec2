// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// securityGroupHandlers serves security groups and their rules.
type securityGroupHandlers struct{ *Service }

func (s securityGroupHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateSecurityGroup", s.createSecurityGroup),
		writeOperation(s.Service, "DeleteSecurityGroup", s.deleteSecurityGroup),
		readOperation(s.Service, "DescribeSecurityGroups", s.describeSecurityGroups),
		writeOperation(s.Service, "AuthorizeSecurityGroupIngress", s.authorizeSecurityGroupIngress),
		writeOperation(s.Service, "AuthorizeSecurityGroupEgress", s.authorizeSecurityGroupEgress),
		writeOperation(s.Service, "RevokeSecurityGroupIngress", s.revokeSecurityGroupIngress),
		writeOperation(s.Service, "RevokeSecurityGroupEgress", s.revokeSecurityGroupEgress),
		readOperation(s.Service, "DescribeSecurityGroupRules", s.describeSecurityGroupRules),
		writeOperation(s.Service, "ModifySecurityGroupRules", s.modifySecurityGroupRules),
		writeOperation(
			s.Service,
			"UpdateSecurityGroupRuleDescriptionsIngress",
			s.updateSecurityGroupRuleDescriptionsIngress,
		),
		writeOperation(
			s.Service,
			"UpdateSecurityGroupRuleDescriptionsEgress",
			s.updateSecurityGroupRuleDescriptionsEgress,
		),
	}
}

// newSecurityGroup creates a group with the default egress rule, which allows everything.
func (s securityGroupHandlers) newSecurityGroup(vpc, name, description string) *sdk.SecurityGroup {
	id := s.newID("sg")
	g := &sdk.SecurityGroup{
		GroupId:     new(id),
		GroupName:   new(name),
		Description: new(description),
		VpcId:       new(vpc),
		OwnerId:     new(s.cfg.Account),
	}

	s.st.Groups[id] = g
	s.addRule(&sdk.SecurityGroupRule{
		GroupId:    new(id),
		IsEgress:   new(true),
		IpProtocol: new("-1"),
		FromPort:   new(int64(-1)),
		ToPort:     new(int64(-1)),
		CidrIpv4:   new("0.0.0.0/0"),
	})

	return g
}

func (s securityGroupHandlers) addRule(r *sdk.SecurityGroupRule) string {
	id := s.newID("sgr")
	r.SecurityGroupRuleId = new(id)
	r.GroupOwnerId = new(s.cfg.Account)
	s.st.Rules[id] = r

	return id
}

// groupRules returns the rules of a group in one direction, ingress or egress, in the order of their ids.
func (st *serviceState) groupRules(group, direction string) []*sdk.SecurityGroupRule {
	var out []*sdk.SecurityGroupRule
	for _, id := range sortedKeys(st.Rules) {
		if r := st.Rules[id]; str(r.GroupId) == group && *r.IsEgress == (direction == "egress") {
			out = append(out, r)
		}
	}

	return out
}

func (st *serviceState) removeSecurityGroup(id string) {
	for k, r := range st.Rules {
		if str(r.GroupId) == id {
			st.removeTags(k)
			delete(st.Rules, k)
		}
	}

	st.removeTags(id)
	delete(st.Groups, id)
}

// groupTextPattern matches the names and descriptions that EC2 allows for a group.
const groupTextPattern = `^[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{1,255}$`

// checkGroupText refuses a name or a description that EC2 does not allow.
func checkGroupText(name, description string) error {
	allowed := regexp.MustCompile(groupTextPattern)

	switch {
	case name == "":
		return missingParameter("GroupName")
	case description == "":
		return missingParameter("GroupDescription")
	case strings.HasPrefix(name, "sg-"):
		return invalidParameter("GroupName", name, "Group names may not be in the format sg-*.")
	case !allowed.MatchString(name):
		return invalidParameter("GroupName", name, "Character sets beyond ASCII are not supported.")
	case !allowed.MatchString(description):
		return invalidParameter(
			"GroupDescription",
			description,
			"Character sets beyond ASCII are not supported.",
		)

	case name == "default":
		return newErrorf(
			codeInvalidParameterValue,
			"Cannot use reserved security group name: default",
		)
	}

	return nil
}

func (s securityGroupHandlers) createSecurityGroup(
	in *sdk.CreateSecurityGroupInput,
) (*sdk.CreateSecurityGroupOutput, error) {
	if err := checkGroupText(str(in.GroupName), str(in.Description)); err != nil {
		return nil, err
	}

	id := in.VpcId
	if id == nil {
		var err error
		if id, err = s.st.defaultVPCID(); err != nil {
			return nil, err
		}
	}

	v, err := s.st.findVPC(id)
	if err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "security-group")
	if err != nil {
		return nil, err
	}

	err = s.st.checkNewGroup(v, str(in.GroupName), s.cfg.Quotas.GroupsPerVPC)
	if err != nil {
		return nil, err
	}

	g := s.newSecurityGroup(str(v.VpcId), str(in.GroupName), str(in.Description))
	s.st.setTags(str(g.GroupId), tags)

	return &sdk.CreateSecurityGroupOutput{
		GroupId: g.GroupId,
		Tags:    s.st.tagList(str(g.GroupId)),
	}, nil
}

// checkNewGroup refuses a name that another group of the VPC has, and one group more than limit.
func (st *serviceState) checkNewGroup(v *sdk.Vpc, name string, limit int) error {
	count := 0
	for _, g := range st.Groups {
		if str(g.VpcId) != str(v.VpcId) {
			continue
		}

		count++
		if str(g.GroupName) == name {
			return newErrorf(
				codeInvalidGroupDuplicate,
				"The security group '%s' already exists for VPC '%s'",
				name,
				str(v.VpcId),
			)
		}
	}

	if count >= limit {
		return newErrorf(
			codeSecurityGroupLimitExceeded,
			"The maximum number of security groups for VPC '%s' has been reached.",
			str(v.VpcId),
		)
	}

	return nil
}

// findSecurityGroup returns the security group of an id. It does not find one by name: AWS does that for the
// default VPC only.
func (st *serviceState) findSecurityGroup(id *string) (*sdk.SecurityGroup, error) {
	if str(id) == "" {
		return nil, missingParameter("groupId")
	}

	g := st.Groups[str(id)]
	if g == nil {
		return nil, newErrorf(
			codeInvalidGroupNotFound,
			"The security group '%s' does not exist",
			str(id),
		)
	}

	return g, nil
}

func (s securityGroupHandlers) deleteSecurityGroup(
	in *sdk.DeleteSecurityGroupInput,
) (*sdk.DeleteSecurityGroupOutput, error) {
	id := in.GroupId
	if id == nil && in.GroupName != nil {
		vpc, err := s.st.defaultVPCID()
		if err != nil {
			return nil, err
		}

		if id = s.st.namedSecurityGroup(str(vpc), str(in.GroupName)); id == nil {
			return nil, newMissingNameError(str(in.GroupName), str(vpc))
		}
	}

	return s.deleteSecurityGroupByID(id)
}

// namedSecurityGroup returns the id of the group of a VPC with a name; nil for none.
func (st *serviceState) namedSecurityGroup(vpc, name string) *string {
	for _, g := range st.Groups {
		if str(g.VpcId) == vpc && str(g.GroupName) == name {
			return g.GroupId
		}
	}

	return nil
}

func (s securityGroupHandlers) deleteSecurityGroupByID(groupID *string) (*sdk.DeleteSecurityGroupOutput, error) {
	g, err := s.st.findSecurityGroup(groupID)
	if err != nil {
		return nil, err
	}

	id := str(g.GroupId)
	if str(g.GroupName) == "default" {
		return nil, newErrorf(
			codeCannotDelete,
			"the specified group: \"%s\" name: \"default\" cannot be deleted by a user",
			id,
		)
	}

	for _, n := range s.st.Interfaces {
		if slices.ContainsFunc(n.Groups, func(x *sdk.GroupIdentifier) bool { return str(x.GroupId) == id }) {
			return nil, dependencyViolation(
				"resource %s has a dependent object (%s)",
				id,
				str(n.NetworkInterfaceId),
			)
		}
	}

	for _, r := range s.st.Rules {
		if r.ReferencedGroupInfo != nil && str(r.ReferencedGroupInfo.GroupId) == id && str(r.GroupId) != id {
			return nil, dependencyViolation(
				"resource %s has a dependent object (%s)",
				id,
				str(r.SecurityGroupRuleId),
			)
		}
	}

	s.st.removeSecurityGroup(id)

	return &sdk.DeleteSecurityGroupOutput{}, nil
}

// foldPermissions converts rules into the older form: one permission for each protocol and port range.
func foldPermissions(rules []*sdk.SecurityGroupRule) []*sdk.IpPermission {
	out := []*sdk.IpPermission{}
	at := map[string]*sdk.IpPermission{}
	for _, r := range rules {
		key := portKey(r)
		p := at[key]
		if p == nil {
			p = &sdk.IpPermission{IpProtocol: r.IpProtocol}
			if str(r.IpProtocol) != "-1" {
				p.FromPort = r.FromPort
				p.ToPort = r.ToPort
			}

			at[key] = p
			out = append(out, p)
		}

		switch {
		case r.CidrIpv4 != nil:
			p.IpRanges = append(p.IpRanges, &sdk.IpRange{CidrIp: r.CidrIpv4, Description: r.Description})
		case r.CidrIpv6 != nil:
			p.Ipv6Ranges = append(
				p.Ipv6Ranges,
				&sdk.Ipv6Range{CidrIpv6: r.CidrIpv6, Description: r.Description},
			)

		case r.PrefixListId != nil:
			p.PrefixListIds = append(
				p.PrefixListIds,
				&sdk.PrefixListId{PrefixListId: r.PrefixListId, Description: r.Description},
			)

		case r.ReferencedGroupInfo != nil:
			p.UserIdGroupPairs = append(p.UserIdGroupPairs, &sdk.UserIdGroupPair{
				GroupId:     r.ReferencedGroupInfo.GroupId,
				UserId:      r.ReferencedGroupInfo.UserId,
				Description: r.Description,
			})
		}
	}

	return out
}

func (st *serviceState) groupFilterValues(g *sdk.SecurityGroup, name string) ([]string, bool) {
	switch name {
	case "group-id":
		return []string{str(g.GroupId)}, true
	case "group-name":
		return []string{str(g.GroupName)}, true
	case "vpc-id":
		return []string{str(g.VpcId)}, true
	case "owner-id":
		return []string{str(g.OwnerId)}, true
	case "description":
		return []string{str(g.Description)}, true
	}

	direction := "ingress"
	rest, isEgress := strings.CutPrefix(name, "egress.")
	if isEgress {
		direction = "egress"
	}

	field, isRule := strings.CutPrefix(rest, "ip-permission.")
	if _, known := ruleFilterValue(st, &sdk.SecurityGroupRule{}, field); !isRule || !known {
		return nil, false
	}

	var out []string
	for _, r := range st.groupRules(str(g.GroupId), direction) {
		if v, _ := ruleFilterValue(st, r, field); v != "" {
			out = append(out, v)
		}
	}

	return out, true
}

// ruleFilterValue returns the value of a rule that a filter of groups looks at: ip-permission. and the name of a field.
func ruleFilterValue(st *serviceState, r *sdk.SecurityGroupRule, field string) (value string, known bool) {
	source := &sdk.ReferencedSecurityGroup{}
	if r.ReferencedGroupInfo != nil {
		source = r.ReferencedGroupInfo
	}

	sourceName := ""
	if g := st.Groups[str(source.GroupId)]; g != nil {
		sourceName = str(g.GroupName)
	}

	value, known = map[string]string{
		"cidr":           str(r.CidrIpv4),
		"from-port":      numberText(r.FromPort),
		"group-id":       str(source.GroupId),
		"group-name":     sourceName,
		"ipv6-cidr":      str(r.CidrIpv6),
		"prefix-list-id": str(r.PrefixListId),
		"protocol":       str(r.IpProtocol),
		"to-port":        numberText(r.ToPort),
		"user-id":        str(source.UserId),
	}[field]

	return value, known
}

func (s securityGroupHandlers) describeSecurityGroups(
	in *sdk.DescribeSecurityGroupsInput,
) (*sdk.DescribeSecurityGroupsOutput, error) {
	filters := in.Filters
	if len(in.GroupNames) > 0 {
		vpc, err := checkGroupNames(s.st, strs(in.GroupNames))
		if err != nil {
			return nil, err
		}

		filters = append(
			slices.Clip(filters),
			&sdk.Filter{Name: new("group-name"), Values: in.GroupNames},
			&sdk.Filter{Name: new("vpc-id"), Values: []*string{vpc}},
		)
	}

	for _, id := range strs(in.GroupIds) {
		if _, err := s.st.findSecurityGroup(&id); err != nil {
			return nil, err
		}
	}

	got, next, err := listResources(
		s.Service,
		s.st.Groups,
		describeQuery{in.GroupIds, filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.SecurityGroup]{codeInvalidGroupNotFound, "security group", s.st.groupFilterValues},
	)

	rules := s.st.rulesByGroup()

	for _, g := range got {
		id := str(g.GroupId)
		g.Tags = s.st.tagList(id)
		g.IpPermissions = foldPermissions(rules[id+"/false"])
		g.IpPermissionsEgress = foldPermissions(rules[id+"/true"])
	}

	return &sdk.DescribeSecurityGroupsOutput{SecurityGroups: got, NextToken: next}, err
}

// checkGroupNames returns the default VPC, in which requests name groups, and an error if it has no group of one of the names.
func checkGroupNames(st *serviceState, names []string) (vpc *string, err error) {
	if vpc, err = st.defaultVPCID(); err != nil {
		return nil, err
	}

	for _, name := range names {
		if st.namedSecurityGroup(str(vpc), name) == nil {
			return nil, newMissingNameError(name, str(vpc))
		}
	}

	return vpc, nil
}

// newMissingNameError returns the error for the name of a group that the default VPC does not have.
func newMissingNameError(name, vpc string) error {
	return newErrorf(
		codeInvalidGroupNotFound,
		"The security group '%s' does not exist in default VPC '%s'",
		name,
		vpc,
	)
}

// rulesByGroup returns all rules by group id and direction (the key is ID/false for ingress, ID/true for
// egress), in the order of their ids.
func (st *serviceState) rulesByGroup() map[string][]*sdk.SecurityGroupRule {
	out := map[string][]*sdk.SecurityGroupRule{}
	for _, id := range sortedKeys(st.Rules) {
		r := st.Rules[id]
		key := str(r.GroupId) + "/" + boolText(r.IsEgress)
		out[key] = append(out[key], r)
	}

	return out
}
