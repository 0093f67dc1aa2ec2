// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// resourceType is the one type of resource with tags.
const resourceType = "auto-scaling-group"

func (s *Service) tagOps() []wire.Op {
	return []wire.Op{
		record.Write(s.book, "CreateOrUpdateTags", s.createTags),
		record.Write(s.book, "DeleteTags", s.deleteTags),
		record.Read(s.book, "DescribeTags", s.describeTags),
	}
}

func checkTags(tags []*sdk.Tag) error {
	for _, t := range tags {
		k := record.Str(t.Key)
		switch {
		case k == "" || len(k) > 128 || len(record.Str(t.Value)) > 256:
			return validation("The tag key '%s' or its value is empty or too long", k)
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return validation("Tag keys beginning with aws: are reserved: '%s'", k)
		}
	}
	if len(tags) > 50 {
		return wire.Errorf("LimitExceeded", "At most 50 tags are allowed")
	}
	return nil
}

func (g *group) setTags(tags []*sdk.Tag) {
	for _, t := range tags {
		g.Tags[record.Str(t.Key)] = tag{record.Str(t.Value), t.PropagateAtLaunch != nil && *t.PropagateAtLaunch}
	}
}

func (g *group) showTags() []*sdk.TagDescription {
	out := []*sdk.TagDescription{}
	for _, k := range record.Keys(g.Tags) {
		out = append(out, &sdk.TagDescription{
			Key: new(k), Value: new(g.Tags[k].Value), PropagateAtLaunch: new(g.Tags[k].Propagate),
			ResourceId: g.Shape.AutoScalingGroupName, ResourceType: new(resourceType),
		})
	}
	return out
}

func (s *Service) tagged(tags []*sdk.Tag) error {
	for _, t := range tags {
		if record.Str(t.ResourceType) != resourceType {
			return validation("Tag resource type '%s' must be %s", record.Str(t.ResourceType), resourceType)
		}
		if _, err := s.group(t.ResourceId); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) createTags(in *sdk.CreateOrUpdateTagsInput) (*sdk.CreateOrUpdateTagsOutput, error) {
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}
	if err := s.tagged(in.Tags); err != nil {
		return nil, err
	}
	for _, t := range in.Tags {
		s.st.Groups[*t.ResourceId].setTags([]*sdk.Tag{t})
	}
	return &sdk.CreateOrUpdateTagsOutput{}, nil
}

func (s *Service) deleteTags(in *sdk.DeleteTagsInput) (*sdk.DeleteTagsOutput, error) {
	if err := s.tagged(in.Tags); err != nil {
		return nil, err
	}
	for _, t := range in.Tags {
		delete(s.st.Groups[*t.ResourceId].Tags, record.Str(t.Key))
	}
	return &sdk.DeleteTagsOutput{}, nil
}

func (s *Service) describeTags(in *sdk.DescribeTagsInput) (*sdk.DescribeTagsOutput, error) {
	all := map[string]*sdk.TagDescription{}
	for _, name := range record.Keys(s.st.Groups) {
		for _, t := range s.st.Groups[name].showTags() {
			all[name+"\x00"+record.Str(t.Key)] = t
		}
	}
	keys := record.Keys(all)
	for _, f := range in.Filters {
		name, wanted := record.Str(f.Name), record.Strs(f.Values)
		if !slices.Contains([]string{resourceType, "key", "value", "propagate-at-launch"}, name) {
			return nil, validation("Filter type %s is not correct", name)
		}
		keys = slices.DeleteFunc(keys, func(k string) bool {
			t, propagate := all[k], "false"
			if *t.PropagateAtLaunch {
				propagate = "true"
			}
			have := map[string]string{resourceType: *t.ResourceId, "key": *t.Key, "value": *t.Value, "propagate-at-launch": propagate}[name]
			return !slices.Contains(wanted, have)
		})
	}
	keys, next, err := page(keys, in.MaxRecords, in.NextToken)
	out := &sdk.DescribeTagsOutput{NextToken: next, Tags: []*sdk.TagDescription{}}
	for _, k := range keys {
		out.Tags = append(out.Tags, all[k])
	}
	return out, err
}
