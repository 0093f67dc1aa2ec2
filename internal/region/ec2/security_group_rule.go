// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

func portValue(p *int64) int64 {
	if p == nil {
		return -1
	}

	return *p
}

// portKey returns a key of a rule's protocol and ports.
func portKey(r *sdk.SecurityGroupRule) string {
	return fmt.Sprintf("%s/%d/%d", str(r.IpProtocol), portValue(r.FromPort), portValue(r.ToPort))
}

// sameRule reports whether EC2 treats two rules as duplicates: all fields count except the description.
func sameRule(a, b *sdk.SecurityGroupRule) bool { return ruleKey(a) == ruleKey(b) }

func ruleKey(r *sdk.SecurityGroupRule) string {
	peer := str(r.CidrIpv4) + str(r.CidrIpv6) + str(r.PrefixListId)
	if r.ReferencedGroupInfo != nil {
		peer += str(r.ReferencedGroupInfo.GroupId)
	}

	return fmt.Sprintf("%s/%s/%s/%s", str(r.GroupId), boolText(r.IsEgress), portKey(r), peer)
}

// normalizePorts converts the protocol and the ports of a rule into EC2's normal form.
func normalizePorts(r *sdk.SecurityGroupRule) error {
	names := map[string]string{
		"6":   "tcp",
		"17":  "udp",
		"1":   "icmp",
		"58":  "icmpv6",
		"all": "-1",
	}
	if r.IpProtocol != nil {
		r.IpProtocol = new(strings.ToLower(*r.IpProtocol)) // names count without their case
	}

	if n, ok := names[str(r.IpProtocol)]; ok {
		r.IpProtocol = new(n)
	}

	switch str(r.IpProtocol) {
	case "":
		return missingParameter("ipProtocol")
	case "tcp", "udp":
		return checkPortRange(r)
	case "icmp", "icmpv6":
		r.FromPort = new(portValue(r.FromPort))
		r.ToPort = new(portValue(r.ToPort))
		return checkICMP(r)
	default:
		var n int
		if _, err := fmt.Sscanf(str(r.IpProtocol), "%d", &n); err != nil || n < -1 || n > 255 {
			return newErrorf(
				codeInvalidPermissionMalformed,
				"Unsupported IP protocol \"%s\"  - supported: [-1, tcp, udp, icmp, icmpv6, or a number]",
				str(r.IpProtocol),
			)
		}

		r.FromPort = new(int64(-1))
		r.ToPort = new(int64(-1))
	}

	return nil
}

// checkICMP checks the type and the code, which EC2 stores as ports: all types cannot have one code.
func checkICMP(r *sdk.SecurityGroupRule) error {
	if *r.FromPort < -1 || *r.FromPort > 255 || *r.ToPort < -1 || *r.ToPort > 255 ||
		*r.FromPort == -1 && *r.ToPort != -1 {
		return newErrorf(
			codeInvalidParameterValue,
			"Invalid ICMP type or code (%d:%d)",
			*r.FromPort,
			*r.ToPort,
		)
	}

	return nil
}

func checkPortRange(r *sdk.SecurityGroupRule) error {
	if r.FromPort == nil || r.ToPort == nil {
		return newErrorf(
			codeInvalidParameterValue,
			"Invalid value for portRange. Must specify both from and to ports with TCP/UDP.",
		)
	}

	if *r.FromPort < 0 || *r.ToPort > 65535 || *r.FromPort > *r.ToPort {
		return newErrorf(
			codeInvalidParameterValue,
			"Invalid TCP/UDP port range (%d:%d)",
			*r.FromPort,
			*r.ToPort,
		)
	}

	return nil
}

// normalizeRulePeer checks the CIDR block or the group that a rule refers to, and converts it into EC2's
// normal form.
func (st *serviceState) normalizeRulePeer(g *sdk.SecurityGroup, r *sdk.SecurityGroupRule) error {
	switch {
	case r.CidrIpv4 != nil:
		p, err := netip.ParsePrefix(*r.CidrIpv4)
		if err != nil || !p.Addr().Is4() {
			return newErrorf(codeInvalidParameterValue, "CIDR block %s is malformed", *r.CidrIpv4)
		}

		r.CidrIpv4 = new(p.Masked().String())

	case r.CidrIpv6 != nil:
		p, err := netip.ParsePrefix(*r.CidrIpv6)
		if err != nil || !p.Addr().Is6() {
			return newErrorf(codeInvalidParameterValue, "CIDR block %s is malformed", *r.CidrIpv6)
		}

		r.CidrIpv6 = new(p.Masked().String())

	case r.ReferencedGroupInfo != nil:
		peer, err := st.findPeerGroup(g, r.ReferencedGroupInfo)
		if err != nil {
			return err
		}

		r.ReferencedGroupInfo = &sdk.ReferencedSecurityGroup{
			GroupId: peer.GroupId,
			UserId:  peer.OwnerId,
			VpcId:   peer.VpcId,
		}

	case r.PrefixListId != nil:
		return newErrorf(
			codeInvalidPrefixListIDNotFound,
			"The prefix list ID '%s' does not exist",
			*r.PrefixListId,
		)

	default:
		return newErrorf(
			codeMissingParameter,
			"Either an IP range, a prefix list or a security group must be given",
		)
	}

	return nil
}

