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
