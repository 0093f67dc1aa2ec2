// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"
)

func (st *serviceState) findInstanceProfile(name string) (*instanceProfile, error) {
	p, ok := st.Profiles[name]
	if !ok {
		return nil, newNotFoundError("Instance Profile %s cannot be found.", name)
	}

	return p, nil
}

func (p *instanceProfile) toInstanceProfile(s *IAM) *iam.InstanceProfile {
	out := &iam.InstanceProfile{
		Arn:                 new(p.profileARN(s)),
		InstanceProfileId:   new(p.ID),
		InstanceProfileName: new(p.Name),
		Path:                new(p.Path),
		CreateDate:          new(p.Created),
		Roles:               []*iam.Role{},
	}
	if r, ok := s.st.Roles[p.Role]; ok {
		out.Roles = append(out.Roles, r.toRole(s))
	}

	return out
}

func (s *IAM) createInstanceProfile(
	in *iam.CreateInstanceProfileInput,
) (*iam.CreateInstanceProfileOutput, error) {
	p := &instanceProfile{Name: *in.InstanceProfileName, Created: s.cfg.Now().UTC()}
	if err := validateName("instanceProfileName", p.Name, maxPolicyNameLength); err != nil {
		return nil, err
	}

	var err error
	if p.Path, err = resolvePath(in.Path); err != nil {
		return nil, err
	}

	if p.Tags, err = mergeTags(nil, in.Tags); err != nil {
		return nil, err
	}

	for other := range s.st.Profiles {
		if strings.EqualFold(other, p.Name) {
			return nil, newExistsError("Instance Profile %s already exists.", p.Name)
		}
	}

	if err := (accountHandlers{s}).checkInstanceProfileQuota(); err != nil {
		return nil, err
	}

	if p.ID, err = newUniqueID(s.cfg.Rand, "AIPA", 21); err != nil {
		return nil, err
	}

	s.st.Profiles[p.Name] = p
	s.stale.track(kindProfile, p.Name)
	out := p.toInstanceProfile(s)
	out.Tags = tagList(p.Tags)

	return &iam.CreateInstanceProfileOutput{InstanceProfile: out}, nil
}

func (s *IAM) getInstanceProfile(in *iam.GetInstanceProfileInput) (*iam.GetInstanceProfileOutput, error) {
	p, err := s.st.findInstanceProfile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	out := p.toInstanceProfile(s)
	out.Tags = tagList(p.Tags)

	return &iam.GetInstanceProfileOutput{InstanceProfile: out}, nil
}

func (s *IAM) listInstanceProfiles(
	in *iam.ListInstanceProfilesInput,
) (*iam.ListInstanceProfilesOutput, error) {
	keys := slices.DeleteFunc(sortedKeys(s.st.Profiles), func(name string) bool {
		return !strings.HasPrefix(s.st.Profiles[name].Path, stringValue(in.PathPrefix))
	})
	w, err := paginateKeys(s.stale.visible(kindProfile, keys), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListInstanceProfilesOutput{IsTruncated: w.isTruncated, Marker: w.marker}
	for _, name := range w.keys {
		out.InstanceProfiles = append(out.InstanceProfiles, s.st.Profiles[name].toInstanceProfile(s))
	}

	return out, nil
}

// profileNamesForRole returns the names of the instance profiles of a role, sorted.
func (st *serviceState) profileNamesForRole(role string) []string {
	return slices.DeleteFunc(
		sortedKeys(st.Profiles),
		func(name string) bool { return st.Profiles[name].Role != role },
	)
}

func (s *IAM) listInstanceProfilesForRole(
	in *iam.ListInstanceProfilesForRoleInput,
) (*iam.ListInstanceProfilesForRoleOutput, error) {
	if _, err := s.st.findRole(*in.RoleName); err != nil {
		return nil, err
	}

	names := s.stale.visible(kindProfile, s.st.profileNamesForRole(*in.RoleName))
	w, err := paginateKeys(names, in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListInstanceProfilesForRoleOutput{IsTruncated: w.isTruncated, Marker: w.marker}
	for _, name := range w.keys {
		out.InstanceProfiles = append(out.InstanceProfiles, s.st.Profiles[name].toInstanceProfile(s))
	}

	return out, nil
}

func (s *IAM) deleteInstanceProfile(
	in *iam.DeleteInstanceProfileInput,
) (*iam.DeleteInstanceProfileOutput, error) {
	p, err := s.st.findInstanceProfile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	if p.Role != "" {
		return nil, newDeleteConflictError("remove roles from instance profile")
	}

	delete(s.st.Profiles, p.Name)

	return &iam.DeleteInstanceProfileOutput{}, nil
}

func (s *IAM) addRoleToInstanceProfile(
	in *iam.AddRoleToInstanceProfileInput,
) (*iam.AddRoleToInstanceProfileOutput, error) {
	p, err := s.st.findInstanceProfile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	if p.Role != "" {
		return nil, newLimitError("Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}

	p.Role = r.Name

	return &iam.AddRoleToInstanceProfileOutput{}, nil
}

func (s *IAM) removeRoleFromInstanceProfile(
	in *iam.RemoveRoleFromInstanceProfileInput,
) (*iam.RemoveRoleFromInstanceProfileOutput, error) {
	p, err := s.st.findInstanceProfile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	if p.Role != *in.RoleName {
		return nil, newNotFoundError(
			"The role with name %s cannot be found in instance profile %s.",
			*in.RoleName,
			p.Name,
		)
	}

	p.Role = ""

	return &iam.RemoveRoleFromInstanceProfileOutput{}, nil
}

func (s *IAM) tagInstanceProfile(in *iam.TagInstanceProfileInput) (*iam.TagInstanceProfileOutput, error) {
	p, err := s.st.findInstanceProfile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	tags, err := mergeTags(p.Tags, in.Tags)
	if err != nil {
		return nil, err
	}

	p.Tags = tags

	return &iam.TagInstanceProfileOutput{}, nil
}

func (s *IAM) untagInstanceProfile(
	in *iam.UntagInstanceProfileInput,
) (*iam.UntagInstanceProfileOutput, error) {
	p, err := s.st.findInstanceProfile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	p.Tags = removeTags(p.Tags, in.TagKeys)

	return &iam.UntagInstanceProfileOutput{}, nil
}

func (s *IAM) listInstanceProfileTags(
	in *iam.ListInstanceProfileTagsInput,
) (*iam.ListInstanceProfileTagsOutput, error) {
	p, err := s.st.findInstanceProfile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	w, err := paginateKeys(sortedKeys(p.Tags), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListInstanceProfileTagsOutput{IsTruncated: w.isTruncated, Marker: w.marker}
	for _, k := range w.keys {
		out.Tags = append(out.Tags, &iam.Tag{Key: new(k), Value: new(p.Tags[k])})
	}

	return out, nil
}
