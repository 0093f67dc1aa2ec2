// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func templateVersionFilterValues(v *sdk.LaunchTemplateVersion, name string) ([]string, bool) {
	d := v.LaunchTemplateData
	if d == nil {
		d = &sdk.ResponseLaunchTemplateData{}
	}

	switch name {
	case "image-id":
		return []string{str(d.ImageId)}, true
	case "instance-type":
		return []string{str(d.InstanceType)}, true
	case "is-default-version":
		return []string{boolText(v.DefaultVersion)}, true
	}

	return nil, false
}

// describeLaunchTemplateVersions shows versions of one template, or, without one, the latest or default versions of all.
func (s *Service) describeLaunchTemplateVersions(
	in *sdk.DescribeLaunchTemplateVersionsInput,
) (*sdk.DescribeLaunchTemplateVersionsOutput, error) {
	found, err := s.selectTemplateVersions(in)
	if err != nil {
		return nil, err
	}

	all := map[string]*sdk.LaunchTemplateVersion{}

	for _, v := range found {
		n := *v.VersionNumber
		inRange := func(text *string, ok func(bound int64) bool) bool {
			bound, err := strconv.ParseInt(str(text), 10, 64)
			return text == nil || err != nil || ok(bound)
		}
		if inRange(in.MinVersion, func(b int64) bool { return n >= b }) &&
			inRange(in.MaxVersion, func(b int64) bool { return n <= b }) {
			all[fmt.Sprintf("%s/%012d", str(v.LaunchTemplateId), 1_000_000_000_000-n-1)] = v // newest first, as at AWS
		}
	}

	got, next, err := listResources(
		s,
		all,
		describeQuery{nil, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.LaunchTemplateVersion]{filterValues: templateVersionFilterValues},
	)

	return &sdk.DescribeLaunchTemplateVersionsOutput{LaunchTemplateVersions: got, NextToken: next}, err
}

// findTemplateVersions are the wanted versions of a template; all of them where none is named.
func (s *Service) findTemplateVersions(
	t *sdk.LaunchTemplate,
	wanted []string,
) ([]*sdk.LaunchTemplateVersion, error) {
	if len(wanted) == 0 {
		return s.st.Versions[str(t.LaunchTemplateId)], nil
	}

	var out []*sdk.LaunchTemplateVersion
	for _, w := range wanted {
		v, err := s.findTemplateVersion(t, w)
		if err != nil {
			return nil, err
		}

		out = append(out, v)
	}

	return out, nil
}

func (s *Service) selectTemplateVersions(
	in *sdk.DescribeLaunchTemplateVersionsInput,
) ([]*sdk.LaunchTemplateVersion, error) {
	wanted := strs(in.Versions)
	if in.LaunchTemplateId != nil || in.LaunchTemplateName != nil {
		t, err := s.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
		if err != nil {
			return nil, err
		}

		return s.findTemplateVersions(t, wanted)
	}

	if len(wanted) == 0 ||
		slices.ContainsFunc(wanted, func(w string) bool { return w != "$Latest" && w != "$Default" }) {
		return nil, wire.Errorf(
			"MissingParameter",
			"Without a launch template, Versions must be $Latest, $Default or both",
		)
	}

	var out []*sdk.LaunchTemplateVersion

	for _, id := range sortedKeys(s.st.Templates) {
		for _, w := range wanted {
			if v, err := s.findTemplateVersion(s.st.Templates[id], w); err == nil {
				out = append(out, v)
			}
		}
	}

	return out, nil
}

// LaunchTemplateInfo name one version of a launch template.
type LaunchTemplateInfo struct {
	ID, Name     string
	Version      int64
	InstanceType string
}

// LaunchTemplateInfo finds a version of a launch template by the template's id or name; version may be $Latest or $Default.
func (s *Service) LaunchTemplateInfo(id, name, version string) (LaunchTemplateInfo, error) {
	var f LaunchTemplateInfo
	err := s.withLock(func() error {
		t, err := s.findLaunchTemplate(&id, &name)
		if err != nil {
			return err
		}

		v, err := s.findTemplateVersion(t, version)
		if err != nil {
			return err
		}

		f = LaunchTemplateInfo{
			str(t.LaunchTemplateId),
			str(t.LaunchTemplateName),
			*v.VersionNumber,
			str(v.LaunchTemplateData.InstanceType),
		}

		return nil
	})

	return f, err
}
