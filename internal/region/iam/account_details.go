// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"
)

// getAccountAuthorizationDetails returns one page of the list of all users, roles and local policies.
func (s *IAM) getAccountAuthorizationDetails(
	in *iam.GetAccountAuthorizationDetailsInput,
) (*iam.GetAccountAuthorizationDetailsOutput, error) {
	var keys []string
	add := func(filter string, names []string) {
		if len(in.Filter) == 0 ||
			slices.ContainsFunc(in.Filter, func(f *string) bool { return stringValue(f) == filter }) {
			for _, n := range names {
				keys = append(keys, filter+" "+n)
			}
		}
	}

	add(iam.EntityTypeLocalManagedPolicy, s.stale.visible(kindPolicy, sortedKeys(s.st.Policies)))
	add(iam.EntityTypeRole, s.stale.visible(kindRole, sortedKeys(s.st.Roles)))
	add(iam.EntityTypeUser, s.stale.visible(kindUser, sortedKeys(s.st.Users)))
	slices.Sort(keys)
	w, err := paginateKeys(keys, in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.GetAccountAuthorizationDetailsOutput{IsTruncated: w.isTruncated, Marker: w.marker}

	for _, key := range w.keys {
		kind, name, _ := strings.Cut(key, " ")
		switch kind {
		case iam.EntityTypeRole:
			out.RoleDetailList = append(out.RoleDetailList, s.st.Roles[name].toRoleDetail(s))
		case iam.EntityTypeUser:
			out.UserDetailList = append(out.UserDetailList, s.st.Users[name].toUserDetail(s))
		default:
			out.Policies = append(out.Policies, s.st.Policies[name].toPolicyDetail(s))
		}
	}

	return out, nil
}

func (r *role) toRoleDetail(s *IAM) *iam.RoleDetail {
	out := &iam.RoleDetail{
		Arn:                      new(r.roleARN(s)),
		RoleId:                   new(r.ID),
		RoleName:                 new(r.Name),
		Path:                     new(r.Path),
		CreateDate:               new(r.Created),
		AssumeRolePolicyDocument: encodeDocument(r.Trust),
		Tags:                     tagList(r.Tags),
		RolePolicyList:           r.inlinePolicyDetails(s.stale.visibleInline(kindRole, &r.identity)),
		AttachedManagedPolicies:  s.st.attachedPolicies(r.Attached),
		PermissionsBoundary:      r.attachedBoundary(),
		InstanceProfileList:      []*iam.InstanceProfile{},
	}

	for _, name := range s.st.profileNamesForRole(r.Name) {
		p := s.st.Profiles[name].toInstanceProfile(s)
		p.Tags = tagList(s.st.Profiles[name].Tags)
		out.InstanceProfileList = append(out.InstanceProfileList, p)
	}

	return out
}

func (u *user) toUserDetail(s *IAM) *iam.UserDetail {
	return &iam.UserDetail{
		Arn:                     new(u.userARN(s)),
		UserId:                  new(u.ID),
		UserName:                new(u.Name),
		Path:                    new(u.Path),
		CreateDate:              new(u.Created),
		Tags:                    tagList(u.Tags),
		UserPolicyList:          u.inlinePolicyDetails(s.stale.visibleInline(kindUser, &u.identity)),
		AttachedManagedPolicies: s.st.attachedPolicies(u.Attached),
		PermissionsBoundary:     u.attachedBoundary(),
		GroupList:               []*string{},
	}
}
