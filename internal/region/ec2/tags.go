// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// tagHandlers serves tags.
type tagHandlers struct{ *Service }

func (s tagHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateTags", s.createTags),
		writeOperation(s.Service, "DeleteTags", s.deleteTags),
		readOperation(s.Service, "DescribeTags", s.describeTags),
	}
}

// tagList returns the tags of a resource in the form of answers, sorted by key.
func (st *serviceState) tagList(id string) []*sdk.Tag {
	tags := st.Tags[id]
	out := make([]*sdk.Tag, 0, len(tags))
	for _, k := range sortedKeys(tags) {
		out = append(out, &sdk.Tag{Key: new(k), Value: new(tags[k])})
	}

	return out
}

// checkTags refuses tags that EC2 refuses.
func checkTags(tags []*sdk.Tag) error {
	seen := map[string]bool{}
	for _, t := range tags {
		key := str(t.Key)
		switch {
		case key == "":
			return newErrorf(
				codeInvalidParameterValue,
				"Tag keys must be between 1 and 128 characters long",
			)
		case len([]rune(key)) > 128, len([]rune(str(t.Value))) > 256:
			return newErrorf(codeInvalidParameterValue, "The tag %q is too long", key)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return newErrorf(
				codeInvalidParameterValue,
				"Tag keys starting with 'aws:' are reserved for internal use",
			)

		case seen[key]:
			return newErrorf(codeInvalidParameterValue, "Duplicate tag key '%s' specified.", key)
		}

		seen[key] = true
	}

	if len(tags) > 50 {
		return newErrorf(codeTagLimitExceeded, "More than 50 tags specified")
	}

	return nil
}

// parseTagSpecs returns the tags that a request puts on a new resource of the given type. It refuses types
// other than kind and others, as EC2 does for types that an operation does not create.
func parseTagSpecs(specs []*sdk.TagSpecification, kind string, others ...string) (map[string]string, error) {
	tags := map[string]string{}
	for _, spec := range specs {
		got := str(spec.ResourceType)
		if got != kind && !slices.Contains(others, got) {
			return nil, newErrorf(
				codeInvalidParameterValue,
				"'%s' is not a valid taggable resource type for this operation.",
				got,
			)
		}

		if len(spec.Tags) == 0 {
			return nil, newErrorf(
				codeInvalidParameterValue,
				"Tag specification must have at least one tag",
			)
		}

		if err := checkTags(spec.Tags); err != nil {
			return nil, err
		}

		if got != kind {
			continue
		}

		for _, t := range spec.Tags {
			tags[str(t.Key)] = str(t.Value)
		}
	}

	return tags, nil
}

// setTags adds tags to a resource and overwrites those with the same keys.
func (st *serviceState) setTags(id string, tags map[string]string) {
	if len(tags) == 0 {
		return
	}

	have := st.Tags[id]
	if have == nil {
		have = map[string]string{}
		st.Tags[id] = have
	}

	maps.Copy(have, tags)
}

// resourceExists reports whether id is that of an existing resource that can have tags.
func (s *Service) resourceExists(id string) bool {
	st := s.st
	has := map[string]func() bool{
		"vpc":      func() bool { return st.VPCs[id] != nil },
		"dopt":     func() bool { return st.DHCPOptions[id] != nil },
		"subnet":   func() bool { return st.Subnets[id] != nil },
		"igw":      func() bool { return st.Internet[id] != nil },
		"eipalloc": func() bool { return st.Addresses[id] != nil },
		"nat":      func() bool { return st.NATs[id] != nil },
		"rtb":      func() bool { return st.Tables[id] != nil },
		"sg":       func() bool { return st.Groups[id] != nil },
		"sgr":      func() bool { return st.Rules[id] != nil },
		"acl":      func() bool { return st.ACLs[id] != nil },
		"eni":      func() bool { return st.Interfaces[id] != nil },
		"vol":      func() bool { return st.Volumes[id] != nil },
		"snap":     func() bool { return st.Snapshots[id] != nil },
		"lt":       func() bool { return st.Templates[id] != nil },
		"i":        func() bool { return st.Instances[id] != nil },
		"key":      func() bool { return st.Keys[id] != nil },
		"pcx":      func() bool { return st.Peerings[id] != nil },
		"vpce":     func() bool { return st.Endpoints[id] != nil },
		"ami": func() bool {
			_, public := s.cfg.findImage(id)
			return public || st.OwnImages[id] != nil && !st.OwnImages[id].Deregistered
		},
	}[idPrefix(id)]

	return has != nil && has()
}

