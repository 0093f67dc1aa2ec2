// SPDX-License-Identifier: Apache-2.0

package sns

import (
	"maps"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/sns"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// The limits of tags (SNS API reference, Tag and TagResource).
const (
	maxTags           = 50
	maxTagKeyLength   = 128
	maxTagValueLength = 256
)

// addTags adds the tags of a request, or refuses all of them.
func (t *topic) addTags(tags []*sdk.Tag) error {
	after := maps.Clone(t.Tags)
	seen := map[string]bool{}

	for _, tag := range tags {
		k := sdkshape.String(tag.Key)
		v := sdkshape.String(tag.Value)

		switch {
		case seen[k]:
			return newError(codeInvalidParameter, "Invalid parameter: Duplicated keys are not allowed.")
		case k == "" || len([]rune(k)) > maxTagKeyLength || len([]rune(v)) > maxTagValueLength:
			return newErrorf(
				codeInvalidParameter,
				"Invalid parameter: Tags Reason: a key has 1 to %d characters, a value up to %d",
				maxTagKeyLength,
				maxTagValueLength,
			)

		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return newError(codeInvalidParameter, "Invalid parameter: Tags Reason: the prefix aws: is reserved")
		}

		seen[k] = true
		after[k] = v
	}

	if len(after) > maxTags {
		return newError(codeTagLimitExceeded, "Could not complete request: tag quota of per resource exceeded")
	}

	t.Tags = after

	return nil
}

// findTagged returns the topic of an ARN in an operation about tags, which has another error than
// others.
func (s *Service) findTagged(given *string) (*topic, error) {
	arn := sdkshape.String(given)
	if err := checkARN("ResourceArn", arn); err != nil {
		return nil, err
	}

	if t := s.st.Topics[strings.TrimPrefix(arn, s.topicARN(""))]; t != nil {
		return t, nil
	}

	return nil, newError(codeResourceNotFound, "Resource does not exist")
}

func (s *Service) tagResource(in *sdk.TagResourceInput) (*sdk.TagResourceOutput, error) {
	t, err := s.findTagged(in.ResourceArn)
	if err != nil {
		return nil, err
	}

	return &sdk.TagResourceOutput{}, t.addTags(in.Tags)
}

func (s *Service) untagResource(in *sdk.UntagResourceInput) (*sdk.UntagResourceOutput, error) {
	t, err := s.findTagged(in.ResourceArn)
	if err != nil {
		return nil, err
	}

	for _, k := range in.TagKeys {
		delete(t.Tags, sdkshape.String(k))
	}

	return &sdk.UntagResourceOutput{}, nil
}

func (s *Service) listTagsForResource(in *sdk.ListTagsForResourceInput) (*sdk.ListTagsForResourceOutput, error) {
	t, err := s.findTagged(in.ResourceArn)
	if err != nil {
		return nil, err
	}

	out := &sdk.ListTagsForResourceOutput{Tags: []*sdk.Tag{}}
	for _, k := range sdkshape.SortedKeys(t.Tags) {
		out.Tags = append(out.Tags, &sdk.Tag{Key: &k, Value: new(t.Tags[k])})
	}

	return out, nil
}
