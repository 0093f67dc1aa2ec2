// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestUnlistedIDsAreFew: the error of a large cluster was a list of hundreds of ids.
func TestUnlistedIDsAreFew(t *testing.T) {
	unlisted := map[unlistedResource]bool{}
	for n := range 12 {
		unlisted[unlistedResource{"subnet", fmt.Sprintf("subnet-%02d", n)}] = true
	}
	want := "subnet-00, subnet-01, subnet-02, subnet-03, subnet-04, subnet-05, subnet-06, subnet-07, subnet-08, subnet-09, and 2 more"
	if got := joinUnlistedIDs(unlisted); got != want {
		t.Errorf("got %s", got)
	}
}

// fakeTags has the tags of resources, by their ids.
type fakeTags struct {
	tagged []string
	values []int // the filter values of each call
}

func (f *fakeTags) DescribeTags(
	_ context.Context, in *ec2.DescribeTagsInput, _ ...func(*ec2.Options),
) (*ec2.DescribeTagsOutput, error) {
	out := &ec2.DescribeTagsOutput{}
	values := 0
	for _, filter := range in.Filters {
		values += len(filter.Values)
		if *filter.Name != "resource-id" {
			continue
		}
		for _, id := range filter.Values {
			if slices.Contains(f.tagged, id) {
				out.Tags = append(out.Tags, ec2types.TagDescription{ResourceId: &id})
			}
		}
	}
	f.values = append(f.values, values)
	return out, nil
}

// TestOnlyCreatedResourcesAreListed: after an apply, all tags of a cluster with 20,000 machines were listed again and again.
// EC2 takes 200 filter values in a call.
func TestOnlyCreatedResourcesAreListed(t *testing.T) {
	var ids []string
	for n := range 400 {
		ids = append(ids, fmt.Sprintf("lt-%03d", n))
	}
	api := &fakeTags{tagged: []string{"lt-000", "lt-399", "i-of-a-group"}}
	got, err := listTaggedIDs(t.Context(), api, Scope{Cluster: "demo"}, ids)
	if err != nil || len(got) != 2 || !got["lt-000"] || !got["lt-399"] {
		t.Errorf("listed %v, %v", got, err)
	}
	const maxFilterValues = 200
	if len(api.values) != 3 || slices.Max(api.values) > maxFilterValues {
		t.Errorf("filter values of each call: %v", api.values)
	}
}