func (s tagHandlers) createTags(in *sdk.CreateTagsInput) (*sdk.CreateTagsOutput, error) {
	if len(in.Resources) == 0 || len(in.Tags) == 0 {
		return nil, missingParameter("resourceIdSet and tagSet")
	}

	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}

	for _, id := range strs(in.Resources) {
		if !s.resourceExists(id) {
			return nil, notFound(id)
		}

		all := len(s.st.Tags[id])
		for _, t := range in.Tags {
			if _, has := s.st.Tags[id][str(t.Key)]; !has {
				all++
			}
		}

		if all > 50 {
			return nil, newErrorf(
				codeTagLimitExceeded,
				"The maximum number of Tags for resource '%s' has been reached",
				id,
			)
		}
	}

	for _, id := range strs(in.Resources) {
		tags := map[string]string{}
		for _, t := range in.Tags {
			tags[str(t.Key)] = str(t.Value)
		}

		s.keepTags(id)
		s.st.setTags(id, tags)
	}

	return &sdk.CreateTagsOutput{}, nil
}

func (s tagHandlers) deleteTags(in *sdk.DeleteTagsInput) (*sdk.DeleteTagsOutput, error) {
	if len(in.Resources) == 0 {
		return nil, missingParameter("resourceIdSet")
	}

	for _, id := range strs(in.Resources) {
		if !s.resourceExists(id) {
			return nil, notFound(id)
		}
	}

	for _, id := range strs(in.Resources) {
		s.keepTags(id)
		if len(in.Tags) == 0 {
			delete(s.st.Tags, id)
		}

		for _, t := range in.Tags {
			if v, has := s.st.Tags[id][str(t.Key)]; has && (t.Value == nil || *t.Value == v) {
				delete(s.st.Tags[id], str(t.Key))
			}
		}
	}

	return &sdk.DeleteTagsOutput{}, nil
}

// describeTags selects the tags before it copies them: an account with 20,000 instances has a million.
func (s tagHandlers) describeTags(in *sdk.DescribeTagsInput) (*sdk.DescribeTagsOutput, error) {
	if err := checkFilterLimits(in.Filters); err != nil {
		return nil, err
	}

	filters, byTag := splitTagFilters(in.Filters)
	selected := map[string]*sdk.TagDescription{}
	for id, tags := range s.st.Tags {
		kind := resourceKind(id)
		for k, v := range tags {
			t := sdk.TagDescription{ResourceId: &id, ResourceType: &kind, Key: &k, Value: &v}
			if matchesTagFilters(k, v, byTag) && matchesFilters(nil, &t, filters, tagDescriptionFilterValues) {
				selected[id+" "+k] = &t
			}
		}
	}

	got, next, err := listResources(
		s.Service,
		selected,
		describeQuery{filters: filters, maxResults: in.MaxResults, nextToken: in.NextToken},
		resourceLister[sdk.TagDescription]{filterValues: tagDescriptionFilterValues},
	)

	return &sdk.DescribeTagsOutput{Tags: s.withoutUnseen(got), NextToken: next}, err
}

// tagDescriptionFilterValues returns the values that a filter of DescribeTags looks at.
func tagDescriptionFilterValues(t *sdk.TagDescription, name string) ([]string, bool) {
	switch name {
	case "key":
		return []string{str(t.Key)}, true
	case "value":
		return []string{str(t.Value)}, true
	case "resource-id":
		return []string{str(t.ResourceId)}, true
	case "resource-type":
		return []string{str(t.ResourceType)}, true
	}

	return nil, false
}

// splitTagFilters separates the filters "tag:KEY" from the others. DescribeTags applies such a filter to the tag itself,
// not to all tags of its resource.
func splitTagFilters(filters []*sdk.Filter) (others, byTag []*sdk.Filter) {
	for _, f := range filters {
		if strings.HasPrefix(str(f.Name), "tag:") {
			byTag = append(byTag, f)
		} else {
			others = append(others, f)
		}
	}

	return others, byTag
}

// matchesTagFilters reports whether a tag matches all filters "tag:KEY".
func matchesTagFilters(key, value string, byTag []*sdk.Filter) bool {
	for _, f := range byTag {
		if key != strings.TrimPrefix(str(f.Name), "tag:") || !anyMatch([]string{value}, strs(f.Values)) {
			return false
		}
	}

	return true
}

// withoutUnseen returns tags without those of resources that this call comes too early to see. The caller holds
// the lock.
func (s *Service) withoutUnseen(tags []*sdk.TagDescription) []*sdk.TagDescription {
	unseen := map[string]bool{}

	return slices.DeleteFunc(tags, func(t *sdk.TagDescription) bool {
		id := str(t.ResourceId)
		if _, asked := unseen[id]; !asked {
			unseen[id] = s.isUnseen(id)
		}

		return unseen[id] || !s.matchesSeenTags(id, func(tags map[string]string) bool {
			value, has := tags[str(t.Key)]
			return has && value == str(t.Value)
		})
	})
}

// removeTags removes all tags of a resource.
func (st *serviceState) removeTags(id string) { delete(st.Tags, id) }
