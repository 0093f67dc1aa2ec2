// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func port(n int32, peer func(*types.IpPermission)) []types.IpPermission {
	p := types.IpPermission{IpProtocol: aws.String("tcp"), FromPort: &n, ToPort: &n}
	peer(&p)
	return []types.IpPermission{p}
}

func fromCIDR(c string) func(*types.IpPermission) {
	return func(p *types.IpPermission) { p.IpRanges = []types.IpRange{{CidrIp: &c}} }
}

func fromGroup(g string) func(*types.IpPermission) {
	return func(p *types.IpPermission) { p.UserIdGroupPairs = []types.UserIdGroupPair{{GroupId: &g}} }
}

func (r region) group(t *testing.T, vpc, name string) string {
	t.Helper()
	return *must[*client.CreateSecurityGroupOutput](t)(r.CreateSecurityGroup(t.Context(), &client.CreateSecurityGroupInput{
		GroupName: &name, Description: &name, VpcId: &vpc,
	})).GroupId
}

func TestGroupRules(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	vpc, _ := r.createVPCWithSubnet(t)
	a, b := r.group(t, vpc, "a"), r.group(t, vpc, "b")
	allow := func(group string, ps []types.IpPermission) (*client.AuthorizeSecurityGroupIngressOutput, error) {
		return r.AuthorizeSecurityGroupIngress(ctx, &client.AuthorizeSecurityGroupIngressInput{
			GroupId: &group, IpPermissions: ps, TagSpecifications: tags("security-group-rule", "why", "test"),
		})
	}
	made := must[*client.AuthorizeSecurityGroupIngressOutput](t)(allow(a, port(443, fromCIDR("0.0.0.0/0"))))
	if len(made.SecurityGroupRules) != 1 || len(made.SecurityGroupRules[0].Tags) != 1 {
		t.Fatalf("created %+v, want one tagged rule", made.SecurityGroupRules)
	}
	id := *made.SecurityGroupRules[0].SecurityGroupRuleId
	if _, err := allow(a, port(443, fromCIDR("0.0.0.0/0"))); code(err) != "InvalidPermission.Duplicate" {
		t.Errorf("authorize the same rule again: %v", err)
	}
	must[*client.AuthorizeSecurityGroupIngressOutput](t)(allow(a, port(6443, fromGroup(b))))
	if _, err := r.DeleteSecurityGroup(ctx, &client.DeleteSecurityGroupInput{GroupId: &b}); code(err) != "DependencyViolation" {
		t.Errorf("delete a group that a rule names: %v", err)
	}
	must[*client.ModifySecurityGroupRulesOutput](t)(r.ModifySecurityGroupRules(ctx, &client.ModifySecurityGroupRulesInput{
		GroupId: &a, SecurityGroupRules: []types.SecurityGroupRuleUpdate{{SecurityGroupRuleId: &id, SecurityGroupRule: &types.SecurityGroupRuleRequest{
			IpProtocol: aws.String("tcp"), FromPort: aws.Int32(443), ToPort: aws.Int32(443), CidrIpv4: aws.String("10.0.0.0/8"),
		}}},
	}))
	rules := must[*client.DescribeSecurityGroupRulesOutput](t)(r.DescribeSecurityGroupRules(ctx, &client.DescribeSecurityGroupRulesInput{
		Filters: []types.Filter{{Name: aws.String("group-id"), Values: []string{a}}, {Name: aws.String("tag:why"), Values: []string{"test"}}},
	}))
	if len(rules.SecurityGroupRules) != 2 {
		t.Errorf("%d tagged rules, want 2", len(rules.SecurityGroupRules))
	}
	if _, err := r.RevokeSecurityGroupIngress(ctx, &client.RevokeSecurityGroupIngressInput{GroupId: &a, IpPermissions: port(443, fromCIDR("0.0.0.0/0"))}); code(err) != "InvalidPermission.NotFound" {
		t.Errorf("revoke a rule as it was before it was modified: %v", err)
	}
	must[*client.RevokeSecurityGroupIngressOutput](t)(r.RevokeSecurityGroupIngress(ctx, &client.RevokeSecurityGroupIngressInput{GroupId: &a, SecurityGroupRuleIds: []string{id}}))
	groups := must[*client.DescribeSecurityGroupsOutput](t)(r.DescribeSecurityGroups(ctx, &client.DescribeSecurityGroupsInput{GroupIds: []string{a}}))
	if g := groups.SecurityGroups[0]; len(g.IpPermissions) != 1 || len(g.IpPermissionsEgress) != 1 {
		t.Errorf("ingress %+v, egress %+v; want one rule each", g.IpPermissions, g.IpPermissionsEgress)
	}
	for name, c := range map[string]struct {
		ps   []types.IpPermission
		want string
	}{
		"range upside down": {[]types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(2), ToPort: aws.Int32(1), IpRanges: []types.IpRange{{CidrIp: aws.String("10.0.0.0/8")}}}}, "InvalidParameterValue"},
		"no peer":           {port(1, func(*types.IpPermission) {}), "MissingParameter"},
		"unknown group":     {port(1, fromGroup("sg-00000000000000000")), "InvalidGroup.NotFound"},
		"bad range":         {port(1, fromCIDR("10.0.0.0/40")), "InvalidParameterValue"},
		"odd protocol":      {[]types.IpPermission{{IpProtocol: aws.String("smoke"), IpRanges: []types.IpRange{{CidrIp: aws.String("10.0.0.0/8")}}}}, "InvalidPermission.Malformed"},
	} {
		if _, err := allow(a, c.ps); code(err) != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestModifyRuleIsRefused: what EC2 refuses when rules are modified and listed, with its words.
func TestModifyRuleIsRefused(t *testing.T) {
	r := newRegion(t)
	vpc, _ := r.createVPCWithSubnet(t)
	group := r.group(t, vpc, "a")
	made := must[*client.AuthorizeSecurityGroupIngressOutput](t)(r.AuthorizeSecurityGroupIngress(t.Context(), &client.AuthorizeSecurityGroupIngressInput{
		GroupId: &group, IpPermissions: []types.IpPermission{{
			IpProtocol: aws.String("tcp"), FromPort: aws.Int32(1), ToPort: aws.Int32(1), IpRanges: []types.IpRange{{CidrIp: aws.String("10.0.0.0/8")}},
		}},
	}))
	id := made.SecurityGroupRules[0].SecurityGroupRuleId
	for want, rule := range map[string]types.SecurityGroupRuleRequest{
		"Invalid value 'null' for protocol. VPC security group rules must specify protocols explicitly.": {CidrIpv4: aws.String("10.0.0.0/8")},
		"Invalid value for portRange. Must specify both from and to ports with TCP/UDP.":                 {IpProtocol: aws.String("tcp"), CidrIpv4: aws.String("10.0.0.0/8")},
		"You may not specify CidrIpv6 for an existing IPv4 CIDR rule.":                                   {IpProtocol: aws.String("tcp"), FromPort: aws.Int32(1), ToPort: aws.Int32(1), CidrIpv6: aws.String("fd00::/8")},
	} {
		_, err := r.ModifySecurityGroupRules(t.Context(), &client.ModifySecurityGroupRulesInput{
			GroupId: &group, SecurityGroupRules: []types.SecurityGroupRuleUpdate{{SecurityGroupRuleId: id, SecurityGroupRule: &rule}},
		})
		if code(err) != "InvalidParameterValue" || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}

	_, err := r.DescribeSecurityGroupRules(t.Context(), &client.DescribeSecurityGroupRulesInput{
		Filters: []types.Filter{{Name: aws.String("group-id"), Values: []string{"foobar"}}},
	})
	if code(err) != "InvalidGroupId.Malformed" {
		t.Errorf("list the rules of a malformed group: %v", err)
	}
}

func TestGroupNames(t *testing.T) {
	r := newRegion(t)
	vpc, _ := r.createVPCWithSubnet(t)
	r.group(t, vpc, "a")
	for name, want := range map[string]string{"a": "InvalidGroup.Duplicate", "default": "InvalidParameterValue", "sg-1": "InvalidParameterValue", "ü": "InvalidParameterValue"} {
		_, err := r.CreateSecurityGroup(t.Context(), &client.CreateSecurityGroupInput{GroupName: &name, Description: aws.String("d"), VpcId: &vpc})
		if code(err) != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}
