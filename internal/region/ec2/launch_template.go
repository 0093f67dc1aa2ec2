// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"regexp"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// launchTemplateHandlers serves launch templates and their versions.
type launchTemplateHandlers struct{ *Service }

func (s launchTemplateHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateLaunchTemplate", s.createLaunchTemplate),
		writeOperation(s.Service, "CreateLaunchTemplateVersion", s.createLaunchTemplateVersion),
		writeOperation(s.Service, "ModifyLaunchTemplate", s.modifyLaunchTemplate),
		writeOperation(s.Service, "DeleteLaunchTemplate", s.deleteLaunchTemplate),
		writeOperation(s.Service, "DeleteLaunchTemplateVersions", s.deleteLaunchTemplateVersions),
		readOperation(s.Service, "DescribeLaunchTemplates", s.describeLaunchTemplates),
		readOperation(s.Service, "DescribeLaunchTemplateVersions", s.describeLaunchTemplateVersions),
	}
}

func (s launchTemplateHandlers) createLaunchTemplate(
	in *sdk.CreateLaunchTemplateInput,
) (*sdk.CreateLaunchTemplateOutput, error) {
	request := tokenRequest{"CreateLaunchTemplate", in.ClientToken, in}
	answer := func(t *sdk.LaunchTemplate) *sdk.CreateLaunchTemplateOutput {
		return &sdk.CreateLaunchTemplateOutput{LaunchTemplate: t}
	}

	if out, err := repeatedAnswer(s.Service, request, s.st.Templates, answer); out != nil || err != nil {
		return out, err
	}

	name := str(in.LaunchTemplateName)
	if err := s.checkNewTemplate(name); err != nil {
		return nil, err
	}

	if err := checkVersionDescription(in.VersionDescription); err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "launch-template")
	if err != nil {
		return nil, err
	}

	data, err := s.resolveTemplateData(in.LaunchTemplateData, nil)
	if err != nil {
		return nil, err
	}

	id := s.newID("lt")
	s.unseen.Track(id, templatePrefix+name) // one delay for both
	t := &sdk.LaunchTemplate{
		LaunchTemplateId:     new(id),
		LaunchTemplateName:   new(name),
		CreateTime:           new(s.cfg.Now().UTC()),
		CreatedBy:            new(s.cfg.rootARN()),
		DefaultVersionNumber: new(int64(1)),
		LatestVersionNumber:  new(int64(0)),
	}

	s.st.Templates[id] = t
	s.addTemplateVersion(t, data, in.VersionDescription)
	s.st.setTags(id, tags)
	t.Tags = s.st.tagList(id)

	return firstAnswer(s.Service, request, id, answer(t))
}

