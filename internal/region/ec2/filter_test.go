// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

// TestFilterLimits: EC2 takes 200 filter values in a call, of all filters together, and 255 characters in each.
func TestFilterLimits(t *testing.T) {
	api := newRegion(t).Client
	filter := func(name string, values int, value string) types.Filter {
		f := types.Filter{Name: &name}
		for range values {
			f.Values = append(f.Values, value)
		}
		return f
	}
	calls := map[string]func(...types.Filter) error{
		"DescribeInstances": func(f ...types.Filter) error {
			_, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: f})
			return err
		},
		"DescribeTags": func(f ...types.Filter) error {
			_, err := api.DescribeTags(t.Context(), &ec2.DescribeTagsInput{Filters: f})
			return err
		},
	}
	for name, call := range calls {
		got := []string{
			code(call(filter("tag:Name", 199, "a"), filter("tag:Group", 1, "b"))),
			code(call(filter("tag:Name", 199, "a"), filter("tag:Group", 2, "b"))),
			code(call(filter("tag:Name", 1, strings.Repeat("a", 255)))),
			code(call(filter("tag:Name", 1, strings.Repeat("a", 256)))),
		}
		if diff := cmp.Diff([]string{"", "FilterLimitExceeded", "", "FilterLimitExceeded"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFiltersOfRules: groups are found by the fields of their rules, of each direction by itself.
func TestFiltersOfRules(t *testing.T) {
	r := newRegion(t)
	vpc, _ := r.createVPCWithSubnet(t)
	a, b := r.group(t, vpc, "a"), r.group(t, vpc, "b")
	for _, p := range [][]types.IpPermission{port(443, fromCIDR("10.1.0.0/16")), port(6443, fromGroup(b))} {
		must[*ec2.AuthorizeSecurityGroupIngressOutput](t)(r.AuthorizeSecurityGroupIngress(t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &a, IpPermissions: p}))
	}
	for _, c := range []struct {
		filter, value string
		want          []string
	}{
		{"ip-permission.cidr", "10.1.0.0/16", []string{a}},
		{"ip-permission.from-port", "443", []string{a}},
		{"ip-permission.to-port", "6443", []string{a}},
		{"ip-permission.protocol", "tcp", []string{a}},
		{"ip-permission.group-id", b, []string{a}},
		{"ip-permission.group-name", "b", []string{a}},
		{"ip-permission.ipv6-cidr", "*", nil},
		{"ip-permission.prefix-list-id", "*", nil},
		{"egress.ip-permission.from-port", "443", nil},
	} {
		out := must[*ec2.DescribeSecurityGroupsOutput](t)(r.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{
			Filters: []types.Filter{{Name: &c.filter, Values: []string{c.value}}, {Name: new("vpc-id"), Values: []string{vpc}}},
		}))
		var got []string
		for _, g := range out.SecurityGroups {
			got = append(got, *g.GroupId)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s=%s (-want +got):\n%s", c.filter, c.value, diff)
		}
	}
}
