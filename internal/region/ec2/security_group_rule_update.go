// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
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
	got, next, err := listResources(
		s.Service,
		s.st.Rules,
		describeQuery{in.SecurityGroupRuleIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.SecurityGroupRule]{
			"InvalidSecurityGroupRuleId.NotFound",
			"security group rule ID",
			ruleFilterValues,
		},
	)

	for _, r := range got {
		r.Tags = s.st.tagList(str(r.SecurityGroupRuleId))
	}

	return &sdk.DescribeSecurityGroupRulesOutput{SecurityGroupRules: got, NextToken: next}, err
}

// updatedRule returns a rule with an update applied.
func (st *serviceState) updatedRule(
	g *sdk.SecurityGroup,
	u *sdk.SecurityGroupRuleUpdate,
) (*sdk.SecurityGroupRule, error) {
	old := st.Rules[str(u.SecurityGroupRuleId)]
	want := u.SecurityGroupRule
	if old == nil || str(old.GroupId) != str(g.GroupId) {
		return nil, wire.Errorf(
			"InvalidSecurityGroupRuleId.NotFound",
			"The security group rule ID '%s' does not exist",
			str(u.SecurityGroupRuleId),
		)
	}

	if want == nil {
		return nil, missingParameter("SecurityGroupRule.SecurityGroupRule")
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
				return nil, wire.Errorf("InvalidPermission.Duplicate", "the specified rule already exists")
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
			return wire.Errorf(
				"InvalidSecurityGroupRuleId.NotFound",
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
			return wire.Errorf(
				"InvalidPermission.NotFound",
				"The specified rule does not exist in this security group.",
			)
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
