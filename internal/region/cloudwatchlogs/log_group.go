// SPDX-License-Identifier: Apache-2.0

package cloudwatchlogs

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudwatchlogs"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The limits of CloudWatch Logs (CloudWatch Logs API reference, CreateLogGroup and DescribeLogGroups).
const (
	maxNameLength     = 512
	maxGroupsPerPage  = 50
	maxTags           = 50
	maxTagKeyLength   = 128
	maxTagValueLength = 256
)

// retentions are the numbers of days that PutRetentionPolicy takes.
func retentions() []int64 {
	return []int64{
		1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
	}
}

func (s *Service) createLogGroup(
	ctx context.Context,
	in *sdk.CreateLogGroupInput,
) (*sdk.CreateLogGroupOutput, error) {
	name := sdkshape.String(in.LogGroupName)
	if len(name) > maxNameLength || !regexp.MustCompile(`^[.\-_/#A-Za-z0-9]+$`).MatchString(name) ||
		strings.HasPrefix(name, "aws/") {
		return nil, newErrorf(
			codeInvalidParameter,
			"1 validation error detected: Value '%s' at 'logGroupName' failed to satisfy constraint: "+
				"Member must satisfy regular expression pattern: [\\.\\-_/#A-Za-z0-9]+",
			name,
		)
	}

	if class := sdkshape.String(in.LogGroupClass); class != "" && class != sdk.LogGroupClassStandard {
		return nil, wire.NotImplemented("logGroupClass " + class)
	}

	if s.st.Groups[name] != nil {
		return nil, newError(codeResourceAlreadyExists)
	}

	g := &logGroup{
		Created: s.cfg.Now().UTC(),
		Class:   sdk.LogGroupClassStandard,
		Tags:    map[string]string{},
		Streams: map[string]*logStream{},
	}
	if err := g.addTags(in.Tags); err != nil {
		return nil, err
	}

	maps.Copy(g.Tags, wire.SystemTags(ctx))

	s.st.Groups[name] = g

	return &sdk.CreateLogGroupOutput{}, nil
}

func (s *Service) deleteLogGroup(in *sdk.DeleteLogGroupInput) (*sdk.DeleteLogGroupOutput, error) {
	if _, err := s.findGroup(in.LogGroupName); err != nil {
		return nil, err
	}

	delete(s.st.Groups, *in.LogGroupName)

	return &sdk.DeleteLogGroupOutput{}, nil
}

func (s *Service) describeLogGroups(in *sdk.DescribeLogGroupsInput) (*sdk.DescribeLogGroupsOutput, error) {
	limit := int64(maxGroupsPerPage)
	if in.Limit != nil {
		limit = *in.Limit
	}

	if limit > maxGroupsPerPage {
		return nil, newErrorf(
			codeInvalidParameter,
			"1 validation error detected: Value '%d' at 'limit' failed to satisfy constraint: "+
				"Member must have value less than or equal to %d",
			limit,
			maxGroupsPerPage,
		)
	}

	if in.LogGroupNamePattern != nil && in.LogGroupNamePrefix != nil {
		return nil, newErrorf(
			codeInvalidParameter,
			"LogGroup name prefix and LogGroup name pattern are mutually exclusive parameters.",
		)
	}

	names := slices.DeleteFunc(sdkshape.SortedKeys(s.st.Groups), func(name string) bool {
		return !strings.HasPrefix(name, sdkshape.String(in.LogGroupNamePrefix)) ||
			!strings.Contains(strings.ToLower(name), strings.ToLower(sdkshape.String(in.LogGroupNamePattern)))
	})

	page, next, err := sdkshape.Paginate(
		names,
		limit,
		in.NextToken,
		newErrorf(codeInvalidParameter, "The specified nextToken is invalid."),
	)
	out := &sdk.DescribeLogGroupsOutput{LogGroups: []*sdk.LogGroup{}, NextToken: next}

	for _, name := range page {
		out.LogGroups = append(out.LogGroups, s.toLogGroup(name))
	}

	return out, err
}

