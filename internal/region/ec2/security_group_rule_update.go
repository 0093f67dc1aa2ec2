// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

func ruleFilterValues(r *sdk.SecurityGroupRule, name string) ([]string, bool) {
	switch name {
	case "group-id":
		return []string{str(r.GroupId)}, true
	case "security-group-rule-id":
		return []string{str(r.SecurityGroupRuleId)}, true
	}

	return nil, false
}

func (s securityGroupHandlers) describeSecurityGroupRules(
	in *sdk.DescribeSecurityGroupRulesInput,
) (*sdk.DescribeSecurityGroupRulesOutput, error) {
	if err := checkGroupFilter(in.Filters); err != nil {
		return nil, err
	}

	got, next, err := listResources(
		s.Service,
		s.st.Rules,
		describeQuery{in.SecurityGroupRuleIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.SecurityGroupRule]{
			codeInvalidSecurityGroupRuleIDNotFound,
			"security group rule ID",
			ruleFilterValues,
		},
	)

	for _, r := range got {
		r.Tags = s.st.tagList(str(r.SecurityGroupRuleId))
	}

	return &sdk.DescribeSecurityGroupRulesOutput{SecurityGroupRules: got, NextToken: next}, err
}

// checkGroupFilter refuses values of the filter group-id that cannot be the id of a group.
func checkGroupFilter(filters []*sdk.Filter) error {
	for _, f := range filters {
		if str(f.Name) != "group-id" {
			continue
		}

		for _, value := range f.Values {
			if !strings.HasPrefix(str(value), "sg-") && !strings.ContainsAny(str(value), "*?") {
				return newErrorf(
					codeInvalidGroupIDMalformed,
					"The security group ID '%s' is malformed",
					str(value),
				)
			}
		}
	}

	return nil
}

// ruleType returns the kind of what a rule refers to, as errors name it, and the parameter that sets it.
func ruleType(r *sdk.SecurityGroupRule) (kind, parameter string) {
	switch {
	case r.CidrIpv4 != nil:
		return "IPv4 CIDR", "CidrIpv4"
	case r.CidrIpv6 != nil:
		return "IPv6 CIDR", "CidrIpv6"
	case r.PrefixListId != nil:
		return "prefix list", "PrefixListId"
	default:
		return "security group", "ReferencedGroupId"
	}
}

// checkOnePeer refuses the update of a rule to none or to several peers.
func checkOnePeer(want *sdk.SecurityGroupRuleRequest) error {
	peers := 0
	for _, peer := range []*string{want.CidrIpv4, want.CidrIpv6, want.PrefixListId, want.ReferencedGroupId} {
		if peer != nil {
			peers++
		}
	}

	switch peers {
	case 0:
		return newErrorf(
			codeMissingParameter,
			"The request must contain exactly one of: cidrIp, cidrIpv6, prefixListId, or referencedGroupId",
		)
	case 1:
		return nil
	default:
		return newErrorf(
			codeInvalidParameterCombination,
			"Only one of cidrIp, cidrIpv6, prefixListId, or referencedGroupId can be specified",
		)
	}
}

// updatedRule returns a rule with an update applied.
func (st *serviceState) updatedRule(
	g *sdk.SecurityGroup,
	u *sdk.SecurityGroupRuleUpdate,
) (*sdk.SecurityGroupRule, error) {
	old := st.Rules[str(u.SecurityGroupRuleId)]
	want := u.SecurityGroupRule
	if old == nil || str(old.GroupId) != str(g.GroupId) {
		return nil, newErrorf(
			codeInvalidSecurityGroupRuleIDNotFound,
			"The security group rule ID '%s' does not exist",
			str(u.SecurityGroupRuleId),
		)
	}

	if want == nil {
		return nil, missingParameter("SecurityGroupRule.SecurityGroupRule")
	}

	if want.IpProtocol == nil {
		return nil, newErrorf(
			codeInvalidParameterValue,
			"Invalid value 'null' for protocol. VPC security group rules must specify protocols explicitly.",
		)
	}

	r := &sdk.SecurityGroupRule{
		SecurityGroupRuleId: old.SecurityGroupRuleId,
		GroupId:             old.GroupId,
		GroupOwnerId:        old.GroupOwnerId,
		IsEgress:            old.IsEgress,
		IpProtocol:          want.IpProtocol,
		FromPort:            want.FromPort,
		ToPort:              want.ToPort,
		CidrIpv4:            want.CidrIpv4,
		CidrIpv6:            want.CidrIpv6,
		PrefixListId:        want.PrefixListId,
		Description:         want.Description,
	}
	if want.ReferencedGroupId != nil {
		r.ReferencedGroupInfo = &sdk.ReferencedSecurityGroup{GroupId: want.ReferencedGroupId}
	}

	if err := checkOnePeer(want); err != nil {
		return nil, err
	}

	was, _ := ruleType(old)
	if now, parameter := ruleType(r); now != was {
		return nil, newErrorf(
			codeInvalidParameterValue,
			"Invalid rule type for security group rule '%s'. You may not specify %s for an existing %s rule.",
			str(old.SecurityGroupRuleId),
			parameter,
			was,
		)
	}

	return r, st.normalizeRules(g, []*sdk.SecurityGroupRule{r})
}

