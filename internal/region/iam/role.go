// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"
)

func (st *serviceState) findRole(name string) (*role, error) {
	r, ok := st.Roles[name]
	if !ok {
		return nil, newNotFoundError("The role with name %s cannot be found.", name)
	}

	return r, nil
}

// toRole describes a role without its tags and its boundary, which lists do not contain.
func (r *role) toRole(s *IAM) *iam.Role {
	out := &iam.Role{
		Arn:                      new(r.roleARN(s)),
		RoleId:                   new(r.ID),
		RoleName:                 new(r.Name),
		Path:                     new(r.Path),
		CreateDate:               new(r.Created),
		AssumeRolePolicyDocument: encodeDocument(r.Trust),
		MaxSessionDuration:       new(r.MaxSession),
	}
	if r.Description != "" {
		out.Description = new(r.Description)
	}

	return out
}

func (s *IAM) createRole(in *iam.CreateRoleInput) (*iam.CreateRoleOutput, error) {
	r := &role{
		Trust:       *in.AssumeRolePolicyDocument,
		Description: stringValue(in.Description),
		MaxSession:  defaultSessionSeconds,
	}

	r.Name = *in.RoleName
	r.Created = s.cfg.Now().UTC()
	r.Inline = map[string]string{}
	if in.MaxSessionDuration != nil {
		r.MaxSession = *in.MaxSessionDuration
	}

	if r.MaxSession > maxSessionSeconds {
		return nil, newValidationError("the maximum session duration is %d seconds", maxSessionSeconds)
	}

	if err := validateName("roleName", r.Name, maxRoleNameLength); err != nil {
		return nil, err
	}

	var err error
	if r.Path, err = resolvePath(in.Path); err != nil {
		return nil, err
	}

	if err := checkTrust(s, r.Trust); err != nil {
		return nil, err
	}

	if r.Tags, err = mergeTags(nil, in.Tags); err != nil {
		return nil, err
	}

	if s.st.hasRole(r.Name) {
		return nil, newExistsError("Role with name %s already exists.", r.Name)
	}

	if err := (accountHandlers{s}).checkRoleQuota(); err != nil {
		return nil, err
	}

	if r.ID, err = newUniqueID(s.cfg.Rand, "AROA", 21); err != nil {
		return nil, err
	}

	if err := s.st.setBoundary(&r.identity, stringValue(in.PermissionsBoundary)); err != nil {
		return nil, err
	}

	s.st.Roles[r.Name] = r
	s.stale.track(kindRole, r.Name)
	out := r.toRole(s)
	out.MaxSessionDuration = nil // as in AWS: only GetRole and ListRoles tell it
	out.Tags = tagList(r.Tags)
	out.PermissionsBoundary = r.attachedBoundary()

	return &iam.CreateRoleOutput{Role: out}, nil
}

// hasRole reports whether a role has the name. Names are unique regardless of case.
func (st *serviceState) hasRole(name string) bool {
	for other := range st.Roles {
		if strings.EqualFold(other, name) {
			return true
		}
	}

	return false
}

func (s *IAM) getRole(in *iam.GetRoleInput) (*iam.GetRoleOutput, error) {
	r, err := s.st.findRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	out := r.toRole(s)
	out.Tags = tagList(r.Tags)
	out.PermissionsBoundary = r.attachedBoundary()
	out.RoleLastUsed = &iam.RoleLastUsed{} // the region does not record it

	return &iam.GetRoleOutput{Role: out}, nil
}

func (s *IAM) listRoles(in *iam.ListRolesInput) (*iam.ListRolesOutput, error) {
	keys := slices.DeleteFunc(sortedKeys(s.st.Roles), func(name string) bool {
		return !strings.HasPrefix(s.st.Roles[name].Path, stringValue(in.PathPrefix))
	})
	w, err := paginateKeys(s.stale.visible(kindRole, keys), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListRolesOutput{IsTruncated: w.isTruncated, Marker: w.marker}
	for _, name := range w.keys {
		out.Roles = append(out.Roles, s.st.Roles[name].toRole(s))
	}

	return out, nil
}

func (s *IAM) updateAssumeRolePolicy(
	in *iam.UpdateAssumeRolePolicyInput,
) (*iam.UpdateAssumeRolePolicyOutput, error) {
	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	if err := checkTrust(s, *in.PolicyDocument); err != nil {
		return nil, err
	}

	r.Trust = *in.PolicyDocument

	return &iam.UpdateAssumeRolePolicyOutput{}, nil
}

func (s *IAM) updateRole(in *iam.UpdateRoleInput) (*iam.UpdateRoleOutput, error) {
	r, err := s.st.findRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	if in.MaxSessionDuration != nil {
		if *in.MaxSessionDuration > maxSessionSeconds {
			return nil, newValidationError("the maximum session duration is %d seconds", maxSessionSeconds)
		}

		r.MaxSession = *in.MaxSessionDuration
	}

	if in.Description != nil {
		r.Description = *in.Description
	}

	return &iam.UpdateRoleOutput{}, nil
}

func (s *IAM) deleteRole(in *iam.DeleteRoleInput) (*iam.DeleteRoleOutput, error) {
	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	if err := r.checkDeletable(); err != nil {
		return nil, err
	}

	for _, p := range s.st.Profiles {
		if p.Role == r.Name {
			return nil, newDeleteConflictError("remove roles from instance profile")
		}
	}

	if s.stale.removed.Hides(r.Name) {
		return nil, newDeleteConflictError("delete policies")
	}

	delete(s.st.Roles, r.Name)

	return &iam.DeleteRoleOutput{}, nil
}

func (i *identity) checkDeletable() error {
	if len(i.Attached) > 0 {
		return newDeleteConflictError("detach all policies")
	}

	if len(i.Inline) > 0 {
		return newDeleteConflictError("delete policies")
	}

	return nil
}

func (s *IAM) tagRole(in *iam.TagRoleInput) (*iam.TagRoleOutput, error) {
	r, err := s.st.findRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	tags, err := mergeTags(r.Tags, in.Tags)
	if err != nil {
		return nil, err
	}

	r.Tags = tags

	return &iam.TagRoleOutput{}, nil
}

func (s *IAM) untagRole(in *iam.UntagRoleInput) (*iam.UntagRoleOutput, error) {
	r, err := s.st.findRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	r.Tags = removeTags(r.Tags, in.TagKeys)

	return &iam.UntagRoleOutput{}, nil
}

func (s *IAM) listRoleTags(in *iam.ListRoleTagsInput) (*iam.ListRoleTagsOutput, error) {
	r, err := s.st.findRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	w, err := paginateKeys(sortedKeys(r.Tags), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListRoleTagsOutput{IsTruncated: w.isTruncated, Marker: w.marker}
	for _, k := range w.keys {
		out.Tags = append(out.Tags, &iam.Tag{Key: new(k), Value: new(r.Tags[k])})
	}

	return out, nil
}