// toLogGroup describes a group for a response.
func (s *Service) toLogGroup(name string) *sdk.LogGroup {
	g := s.st.Groups[name]
	arn := s.groupARN(name)
	out := &sdk.LogGroup{
		Arn:               new(arn + ":*"),
		LogGroupArn:       &arn,
		LogGroupName:      &name,
		LogGroupClass:     &g.Class,
		CreationTime:      new(g.Created.UnixMilli()),
		MetricFilterCount: new(int64(0)),
		StoredBytes:       new(int64(0)), // AWS counts them hours later
	}
	if g.Retention != 0 {
		out.RetentionInDays = &g.Retention
	}

	return out
}

func (s *Service) putRetentionPolicy(in *sdk.PutRetentionPolicyInput) (*sdk.PutRetentionPolicyOutput, error) {
	g, err := s.findGroup(in.LogGroupName)
	if err != nil {
		return nil, err
	}

	if !slices.Contains(retentions(), *in.RetentionInDays) {
		return nil, newErrorf(
			codeInvalidParameter,
			"1 validation error detected: Value '%d' at 'retentionInDays' failed to satisfy constraint: "+
				"Member must satisfy enum value set: [1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, "+
				"731, 1096, 1827, 2192, 2557, 2922, 3288, 3653]",
			*in.RetentionInDays,
		)
	}

	g.Retention = *in.RetentionInDays
	s.keepRecent(g)

	return &sdk.PutRetentionPolicyOutput{}, nil
}

func (s *Service) deleteRetentionPolicy(
	in *sdk.DeleteRetentionPolicyInput,
) (*sdk.DeleteRetentionPolicyOutput, error) {
	g, err := s.findGroup(in.LogGroupName)
	if err != nil {
		return nil, err
	}

	g.Retention = 0

	return &sdk.DeleteRetentionPolicyOutput{}, nil
}

// addTags adds the tags of a request, or refuses all of them.
func (g *logGroup) addTags(tags map[string]*string) error {
	count := len(g.Tags)

	for k, v := range tags {
		value := sdkshape.String(v)
		if k == "" || len([]rune(k)) > maxTagKeyLength || len([]rune(value)) > maxTagValueLength ||
			strings.HasPrefix(strings.ToLower(k), "aws:") || !wire.IsTagText(k) || !wire.IsTagText(value) {
			return newErrorf(
				codeInvalidParameter,
				"The tag '%s' is not valid: a key has 1 to %d characters and does not begin with aws:, "+
					"a value has up to %d characters",
				k,
				maxTagKeyLength,
				maxTagValueLength,
			)
		}

		if _, replaced := g.Tags[k]; !replaced {
			count++
		}
	}

	if count > maxTags {
		return newErrorf(codeTooManyTags, "A resource can have no more than %d tags.", maxTags)
	}

	for k, v := range tags {
		g.Tags[k] = sdkshape.String(v)
	}

	return nil
}

func (s *Service) tagResource(in *sdk.TagResourceInput) (*sdk.TagResourceOutput, error) {
	g, err := s.findByARN(in.ResourceArn)
	if err != nil {
		return nil, err
	}

	return &sdk.TagResourceOutput{}, g.addTags(in.Tags)
}

func (s *Service) untagResource(in *sdk.UntagResourceInput) (*sdk.UntagResourceOutput, error) {
	g, err := s.findByARN(in.ResourceArn)
	if err != nil {
		return nil, err
	}

	for _, k := range in.TagKeys {
		delete(g.Tags, sdkshape.String(k))
	}

	return &sdk.UntagResourceOutput{}, nil
}

func (s *Service) listTagsForResource(
	in *sdk.ListTagsForResourceInput,
) (*sdk.ListTagsForResourceOutput, error) {
	g, err := s.findByARN(in.ResourceArn)
	if err != nil {
		return nil, err
	}

	out := &sdk.ListTagsForResourceOutput{Tags: map[string]*string{}}
	for k, v := range g.Tags {
		out.Tags[k] = &v
	}

	return out, nil
}