func (s securityGroupHandlers) modifySecurityGroupRules(
	in *sdk.ModifySecurityGroupRulesInput,
) (*sdk.ModifySecurityGroupRulesOutput, error) {
	g, err := s.st.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	if len(in.SecurityGroupRules) == 0 {
		return nil, missingParameter("SecurityGroupRule")
	}

	changed := map[string]*sdk.SecurityGroupRule{}

	for _, u := range in.SecurityGroupRules {
		r, err := s.st.updatedRule(g, u)
		if err != nil {
			return nil, err
		}

		for id, other := range s.st.Rules {
			if id != str(u.SecurityGroupRuleId) && sameRule(other, r) {
				return nil, newErrorf(
					codeInvalidPermissionDuplicate,
					"the specified rule already exists",
				)
			}
		}

		changed[str(u.SecurityGroupRuleId)] = r
	}

	maps.Copy(s.st.Rules, changed)

	return &sdk.ModifySecurityGroupRulesOutput{Return: new(true)}, nil
}

// updateRuleDescriptions changes the descriptions of rules and nothing else.
func (st *serviceState) updateRuleDescriptions(
	g *sdk.SecurityGroup,
	rules []*sdk.SecurityGroupRule,
	byID []*sdk.SecurityGroupRuleDescription,
) error {
	for _, d := range byID {
		r := st.Rules[str(d.SecurityGroupRuleId)]
		if r == nil {
			return newErrorf(
				codeInvalidSecurityGroupRuleIDNotFound,
				"The security group rule ID '%s' does not exist",
				str(d.SecurityGroupRuleId),
			)
		}

		r.Description = d.Description
	}

	if len(byID) > 0 {
		return nil
	}

	if err := st.normalizeRules(g, rules); err != nil {
		return err
	}

	for _, want := range rules {
		found := false
		for _, r := range st.Rules {
			if sameRule(r, want) {
				r.Description = want.Description
				found = true
			}
		}

		if !found {
			return newError(codeInvalidPermissionNotFound)
		}
	}

	return nil
}

func (s securityGroupHandlers) updateSecurityGroupRuleDescriptionsIngress(
	in *sdk.UpdateSecurityGroupRuleDescriptionsIngressInput,
) (*sdk.UpdateSecurityGroupRuleDescriptionsIngressOutput, error) {
	g, err := s.st.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	err = s.st.updateRuleDescriptions(
		g,
		expandPermissions(g.GroupId, false, in.IpPermissions),
		in.SecurityGroupRuleDescriptions,
	)

	return &sdk.UpdateSecurityGroupRuleDescriptionsIngressOutput{Return: new(true)}, err
}

func (s securityGroupHandlers) updateSecurityGroupRuleDescriptionsEgress(
	in *sdk.UpdateSecurityGroupRuleDescriptionsEgressInput,
) (*sdk.UpdateSecurityGroupRuleDescriptionsEgressOutput, error) {
	g, err := s.st.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	err = s.st.updateRuleDescriptions(
		g,
		expandPermissions(g.GroupId, true, in.IpPermissions),
		in.SecurityGroupRuleDescriptions,
	)

	return &sdk.UpdateSecurityGroupRuleDescriptionsEgressOutput{Return: new(true)}, err
}
