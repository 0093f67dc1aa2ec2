// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"errors"
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

// describeLaunchTemplateVersions lists the versions of one template or, if the request names no template, the
// latest or default versions of all templates.
func (s launchTemplateHandlers) describeLaunchTemplateVersions(
	in *sdk.DescribeLaunchTemplateVersionsInput,
) (*sdk.DescribeLaunchTemplateVersionsOutput, error) {
	found, err := s.st.selectTemplateVersions(in)
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
		s.Service,
		all,
		describeQuery{nil, in.Filters, templatePage(in.MaxResults), in.NextToken},
		resourceLister[sdk.LaunchTemplateVersion]{filterValues: templateVersionFilterValues},
	)

	return &sdk.DescribeLaunchTemplateVersionsOutput{LaunchTemplateVersions: got, NextToken: next}, err
}

// findTemplateVersions returns the wanted versions of a template, or all of them if wanted is empty.
func (st *serviceState) findTemplateVersions(
	t *sdk.LaunchTemplate,
	wanted []string,
) ([]*sdk.LaunchTemplateVersion, error) {
	if len(wanted) == 0 {
		return st.Versions[str(t.LaunchTemplateId)], nil
	}

	var out []*sdk.LaunchTemplateVersion
	for _, w := range wanted {
		v, err := st.findTemplateVersion(t, w)
		if err != nil {
			return nil, newErrorf(
				codeInvalidLaunchTemplateIDVersionNotFound,
				"Could not find the specified version %s for the launch template with ID %s.",
				w,
				str(t.LaunchTemplateId),
			)
		}

		out = append(out, v)
	}

	return out, nil
}

// versionsOfAllTemplates is EC2's message for a request that names neither a template nor $Latest or $Default.
const versionsOfAllTemplates = "To describe the launch template data for all your launch templates, " +
	"for ‘--versions’ specify ‘$Latest’, ‘$Default’, or both, and omit ‘--launch-template-id’, " +
	"‘--launch-template-name’, and version numbers. To describe the launch template data for a specific " +
	"launch template, specify ‘--launch-template-id’ or ‘--launch-template-name’, and for ‘--versions’ " +
	"specify one or more of the following values: ‘$Latest’, ‘$Default’, or one or more version numbers."

// describeNameError returns the error of DescribeLaunchTemplateVersions for an unknown name. Other operations
// do not repeat the name.
func describeNameError(err error, name *string) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != string(codeInvalidLaunchTemplateNameNotFound) {
		return err
	}

	return newErrorf(
		codeInvalidLaunchTemplateNameNotFound,
		"The specified launch template, with template name %s, does not exist.",
		str(name),
	)
}

func (st *serviceState) selectTemplateVersions(
	in *sdk.DescribeLaunchTemplateVersionsInput,
) ([]*sdk.LaunchTemplateVersion, error) {
	wanted := strs(in.Versions)
	if in.LaunchTemplateId != nil || in.LaunchTemplateName != nil {
		t, err := st.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
		if err != nil {
			return nil, describeNameError(err, in.LaunchTemplateName)
		}

		return st.findTemplateVersions(t, wanted)
	}

	if len(wanted) == 0 {
		return nil, newErrorf(codeMissingParameter, versionsOfAllTemplates)
	}

	if slices.ContainsFunc(wanted, func(w string) bool { return w != "$Latest" && w != "$Default" }) {
		return nil, newErrorf(codeInvalidParameterValue, versionsOfAllTemplates)
	}

	var out []*sdk.LaunchTemplateVersion

	for _, id := range sortedKeys(st.Templates) {
		for _, w := range wanted {
			if v, err := st.findTemplateVersion(st.Templates[id], w); err == nil {
				out = append(out, v)
			}
		}
	}

	return out, nil
}

func (s launchTemplateHandlers) addTemplateVersion(
	t *sdk.LaunchTemplate,
	data *sdk.ResponseLaunchTemplateData,
	description *string,
) *sdk.LaunchTemplateVersion {
	t.LatestVersionNumber = new(*t.LatestVersionNumber + 1)
	v := &sdk.LaunchTemplateVersion{
		LaunchTemplateId:   t.LaunchTemplateId,
		LaunchTemplateName: t.LaunchTemplateName,
		LaunchTemplateData: data,
		VersionNumber:      t.LatestVersionNumber,
		VersionDescription: description,
		CreateTime:         new(s.cfg.Now().UTC()),
		CreatedBy:          new(s.cfg.rootARN()),
		DefaultVersion:     new(*t.LatestVersionNumber == *t.DefaultVersionNumber),
	}

	id := str(t.LaunchTemplateId)
	s.st.Versions[id] = append(s.st.Versions[id], v)

	return v
}

// findTemplateVersion returns a version by its number, $Latest or $Default; "" is $Default.
func (st *serviceState) findTemplateVersion(
	t *sdk.LaunchTemplate,
	want string,
) (*sdk.LaunchTemplateVersion, error) {
	n := *t.DefaultVersionNumber
	switch want {
	case "$Default", "":
	case "$Latest":
		n = *t.LatestVersionNumber
	default:
		var err error
		if n, err = strconv.ParseInt(want, 10, 64); err != nil {
			return nil, newErrorf(
				codeInvalidLaunchTemplateIDVersionNotFound,
				"Could not find launch template version %s",
				want,
			)
		}
	}

	for _, v := range st.Versions[str(t.LaunchTemplateId)] {
		if *v.VersionNumber == n {
			return v, nil
		}
	}

	return nil, newErrorf(
		codeInvalidLaunchTemplateIDVersionNotFound,
		"The launch template version %s is not found for the specified launch template.",
		want,
	)
}