// expandPermissions converts permissions into single rules of a group.
func expandPermissions(group *string, egress bool, ps []*sdk.IpPermission) []*sdk.SecurityGroupRule {
	var out []*sdk.SecurityGroupRule
	for _, p := range ps {
		rule := func(description *string) *sdk.SecurityGroupRule {
			r := &sdk.SecurityGroupRule{
				GroupId:     group,
				IsEgress:    new(egress),
				IpProtocol:  p.IpProtocol,
				FromPort:    p.FromPort,
				ToPort:      p.ToPort,
				Description: description,
			}

			out = append(out, r)
			return r
		}

		for _, x := range p.IpRanges {
			rule(x.Description).CidrIpv4 = x.CidrIp
		}

		for _, x := range p.Ipv6Ranges {
			rule(x.Description).CidrIpv6 = x.CidrIpv6
		}

		for _, x := range p.PrefixListIds {
			rule(x.Description).PrefixListId = x.PrefixListId
		}

		for _, x := range p.UserIdGroupPairs {
			rule(x.Description).ReferencedGroupInfo = &sdk.ReferencedSecurityGroup{
				GroupId: x.GroupId,
				UserId:  x.UserId,
			}
		}

		if len(p.IpRanges)+len(p.Ipv6Ranges)+len(p.PrefixListIds)+len(p.UserIdGroupPairs) == 0 {
			rule(nil)
		}
	}

	return out
}

// normalizeRules checks all rules and converts them into EC2's normal form, before any of them is used.
func (st *serviceState) normalizeRules(g *sdk.SecurityGroup, rules []*sdk.SecurityGroupRule) error {
	if len(rules) == 0 {
		return missingParameter("ipPermissions")
	}

	for _, r := range rules {
		if err := normalizePorts(r); err != nil {
			return err
		}

		if err := st.normalizeRulePeer(g, r); err != nil {
			return err
		}
	}

	return nil
}

// authorizeRules adds rules to a group, all or none.
func (s securityGroupHandlers) authorizeRules(
	g *sdk.SecurityGroup,
	rules []*sdk.SecurityGroupRule,
	specs []*sdk.TagSpecification,
) ([]*sdk.SecurityGroupRule, error) {
	if err := s.st.normalizeRules(g, rules); err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(specs, "security-group-rule")
	if err != nil {
		return nil, err
	}

	direction := "ingress"
	if *rules[0].IsEgress {
		direction = "egress"
	}

	have := s.st.groupRules(str(g.GroupId), direction)

	for i, r := range rules {
		if slices.ContainsFunc(have, func(h *sdk.SecurityGroupRule) bool { return sameRule(h, r) }) {
			return nil, newErrorf(
				codeInvalidPermissionDuplicate,
				"the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists",
				peerText(r),
				str(r.IpProtocol),
				portValue(r.FromPort),
				portValue(r.ToPort),
			)
		}

		if slices.ContainsFunc(rules[:i], func(h *sdk.SecurityGroupRule) bool { return sameRule(h, r) }) {
			return nil, newErrorf(
				codeInvalidParameterValue,
				"The same permission must not appear multiple times",
			)
		}
	}

	if len(have)+len(rules) > s.cfg.Quotas.RulesPerGroup {
		return nil, newError(codeRulesPerSecurityGroupLimitExceeded)
	}

	for _, r := range rules {
		id := s.addRule(r)
		s.st.setTags(id, tags)
		r.Tags = s.st.tagList(id)
	}

	return rules, nil
}

// peerText returns the CIDR block or the group of a rule, for an error message.
func peerText(r *sdk.SecurityGroupRule) string {
	if r.ReferencedGroupInfo != nil {
		return str(r.ReferencedGroupInfo.GroupId)
	}

	return str(r.CidrIpv4) + str(r.CidrIpv6)
}

// legacyPermissions returns the permissions of a request that uses the older flat parameters for one
// permission.
func legacyPermissions(cidr, protocol *string, from, to *int64, ps []*sdk.IpPermission) []*sdk.IpPermission {
	if len(ps) > 0 || protocol == nil {
		return ps
	}

	p := &sdk.IpPermission{IpProtocol: protocol, FromPort: from, ToPort: to}
	if cidr != nil {
		p.IpRanges = []*sdk.IpRange{{CidrIp: cidr}}
	}

	return []*sdk.IpPermission{p}
}

