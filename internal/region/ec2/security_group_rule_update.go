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

func (s *Service) describeSecurityGroupRules(
	in *sdk.DescribeSecurityGroupRulesInput,
) (*sdk.DescribeSecurityGroupRulesOutput, error) {
	got, next, err := listResources(
		s,
		s.st.Rules,
		describeQuery{in.SecurityGroupRuleIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.SecurityGroupRule]{
			"InvalidSecurityGroupRuleId.NotFound",
			"security group rule ID",
			ruleFilterValues,
		},
	)

	for _, r := range got {
		r.Tags = s.tagList(str(r.SecurityGroupRuleId))
	}

	return &sdk.DescribeSecurityGroupRulesOutput{SecurityGroupRules: got, NextToken: next}, err
}

// updatedRule is the rule that an update makes of an old one.
func (s *Service) updatedRule(
	g *sdk.SecurityGroup,
	u *sdk.SecurityGroupRuleUpdate,
) (*sdk.SecurityGroupRule, error) {
	old := s.st.Rules[str(u.SecurityGroupRuleId)]
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

	return r, s.normalizeRules(g, []*sdk.SecurityGroupRule{r})
}

func (s *Service) modifySecurityGroupRules(
	in *sdk.ModifySecurityGroupRulesInput,
) (*sdk.ModifySecurityGroupRulesOutput, error) {
	g, err := s.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	if len(in.SecurityGroupRules) == 0 {
		return nil, missingParameter("SecurityGroupRule")
	}

	changed := map[string]*sdk.SecurityGroupRule{}

	for _, u := range in.SecurityGroupRules {
		r, err := s.updatedRule(g, u)
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

// updateRuleDescriptions changes only the descriptions of rules.
func (s *Service) updateRuleDescriptions(
	g *sdk.SecurityGroup,
	rules []*sdk.SecurityGroupRule,
	byID []*sdk.SecurityGroupRuleDescription,
) error {
	for _, d := range byID {
		r := s.st.Rules[str(d.SecurityGroupRuleId)]
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

	if err := s.normalizeRules(g, rules); err != nil {
		return err
	}

	for _, want := range rules {
		found := false
		for _, r := range s.st.Rules {
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

func (s *Service) updateSecurityGroupRuleDescriptionsIngress(
	in *sdk.UpdateSecurityGroupRuleDescriptionsIngressInput,
) (*sdk.UpdateSecurityGroupRuleDescriptionsIngressOutput, error) {
	g, err := s.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	err = s.updateRuleDescriptions(
		g,
		expandPermissions(g.GroupId, false, in.IpPermissions),
		in.SecurityGroupRuleDescriptions,
	)

	return &sdk.UpdateSecurityGroupRuleDescriptionsIngressOutput{Return: new(true)}, err
}

func (s *Service) updateSecurityGroupRuleDescriptionsEgress(
	in *sdk.UpdateSecurityGroupRuleDescriptionsEgressInput,
) (*sdk.UpdateSecurityGroupRuleDescriptionsEgressOutput, error) {
	g, err := s.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	err = s.updateRuleDescriptions(
		g,
		expandPermissions(g.GroupId, true, in.IpPermissions),
		in.SecurityGroupRuleDescriptions,
	)

	return &sdk.UpdateSecurityGroupRuleDescriptionsEgressOutput{Return: new(true)}, err
}
