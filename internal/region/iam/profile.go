// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"
)

func (s *IAM) profile(name string) (*profile, error) {
	p, ok := s.st.Profiles[name]
	if !ok {
		return nil, missing("Instance Profile %s cannot be found.", name)
	}

	return p, nil
}

func (p *profile) shape(s *IAM) *iam.InstanceProfile {
	out := &iam.InstanceProfile{
		Arn:                 new(p.arn(s)),
		InstanceProfileId:   new(p.ID),
		InstanceProfileName: new(p.Name),
		Path:                new(p.Path),
		CreateDate:          new(p.Created),
		Roles:               []*iam.Role{},
	}
	if r, ok := s.st.Roles[p.Role]; ok {
		out.Roles = append(out.Roles, r.shape(s))
	}

	return out
}

func (s *IAM) createProfile(in *iam.CreateInstanceProfileInput) (*iam.CreateInstanceProfileOutput, error) {
	p := &profile{Name: *in.InstanceProfileName, Created: s.cfg.Now().UTC()}
	if err := checkName("instanceProfileName", p.Name, maxPolicyName); err != nil {
		return nil, err
	}

	var err error
	if p.Path, err = checkPath(in.Path); err != nil {
		return nil, err
	}

	if p.Tags, err = merge(nil, in.Tags); err != nil {
		return nil, err
	}

	for other := range s.st.Profiles {
		if strings.EqualFold(other, p.Name) {
			return nil, exists("Instance Profile %s already exists.", p.Name)
		}
	}

	if p.ID, err = s.id("AIPA", 21); err != nil {
		return nil, err
	}

	s.st.Profiles[p.Name] = p
	out := p.shape(s)
	out.Tags = tagList(p.Tags)

	return &iam.CreateInstanceProfileOutput{InstanceProfile: out}, nil
}

func (s *IAM) getProfile(in *iam.GetInstanceProfileInput) (*iam.GetInstanceProfileOutput, error) {
	p, err := s.profile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	out := p.shape(s)
	out.Tags = tagList(p.Tags)

	return &iam.GetInstanceProfileOutput{InstanceProfile: out}, nil
}

func (s *IAM) listProfiles(in *iam.ListInstanceProfilesInput) (*iam.ListInstanceProfilesOutput, error) {
	keys := slices.DeleteFunc(sorted(s.st.Profiles), func(name string) bool {
		return !strings.HasPrefix(s.st.Profiles[name].Path, str(in.PathPrefix))
	})
	w, err := page(keys, in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListInstanceProfilesOutput{IsTruncated: w.more, Marker: w.marker}
	for _, name := range w.keys {
		out.InstanceProfiles = append(out.InstanceProfiles, s.st.Profiles[name].shape(s))
	}

	return out, nil
}

// profilesOf are the names of a role's profiles.
func (s *IAM) profilesOf(role string) []string {
	return slices.DeleteFunc(
		sorted(s.st.Profiles),
		func(name string) bool { return s.st.Profiles[name].Role != role },
	)
}

func (s *IAM) listProfilesForRole(
	in *iam.ListInstanceProfilesForRoleInput,
) (*iam.ListInstanceProfilesForRoleOutput, error) {
	if _, err := s.role(*in.RoleName); err != nil {
		return nil, err
	}

	w, err := page(s.profilesOf(*in.RoleName), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListInstanceProfilesForRoleOutput{IsTruncated: w.more, Marker: w.marker}
	for _, name := range w.keys {
		out.InstanceProfiles = append(out.InstanceProfiles, s.st.Profiles[name].shape(s))
	}

	return out, nil
}

func (s *IAM) deleteProfile(in *iam.DeleteInstanceProfileInput) (*iam.DeleteInstanceProfileOutput, error) {
	p, err := s.profile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	if p.Role != "" {
		return nil, conflict("remove roles from instance profile")
	}

	delete(s.st.Profiles, p.Name)

	return &iam.DeleteInstanceProfileOutput{}, nil
}

func (s *IAM) addRole(in *iam.AddRoleToInstanceProfileInput) (*iam.AddRoleToInstanceProfileOutput, error) {
	p, err := s.profile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	r, err := s.role(*in.RoleName)
	if err != nil {
		return nil, err
	}

	if p.Role != "" {
		return nil, limit("Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}

	p.Role = r.Name

	return &iam.AddRoleToInstanceProfileOutput{}, nil
}

func (s *IAM) removeRole(
	in *iam.RemoveRoleFromInstanceProfileInput,
) (*iam.RemoveRoleFromInstanceProfileOutput, error) {
	p, err := s.profile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	if p.Role != *in.RoleName {
		return nil, missing(
			"The role with name %s cannot be found in instance profile %s.",
			*in.RoleName,
			p.Name,
		)
	}

	p.Role = ""

	return &iam.RemoveRoleFromInstanceProfileOutput{}, nil
}

func (s *IAM) tagProfile(in *iam.TagInstanceProfileInput) (*iam.TagInstanceProfileOutput, error) {
	p, err := s.profile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	tags, err := merge(p.Tags, in.Tags)
	if err != nil {
		return nil, err
	}

	p.Tags = tags

	return &iam.TagInstanceProfileOutput{}, nil
}

func (s *IAM) untagProfile(in *iam.UntagInstanceProfileInput) (*iam.UntagInstanceProfileOutput, error) {
	p, err := s.profile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	p.Tags = without(p.Tags, in.TagKeys)

	return &iam.UntagInstanceProfileOutput{}, nil
}

func (s *IAM) listProfileTags(
	in *iam.ListInstanceProfileTagsInput,
) (*iam.ListInstanceProfileTagsOutput, error) {
	p, err := s.profile(*in.InstanceProfileName)
	if err != nil {
		return nil, err
	}

	w, err := page(sorted(p.Tags), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListInstanceProfileTagsOutput{IsTruncated: w.more, Marker: w.marker}
	for _, k := range w.keys {
		out.Tags = append(out.Tags, &iam.Tag{Key: new(k), Value: new(p.Tags[k])})
	}

	return out, nil
}