func (s securityGroupHandlers) authorizeSecurityGroupIngress(
	in *sdk.AuthorizeSecurityGroupIngressInput,
) (*sdk.AuthorizeSecurityGroupIngressOutput, error) {
	g, err := s.st.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	ps := legacyPermissions(in.CidrIp, in.IpProtocol, in.FromPort, in.ToPort, in.IpPermissions)
	rules, err := s.authorizeRules(g, expandPermissions(g.GroupId, false, ps), in.TagSpecifications)

	return &sdk.AuthorizeSecurityGroupIngressOutput{Return: new(true), SecurityGroupRules: rules}, err
}

func (s securityGroupHandlers) authorizeSecurityGroupEgress(
	in *sdk.AuthorizeSecurityGroupEgressInput,
) (*sdk.AuthorizeSecurityGroupEgressOutput, error) {
	g, err := s.st.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	ps := legacyPermissions(in.CidrIp, in.IpProtocol, in.FromPort, in.ToPort, in.IpPermissions)
	rules, err := s.authorizeRules(g, expandPermissions(g.GroupId, true, ps), in.TagSpecifications)

	return &sdk.AuthorizeSecurityGroupEgressOutput{Return: new(true), SecurityGroupRules: rules}, err
}

// revokeRules removes rules, all or none. The request names them by their ids or by their contents.
func (s securityGroupHandlers) revokeRules(
	g *sdk.SecurityGroup,
	ids []*string,
	rules []*sdk.SecurityGroupRule,
	egress string,
) error {
	have := s.st.groupRules(str(g.GroupId), egress)
	drop := []string{}
	for _, id := range strs(ids) {
		if !slices.ContainsFunc(
			have,
			func(r *sdk.SecurityGroupRule) bool { return str(r.SecurityGroupRuleId) == id },
		) {
			return newErrorf(
				codeInvalidSecurityGroupRuleIDNotFound,
				"The security group rule ID '%s' does not exist",
				id,
			)
		}

		drop = append(drop, id)
	}

	if len(ids) == 0 {
		if err := s.st.normalizeRules(g, rules); err != nil {
			return err
		}
	}

	for _, r := range rules {
		at := slices.IndexFunc(have, func(h *sdk.SecurityGroupRule) bool { return sameRule(h, r) })
		if at < 0 {
			return newError(codeInvalidPermissionNotFound)
		}

		drop = append(drop, str(have[at].SecurityGroupRuleId))
	}

	for _, id := range drop {
		s.st.removeTags(id)
		delete(s.st.Rules, id)
	}

	return nil
}

func (s securityGroupHandlers) revokeSecurityGroupIngress(
	in *sdk.RevokeSecurityGroupIngressInput,
) (*sdk.RevokeSecurityGroupIngressOutput, error) {
	g, err := s.st.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	ps := legacyPermissions(in.CidrIp, in.IpProtocol, in.FromPort, in.ToPort, in.IpPermissions)
	err = s.revokeRules(g, in.SecurityGroupRuleIds, expandPermissions(g.GroupId, false, ps), "ingress")

	return &sdk.RevokeSecurityGroupIngressOutput{Return: new(true)}, err
}

func (s securityGroupHandlers) revokeSecurityGroupEgress(
	in *sdk.RevokeSecurityGroupEgressInput,
) (*sdk.RevokeSecurityGroupEgressOutput, error) {
	g, err := s.st.findSecurityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}

	ps := legacyPermissions(in.CidrIp, in.IpProtocol, in.FromPort, in.ToPort, in.IpPermissions)
	err = s.revokeRules(g, in.SecurityGroupRuleIds, expandPermissions(g.GroupId, true, ps), "egress")

	return &sdk.RevokeSecurityGroupEgressOutput{Return: new(true)}, err
}

// findPeerGroup returns the security group that a rule of g names: of the same VPC, and of the account if the rule names one.
func (st *serviceState) findPeerGroup(g *sdk.SecurityGroup, named *sdk.ReferencedSecurityGroup) (*sdk.SecurityGroup, error) {
	peer := st.Groups[str(named.GroupId)]

	switch {
	case peer == nil, str(named.UserId) != "" && str(named.UserId) != str(peer.OwnerId):
		return nil, newErrorf(
			codeInvalidGroupNotFound,
			"The security group '%s' does not exist",
			str(named.GroupId),
		)

	case str(peer.VpcId) != str(g.VpcId):
		return nil, newErrorf(
			codeInvalidGroupNotFound,
			"You have specified two resources that belong to different networks.",
		)
	}

	return peer, nil
}