// checkNewTemplate refuses a name that EC2 does not allow or that another template has, and one template more than the
// quota allows.
func (s launchTemplateHandlers) checkNewTemplate(name string) error {
	if !regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`).MatchString(name) {
		return newError(codeInvalidLaunchTemplateNameMalformed)
	}

	for _, t := range s.st.Templates {
		if str(t.LaunchTemplateName) == name {
			return newError(codeInvalidLaunchTemplateNameAlreadyExists)
		}
	}

	if len(s.st.Templates) >= s.cfg.Quotas.Templates {
		return newErrorf(
			codeMaxTemplateLimitExceeded,
			"The maximum number of launch templates (%d) has been reached.",
			s.cfg.Quotas.Templates,
		)
	}

	return nil
}

// maxVersionDescription is the longest description of a version, in characters.
const maxVersionDescription = 255

func checkVersionDescription(text *string) error {
	if len([]rune(str(text))) > maxVersionDescription {
		return newErrorf(
			codeInvalidParameterValue,
			"The version description must have at most %d characters.",
			maxVersionDescription,
		)
	}

	return nil
}

// newMissingTemplateError is the error about an id of no launch template, or of one that is too new to be seen.
func newMissingTemplateError(id string) error {
	return newErrorf(
		codeInvalidLaunchTemplateIDNotFound,
		"The specified launch template, with template ID %s, does not exist.",
		id,
	)
}

// newMissingTemplateNameError is the error about a name of no launch template.
func newMissingTemplateNameError() error {
	return newError(codeInvalidLaunchTemplateNameNotFound)
}

// findLaunchTemplate returns the launch template of an id or a name.
func (st *serviceState) findLaunchTemplate(id, name *string) (*sdk.LaunchTemplate, error) {
	switch {
	case str(id) != "" && str(name) != "":
		return nil, newErrorf(
			codeInvalidParameterCombination,
			"Either provide launch template ID or launch template name to modify the template.",
		)

	case str(id) != "":
		if t := st.Templates[*id]; t != nil {
			return t, nil
		}

		return nil, newMissingTemplateError(*id)

	case str(name) != "":
		for _, t := range st.Templates {
			if str(t.LaunchTemplateName) == *name {
				return t, nil
			}
		}

		return nil, newMissingTemplateNameError()
	}

	return nil, missingParameter("LaunchTemplateId or LaunchTemplateName")
}

func (s launchTemplateHandlers) modifyLaunchTemplate(
	in *sdk.ModifyLaunchTemplateInput,
) (*sdk.ModifyLaunchTemplateOutput, error) {
	t, err := s.st.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	v, err := s.st.findTemplateVersion(t, str(in.DefaultVersion))
	if err != nil {
		return nil, err
	}

	t.DefaultVersionNumber = v.VersionNumber
	s.st.markDefaultVersion(str(t.LaunchTemplateId), *v.VersionNumber)

	return &sdk.ModifyLaunchTemplateOutput{LaunchTemplate: t}, nil
}

func (s launchTemplateHandlers) deleteLaunchTemplate(
	in *sdk.DeleteLaunchTemplateInput,
) (*sdk.DeleteLaunchTemplateOutput, error) {
	t, err := s.st.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	id := str(t.LaunchTemplateId)
	s.st.removeTags(id)
	delete(s.st.Templates, id)
	delete(s.st.Versions, id)

	return &sdk.DeleteLaunchTemplateOutput{LaunchTemplate: t}, nil
}

func launchTemplateFilterValues(t *sdk.LaunchTemplate, name string) ([]string, bool) {
	switch name {
	case "launch-template-name":
		return []string{str(t.LaunchTemplateName)}, true
	case "create-time":
		if t.CreateTime == nil {
			return nil, true
		}

		return []string{t.CreateTime.Format("2006-01-02T15:04:05.000Z")}, true
	}

	return nil, false
}

func (s launchTemplateHandlers) describeLaunchTemplates(
	in *sdk.DescribeLaunchTemplatesInput,
) (*sdk.DescribeLaunchTemplatesOutput, error) {
	ids := slices.Clone(in.LaunchTemplateIds)
	for _, id := range strs(ids) {
		if s.st.Templates[id] == nil {
			return nil, notFound(id)
		}
	}

	for _, name := range in.LaunchTemplateNames {
		t, err := s.st.findLaunchTemplate(nil, name)
		if err != nil {
			return nil, err
		}

		ids = append(ids, t.LaunchTemplateId)
	}

	got, next, err := listResources(
		s.Service,
		s.st.Templates,
		describeQuery{ids, in.Filters, templatePage(in.MaxResults), in.NextToken},
		resourceLister[sdk.LaunchTemplate]{
			codeInvalidLaunchTemplateIDNotFound,
			"launch template",
			launchTemplateFilterValues,
		},
	)

	for _, t := range got {
		t.Tags = s.st.tagList(str(t.LaunchTemplateId))
	}

	return &sdk.DescribeLaunchTemplatesOutput{LaunchTemplates: got, NextToken: next}, err
}

// maxTemplatePage is the most launch templates or versions of one on a page.
const maxTemplatePage = 200

// templatePage returns the size of a page of launch templates or versions.
func templatePage(requested *int64) *int64 {
	if requested == nil {
		return new(int64(maxTemplatePage))
	}

	return new(min(*requested, maxTemplatePage))
}
