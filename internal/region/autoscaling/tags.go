// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// tagResourceType is the one type of resource with tags.
const tagResourceType = "auto-scaling-group"

func (s *Service) tagOps() []wire.Op {
	return []wire.Op{
		record.WriteOperation(s.store, "CreateOrUpdateTags", s.createOrUpdateTags),
		record.WriteOperation(s.store, "DeleteTags", s.deleteTags),
		record.ReadOperation(s.store, "DescribeTags", s.describeTags),
	}
}

func checkTags(tags []*sdk.Tag) error {
	for _, t := range tags {
		k := record.String(t.Key)
		switch {
		case k == "" || len(k) > 128 || len(record.String(t.Value)) > 256:
			return validationError("The tag key '%s' or its value is empty or too long", k)
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return validationError("Tag keys beginning with aws: are reserved: '%s'", k)
		}
	}

	if len(tags) > 50 {
		return wire.Errorf("LimitExceeded", "At most 50 tags are allowed")
	}

	return nil
}

func (g *group) setTags(tags []*sdk.Tag) {
	for _, t := range tags {
		g.Tags[record.String(t.Key)] = groupTag{
			record.String(t.Value),
			t.PropagateAtLaunch != nil && *t.PropagateAtLaunch,
		}
	}
}

func (g *group) tagDescriptions() []*sdk.TagDescription {
	out := []*sdk.TagDescription{}
	for _, k := range record.SortedKeys(g.Tags) {
		out = append(out, &sdk.TagDescription{
			Key:               new(k),
			Value:             new(g.Tags[k].Value),
			PropagateAtLaunch: new(g.Tags[k].Propagate),
			ResourceId:        g.Shape.AutoScalingGroupName,
			ResourceType:      new(tagResourceType),
		})
	}

	return out
}

func (s *Service) checkTagResources(tags []*sdk.Tag) error {
	for _, t := range tags {
		if record.String(t.ResourceType) != tagResourceType {
			return validationError(
				"Tag resource type '%s' must be %s",
				record.String(t.ResourceType),
				tagResourceType,
			)
		}

		if _, err := s.findGroup(t.ResourceId); err != nil {
			return err
		}
	}

	return nil
}

func (s *Service) createOrUpdateTags(in *sdk.CreateOrUpdateTagsInput) (*sdk.CreateOrUpdateTagsOutput, error) {
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}

	if err := s.checkTagResources(in.Tags); err != nil {
		return nil, err
	}

	for _, t := range in.Tags {
		s.st.Groups[*t.ResourceId].setTags([]*sdk.Tag{t})
	}

	return &sdk.CreateOrUpdateTagsOutput{}, nil
}

func (s *Service) deleteTags(in *sdk.DeleteTagsInput) (*sdk.DeleteTagsOutput, error) {
	if err := s.checkTagResources(in.Tags); err != nil {
		return nil, err
	}

	for _, t := range in.Tags {
		delete(s.st.Groups[*t.ResourceId].Tags, record.String(t.Key))
	}

	return &sdk.DeleteTagsOutput{}, nil
}

func (s *Service) describeTags(in *sdk.DescribeTagsInput) (*sdk.DescribeTagsOutput, error) {
	all := map[string]*sdk.TagDescription{}
	for _, name := range record.SortedKeys(s.st.Groups) {
		for _, t := range s.st.Groups[name].tagDescriptions() {
			all[name+"\x00"+record.String(t.Key)] = t
		}
	}

	keys := record.SortedKeys(all)

	for _, f := range in.Filters {
		name := record.String(f.Name)
		wanted := record.Strings(f.Values)
		if !slices.Contains([]string{tagResourceType, "key", "value", "propagate-at-launch"}, name) {
			return nil, validationError("Filter type %s is not correct", name)
		}

		keys = slices.DeleteFunc(keys, func(k string) bool {
			t := all[k]
			propagate := "false"
			if *t.PropagateAtLaunch {
				propagate = "true"
			}

			have := map[string]string{tagResourceType: *t.ResourceId, "key": *t.Key, "value": *t.Value, "propagate-at-launch": propagate}[name]

			return !slices.Contains(wanted, have)
		})
	}

	keys, next, err := paginateKeys(keys, in.MaxRecords, in.NextToken)
	out := &sdk.DescribeTagsOutput{NextToken: next, Tags: []*sdk.TagDescription{}}
	for _, k := range keys {
		out.Tags = append(out.Tags, all[k])
	}

	return out, err
}
