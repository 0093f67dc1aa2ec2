// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/base64"
	"maps"
	"regexp"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) launchTemplateOps() []wire.Op {
	return []wire.Op{
		writeOperation(s, "CreateLaunchTemplate", s.createLaunchTemplate),
		writeOperation(s, "CreateLaunchTemplateVersion", s.createLaunchTemplateVersion),
		writeOperation(s, "ModifyLaunchTemplate", s.modifyLaunchTemplate),
		writeOperation(s, "DeleteLaunchTemplate", s.deleteLaunchTemplate),
		writeOperation(s, "DeleteLaunchTemplateVersions", s.deleteLaunchTemplateVersions),
		readOperation(s, "DescribeLaunchTemplates", s.describeLaunchTemplates),
		readOperation(s, "DescribeLaunchTemplateVersions", s.describeLaunchTemplateVersions),
	}
}

// maxUserData is EC2's limit, before base64.
const maxUserData = 16 << 10

func checkUserData(data *string) error {
	if data == nil {
		return nil
	}

	raw, err := base64.StdEncoding.DecodeString(*data)
	if err != nil {
		return wire.Errorf("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}

	if len(raw) > maxUserData {
		return wire.Errorf("InvalidParameterValue", "User data is limited to 16384 bytes")
	}

	return nil
}

// resolveTemplateData checks a template's data and brings it into the shape of answers.
func (s *Service) resolveTemplateData(
	in *sdk.RequestLaunchTemplateData,
	base *sdk.ResponseLaunchTemplateData,
) (*sdk.ResponseLaunchTemplateData, error) {
	if in == nil {
		return nil, missingParameter("LaunchTemplateData")
	}

	if err := checkUserData(in.UserData); err != nil {
		return nil, err
	}

	if t := str(in.InstanceType); t != "" {
		if _, ok := s.instanceTypes[t]; !ok {
			return nil, wire.Errorf("InvalidParameterValue", "Invalid value '%s' for InstanceType.", t)
		}
	}

	for _, spec := range in.TagSpecifications {
		if !slices.Contains(
			[]string{"instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu"},
			str(spec.ResourceType),
		) {
			return nil, wire.Errorf(
				"InvalidParameterValue",
				"'%s' is not a valid taggable resource type.",
				str(spec.ResourceType),
			)
		}

		if err := checkTags(spec.Tags); err != nil {
			return nil, err
		}
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return nil, err
	}

	if base != nil {
		all, err := sdkshape.ShapeToMap(base)
		if err != nil {
			return nil, err
		}

		maps.Copy(all, tree)
		tree = all
	}

	out, err := structFromFields[sdk.ResponseLaunchTemplateData](tree)
	if err != nil {
		return nil, err
	}

	return out, checkTemplateMetadata(out.MetadataOptions)
}

func checkTemplateMetadata(o *sdk.LaunchTemplateInstanceMetadataOptions) error {
	if o == nil {
		return nil
	}

	if o.HttpPutResponseHopLimit != nil &&
		(*o.HttpPutResponseHopLimit < 1 || *o.HttpPutResponseHopLimit > 64) {
		return wire.Errorf(
			"InvalidParameterValue",
			"Value (%d) for parameter HttpPutResponseHopLimit is invalid.",
			*o.HttpPutResponseHopLimit,
		)
	}

	o.State = nil

	return nil
}

func (s *Service) createLaunchTemplate(
	in *sdk.CreateLaunchTemplateInput,
) (*sdk.CreateLaunchTemplateOutput, error) {
	if ids, err := s.idempotentResult("CreateLaunchTemplate", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) == 1 && s.st.Templates[ids[0]] != nil {
		return &sdk.CreateLaunchTemplateOutput{LaunchTemplate: s.st.Templates[ids[0]]}, nil
	}

	name := str(in.LaunchTemplateName)
	if !regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`).MatchString(name) {
		return nil, wire.Errorf(
			"InvalidLaunchTemplateName.MalformedException",
			"A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.",
		)
	}

	for _, t := range s.st.Templates {
		if str(t.LaunchTemplateName) == name {
			return nil, wire.Errorf(
				"InvalidLaunchTemplateName.AlreadyExistsException",
				"Launch template name already in use.",
			)
		}
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
	t := &sdk.LaunchTemplate{
		LaunchTemplateId:     new(id),
		LaunchTemplateName:   new(name),
		CreateTime:           new(s.cfg.Now().UTC()),
		CreatedBy:            new(s.rootARN()),
		DefaultVersionNumber: new(int64(1)),
		LatestVersionNumber:  new(int64(0)),
	}

	s.st.Templates[id] = t
	s.addTemplateVersion(t, data, in.VersionDescription)
	s.setTags(id, tags)
	t.Tags = s.tagList(id)
	s.saveIdempotentResult("CreateLaunchTemplate", in.ClientToken, in, id)

	return &sdk.CreateLaunchTemplateOutput{LaunchTemplate: t}, nil
}

func (s *Service) rootARN() string { return "arn:aws:iam::" + s.cfg.Account + ":root" }

func (s *Service) addTemplateVersion(
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
		CreatedBy:          new(s.rootARN()),
		DefaultVersion:     new(*t.LatestVersionNumber == *t.DefaultVersionNumber),
	}

	id := str(t.LaunchTemplateId)
	s.st.Versions[id] = append(s.st.Versions[id], v)

	return v
}

// findLaunchTemplate finds a launch template by id or name.
func (s *Service) findLaunchTemplate(id, name *string) (*sdk.LaunchTemplate, error) {
	switch {
	case str(id) != "" && str(name) != "":
		return nil, wire.Errorf(
			"InvalidParameterCombination",
			"Give either the launch template's ID or its name",
		)

	case str(id) != "":
		if t := s.st.Templates[*id]; t != nil {
			return t, nil
		}

		return nil, wire.Errorf(
			"InvalidLaunchTemplateId.NotFound",
			"The specified launch template, with template ID %s, does not exist.",
			*id,
		)

	case str(name) != "":
		for _, t := range s.st.Templates {
			if str(t.LaunchTemplateName) == *name {
				return t, nil
			}
		}

		return nil, wire.Errorf(
			"InvalidLaunchTemplateName.NotFoundException",
			"The specified launch template, with template name %s, does not exist.",
			*name,
		)
	}

	return nil, missingParameter("LaunchTemplateId or LaunchTemplateName")
}

// findTemplateVersion finds a version by number, $Latest or $Default.
func (s *Service) findTemplateVersion(
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
			return nil, wire.Errorf(
				"InvalidLaunchTemplateId.VersionNotFound",
				"Could not find launch template version %s",
				want,
			)
		}
	}

	for _, v := range s.st.Versions[str(t.LaunchTemplateId)] {
		if *v.VersionNumber == n {
			return v, nil
		}
	}

	return nil, wire.Errorf(
		"InvalidLaunchTemplateId.VersionNotFound",
		"Could not find the specified version %s for the launch template with ID %s.",
		want,
		str(t.LaunchTemplateId),
	)
}

func (s *Service) createLaunchTemplateVersion(
	in *sdk.CreateLaunchTemplateVersionInput,
) (*sdk.CreateLaunchTemplateVersionOutput, error) {
	t, err := s.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	id := str(t.LaunchTemplateId)
	if ids, err := s.idempotentResult("CreateLaunchTemplateVersion", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) == 1 {
		v, err := s.findTemplateVersion(t, ids[0])
		return &sdk.CreateLaunchTemplateVersionOutput{LaunchTemplateVersion: v}, err
	}

	var base *sdk.ResponseLaunchTemplateData
	if in.SourceVersion != nil {
		v, err := s.findTemplateVersion(t, *in.SourceVersion)
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

	s.markDefaultVersion(id, *t.DefaultVersionNumber)

	return &sdk.CreateLaunchTemplateVersionOutput{LaunchTemplateVersion: v}, nil
}

func (s *Service) markDefaultVersion(id string, n int64) {
	for _, v := range s.st.Versions[id] {
		v.DefaultVersion = new(*v.VersionNumber == n)
	}
}

func (s *Service) modifyLaunchTemplate(
	in *sdk.ModifyLaunchTemplateInput,
) (*sdk.ModifyLaunchTemplateOutput, error) {
	t, err := s.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	v, err := s.findTemplateVersion(t, str(in.DefaultVersion))
	if err != nil {
		return nil, err
	}

	t.DefaultVersionNumber = v.VersionNumber
	s.markDefaultVersion(str(t.LaunchTemplateId), *v.VersionNumber)

	return &sdk.ModifyLaunchTemplateOutput{LaunchTemplate: t}, nil
}

func (s *Service) deleteLaunchTemplate(
	in *sdk.DeleteLaunchTemplateInput,
) (*sdk.DeleteLaunchTemplateOutput, error) {
	t, err := s.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	id := str(t.LaunchTemplateId)
	s.removeTags(id)
	delete(s.st.Templates, id)
	delete(s.st.Versions, id)

	return &sdk.DeleteLaunchTemplateOutput{LaunchTemplate: t}, nil
}

func (s *Service) deleteLaunchTemplateVersions(
	in *sdk.DeleteLaunchTemplateVersionsInput,
) (*sdk.DeleteLaunchTemplateVersionsOutput, error) {
	t, err := s.findLaunchTemplate(in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	id := str(t.LaunchTemplateId)
	out := &sdk.DeleteLaunchTemplateVersionsOutput{}

	for _, want := range strs(in.Versions) {
		v, err := s.findTemplateVersion(t, want)
		code := ""
		message := ""

		switch {
		case err != nil:
			code = "launchTemplateVersionDoesNotExist"
			message = "The version does not exist"
		case *v.VersionNumber == *t.DefaultVersionNumber:
			code = "unexpectedError"
			message = "The default version cannot be deleted"
		}

		if code != "" {
			out.UnsuccessfullyDeletedLaunchTemplateVersions = append(
				out.UnsuccessfullyDeletedLaunchTemplateVersions,
				&sdk.DeleteLaunchTemplateVersionsResponseErrorItem{
					LaunchTemplateId:   new(id),
					LaunchTemplateName: t.LaunchTemplateName,
					VersionNumber:      parseVersionNumber(want),
					ResponseError:      &sdk.ResponseError{Code: new(code), Message: new(message)},
				},
			)

			continue
		}

		s.st.Versions[id] = slices.DeleteFunc(
			s.st.Versions[id],
			func(x *sdk.LaunchTemplateVersion) bool { return x == v },
		)

		out.SuccessfullyDeletedLaunchTemplateVersions = append(out.SuccessfullyDeletedLaunchTemplateVersions,
			&sdk.DeleteLaunchTemplateVersionsResponseSuccessItem{
				LaunchTemplateId: new(
					id,
				), LaunchTemplateName: t.LaunchTemplateName, VersionNumber: v.VersionNumber,
			})
	}

	return out, nil
}

func parseVersionNumber(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}

	return new(n)
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

func (s *Service) describeLaunchTemplates(
	in *sdk.DescribeLaunchTemplatesInput,
) (*sdk.DescribeLaunchTemplatesOutput, error) {
	ids := slices.Clone(in.LaunchTemplateIds)
	for _, name := range in.LaunchTemplateNames {
		t, err := s.findLaunchTemplate(nil, name)
		if err != nil {
			return nil, err
		}

		ids = append(ids, t.LaunchTemplateId)
	}

	got, next, err := listResources(
		s,
		s.st.Templates,
		describeQuery{ids, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.LaunchTemplate]{
			"InvalidLaunchTemplateId.NotFound",
			"launch template",
			launchTemplateFilterValues,
		},
	)

	for _, t := range got {
		t.Tags = s.tagList(str(t.LaunchTemplateId))
	}

	return &sdk.DescribeLaunchTemplatesOutput{LaunchTemplates: got, NextToken: next}, err
}