func (s launchTemplateHandlers) createLaunchTemplateVersion(
	in *sdk.CreateLaunchTemplateVersionInput,
) (*sdk.CreateLaunchTemplateVersionOutput, error) {
	t, err := s.st.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	id := str(t.LaunchTemplateId)
	if ids, err := s.idempotentResult("CreateLaunchTemplateVersion", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) == 1 {
		v, err := s.st.findTemplateVersion(t, ids[0])
		return &sdk.CreateLaunchTemplateVersionOutput{LaunchTemplateVersion: v}, err
	}

	if err := s.checkNewVersion(id, in.VersionDescription); err != nil {
		return nil, err
	}

	var base *sdk.ResponseLaunchTemplateData
	if in.SourceVersion != nil {
		v, err := s.st.findTemplateVersion(t, *in.SourceVersion)
		if err != nil {
			return nil, err
		}

		base = v.LaunchTemplateData
	}

	data, err := s.resolveTemplateData(in.LaunchTemplateData, base)
	if err != nil {
		return nil, err
	}

	v := s.addTemplateVersion(t, data, in.VersionDescription)
	s.saveIdempotentResult(
		"CreateLaunchTemplateVersion",
		in.ClientToken,
		in,
		strconv.FormatInt(*v.VersionNumber, 10),
	)

	s.st.markDefaultVersion(id, *t.DefaultVersionNumber)

	return &sdk.CreateLaunchTemplateVersionOutput{LaunchTemplateVersion: v}, nil
}

// checkNewVersion refuses a description that is too long, and one version of the template id more than the quota
// allows. Deleted versions do not count.
func (s launchTemplateHandlers) checkNewVersion(id string, description *string) error {
	if len(s.st.Versions[id]) >= s.cfg.Quotas.TemplateVersions {
		return newErrorf(
			codeMaxTemplateVersionLimitExceeded,
			"The maximum number of versions (%d) of launch template %s has been reached.",
			s.cfg.Quotas.TemplateVersions,
			id,
		)
	}

	return checkVersionDescription(description)
}

// maxDeletedVersions is how many versions one call deletes at most.
const maxDeletedVersions = 200

func (st *serviceState) markDefaultVersion(id string, n int64) {
	for _, v := range st.Versions[id] {
		v.DefaultVersion = new(*v.VersionNumber == n)
	}
}

func (s launchTemplateHandlers) deleteLaunchTemplateVersions(
	in *sdk.DeleteLaunchTemplateVersionsInput,
) (*sdk.DeleteLaunchTemplateVersionsOutput, error) {
	if len(in.Versions) > maxDeletedVersions {
		return nil, newErrorf(
			codeInvalidParameterValue,
			"At most %d versions can be deleted in a request, not %d.",
			maxDeletedVersions,
			len(in.Versions),
		)
	}

	t, err := s.st.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	out := &sdk.DeleteLaunchTemplateVersionsOutput{}

	for _, want := range strs(in.Versions) {
		v, problem := s.st.findDeletableVersion(t, want)
		if problem != nil {
			out.UnsuccessfullyDeletedLaunchTemplateVersions = append(
				out.UnsuccessfullyDeletedLaunchTemplateVersions,
				&sdk.DeleteLaunchTemplateVersionsResponseErrorItem{
					LaunchTemplateId:   t.LaunchTemplateId,
					LaunchTemplateName: t.LaunchTemplateName,
					VersionNumber:      parseVersionNumber(want),
					ResponseError:      problem,
				},
			)

			continue
		}

		id := str(t.LaunchTemplateId)
		s.st.Versions[id] = slices.DeleteFunc(
			s.st.Versions[id],
			func(x *sdk.LaunchTemplateVersion) bool { return x == v },
		)

		out.SuccessfullyDeletedLaunchTemplateVersions = append(out.SuccessfullyDeletedLaunchTemplateVersions,
			&sdk.DeleteLaunchTemplateVersionsResponseSuccessItem{
				LaunchTemplateId:   t.LaunchTemplateId,
				LaunchTemplateName: t.LaunchTemplateName,
				VersionNumber:      v.VersionNumber,
			})
	}

	return out, nil
}

// findDeletableVersion returns a version of a template, or the reason why it cannot be deleted.
func (st *serviceState) findDeletableVersion(
	t *sdk.LaunchTemplate,
	want string,
) (*sdk.LaunchTemplateVersion, *sdk.ResponseError) {
	v, err := st.findTemplateVersion(t, want)

	switch {
	case err != nil:
		return nil, &sdk.ResponseError{
			Code:    new(sdk.LaunchTemplateErrorCodeLaunchTemplateVersionDoesNotExist),
			Message: new("The version does not exist"),
		}

	case *v.VersionNumber == *t.DefaultVersionNumber:
		return nil, &sdk.ResponseError{
			Code:    new(sdk.LaunchTemplateErrorCodeUnexpectedError),
			Message: new("The default version cannot be deleted"),
		}
	}

	return v, nil
}

func parseVersionNumber(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}

	return new(n)
}
