// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"fmt"
	"maps"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) tagOps() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "AddTags", s.addTags),
		state.WriteOperation(s.store, "RemoveTags", s.removeTags),
		state.ReadOperation(s.store, "DescribeTags", s.describeTags),
	}
}

// maxTaggedResources is the maximum number of resources in one call.
const maxTaggedResources = 20

// parseTags checks tags and returns them as a map.
func parseTags(tags []*sdk.Tag) (map[string]string, error) {
	out := map[string]string{}
	for i, t := range tags {
		k := sdkshape.String(t.Key)
		if err := checkTagText(t, i); err != nil {
			return nil, err
		}

		switch _, twice := out[k]; {
		case k == "" || len(k) > 128 || len(sdkshape.String(t.Value)) > 256:
			return nil, newValidationError("The tag key '%s' or its value is empty or too long", k)
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return nil, newValidationError("The tag key '%s' begins with aws:, which is reserved", k)
		case twice:
			return nil, newErrorf(codeDuplicateTagKeys, "The tag key '%s' is given twice", k)
		}

		out[k] = sdkshape.String(t.Value)
	}

	if len(out) > 50 {
		return nil, newErrorf(codeTooManyTags, "At most 50 tags are allowed")
	}

	return out, nil
}

// checkTagText refuses the tag number i of a request, counted from 0, if it has characters that the service does not allow.
func checkTagText(t *sdk.Tag, i int) error {
	const pattern = "^(%s*)$"
	at := fmt.Sprintf("tags.%d.member.", i+1)
	if k := sdkshape.String(t.Key); !wire.IsTagText(k) {
		return newValidationError("%s", wire.TagTextMessage(k, at+"key", pattern))
	}

	if v := sdkshape.String(t.Value); !wire.IsTagText(v) {
		return newValidationError("%s", wire.TagTextMessage(v, at+"value", pattern))
	}

	return nil
}

func (s *Service) setTags(arn string, tags map[string]string) {
	if s.st.Tags[arn] == nil {
		s.st.Tags[arn] = map[string]string{}
	}

	maps.Copy(s.st.Tags[arn], tags)
}

// checkResourcesExist checks that all resources exist, and that there are at most maxTaggedResources.
func (s *Service) checkResourcesExist(arns []string) error {
	if len(arns) == 0 || len(arns) > maxTaggedResources {
		return newValidationError(
			"1 to %d resource ARNs must be specified, not %d",
			maxTaggedResources,
			len(arns),
		)
	}

	for _, arn := range arns {
		var err error
		switch {
		case strings.Contains(arn, ":loadbalancer/"):
			_, err = s.findLoadBalancer(&arn)
		case strings.Contains(arn, ":targetgroup/"):
			_, err = s.findTargetGroup(&arn)
		case strings.Contains(arn, ":listener/"):
			_, err = s.findListener(&arn)
		default:
			err = newValidationError("'%s' is not a valid load balancer ARN", arn)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (s *Service) addTags(in *sdk.AddTagsInput) (*sdk.AddTagsOutput, error) {
	tags, err := parseTags(in.Tags)
	if err != nil {
		return nil, err
	}

	if err := s.checkResourcesExist(sdkshape.Strings(in.ResourceArns)); err != nil {
		return nil, err
	}

	for _, arn := range sdkshape.Strings(in.ResourceArns) {
		s.setTags(arn, tags)
	}

	return &sdk.AddTagsOutput{}, nil
}

func (s *Service) removeTags(in *sdk.RemoveTagsInput) (*sdk.RemoveTagsOutput, error) {
	if err := s.checkResourcesExist(sdkshape.Strings(in.ResourceArns)); err != nil {
		return nil, err
	}

	for _, arn := range sdkshape.Strings(in.ResourceArns) {
		for _, k := range sdkshape.Strings(in.TagKeys) {
			delete(s.st.Tags[arn], k)
		}
	}

	return &sdk.RemoveTagsOutput{}, nil
}

func (s *Service) describeTags(in *sdk.DescribeTagsInput) (*sdk.DescribeTagsOutput, error) {
	if err := s.checkResourcesExist(sdkshape.Strings(in.ResourceArns)); err != nil {
		return nil, err
	}

	out := &sdk.DescribeTagsOutput{}
	for _, arn := range sdkshape.Strings(in.ResourceArns) {
		d := &sdk.TagDescription{ResourceArn: new(arn), Tags: []*sdk.Tag{}}
		for _, k := range sdkshape.SortedKeys(s.st.Tags[arn]) {
			d.Tags = append(d.Tags, &sdk.Tag{Key: new(k), Value: new(s.st.Tags[arn][k])})
		}

		out.TagDescriptions = append(out.TagDescriptions, d)
	}

	return out, nil
}
