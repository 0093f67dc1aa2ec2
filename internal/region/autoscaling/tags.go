// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// tagResourceType is the only type of resource with tags.
const tagResourceType = "auto-scaling-group"

func (s *Service) tagOps() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "CreateOrUpdateTags", s.createOrUpdateTags),
		state.WriteOperation(s.store, "DeleteTags", s.deleteTags),
		state.ReadOperation(s.store, "DescribeTags", s.describeTags),
	}
}

// checkTags refuses tags that Auto Scaling refuses.
func checkTags(tags []*sdk.Tag) error {
	for _, t := range tags {
		k := sdkshape.String(t.Key)
		switch {
		case k == "" || len(k) > 128 || len(sdkshape.String(t.Value)) > 256:
			return validationError("The tag key '%s' or its value is empty or too long", k)
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return validationError("Tag keys beginning with aws: are reserved: '%s'", k)
		}
	}

	if len(tags) > 50 {
		return newErrorf(codeLimitExceeded, "At most 50 tags are allowed")
	}

	return nil
}

func (g *group) setTags(tags []*sdk.Tag) {
	for _, t := range tags {
		g.Tags[sdkshape.String(t.Key)] = groupTag{
			sdkshape.String(t.Value),
			t.PropagateAtLaunch != nil && *t.PropagateAtLaunch,
		}
	}
}

func (g *group) tagDescriptions() []*sdk.TagDescription {
	out := []*sdk.TagDescription{}
	for _, k := range sdkshape.SortedKeys(g.Tags) {
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

// checkTagResources checks that tags belong to existing groups.
func (s *Service) checkTagResources(tags []*sdk.Tag) error {
	for _, t := range tags {
		if sdkshape.String(t.ResourceType) != tagResourceType {
			return validationError(
				"Tag resource type '%s' must be %s",
				sdkshape.String(t.ResourceType),
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
		delete(s.st.Groups[*t.ResourceId].Tags, sdkshape.String(t.Key))
	}

	return &sdk.DeleteTagsOutput{}, nil
}

func (s *Service) describeTags(in *sdk.DescribeTagsInput) (*sdk.DescribeTagsOutput, error) {
	all := map[string]*sdk.TagDescription{}
	for _, name := range sdkshape.SortedKeys(s.st.Groups) {
		for _, t := range s.st.Groups[name].tagDescriptions() {
			all[name+"\x00"+sdkshape.String(t.Key)] = t
		}
	}

	keys := sdkshape.SortedKeys(all)

	for _, f := range in.Filters {
		name := sdkshape.String(f.Name)
		wanted := sdkshape.Strings(f.Values)
		if !slices.Contains([]string{tagResourceType, "key", "value", "propagate-at-launch"}, name) {
			return nil, validationError("Filter type %s is not correct", name)
		}

		keys = slices.DeleteFunc(keys, func(k string) bool {
			t := all[k]
			propagate := "false"
			if *t.PropagateAtLaunch {
				propagate = "true"
			}

			have := map[string]string{
				tagResourceType:       *t.ResourceId,
				"key":                 *t.Key,
				"value":               *t.Value,
				"propagate-at-launch": propagate,
			}[name]

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
