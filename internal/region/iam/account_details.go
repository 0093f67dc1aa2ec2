// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
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

// simulatePrincipalPolicy evaluates the policies of a user or a role for actions and resources.
func (s *IAM) simulatePrincipalPolicy(
	_ context.Context,
	in *iam.SimulatePrincipalPolicyInput,
) (*iam.SimulatePolicyResponse, error) {
	policies, boundary, err := s.findPoliciesByARN(*in.PolicySourceArn)
	if err != nil {
		return nil, err
	}

	for _, document := range in.PolicyInputList {
		p, err := authz.ParsePolicy(authz.IdentityPolicy, stringValue(document))
		if err != nil {
			return nil, newValidationError("the policy input is malformed: %v", err)
		}

		policies = append(policies, p)
	}

	keys := map[string][]string{}

	for _, e := range in.ContextEntries {
		for _, v := range e.ContextKeyValues {
			keys[stringValue(e.ContextKeyName)] = append(keys[stringValue(e.ContextKeyName)], stringValue(v))
		}
	}

	resources := in.ResourceArns
	if len(resources) == 0 {
		resources = []*string{new("*")}
	}

	var results []*iam.EvaluationResult

	for _, action := range in.ActionNames {
		for _, resource := range resources {
			r := authz.Request{Action: stringValue(action), Resource: stringValue(resource), Context: keys}
			results = append(results, &iam.EvaluationResult{
				EvalActionName:   action,
				EvalResourceName: resource,
				EvalDecision:     new(decisionName(authz.EvaluateWithin(policies, boundary, r))),
			})
		}
	}

	page, err := paginateIndexes(len(results), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.SimulatePolicyResponse{IsTruncated: page.isTruncated, Marker: page.marker}
	for _, i := range page.indexes {
		out.EvaluationResults = append(out.EvaluationResults, results[i])
	}

	return out, nil
}

// decisionName returns a decision as simulations name it.
func decisionName(d authz.Decision) string {
	switch {
	case d.Allowed:
		return iam.PolicyEvaluationDecisionTypeAllowed
	case d.Denied:
		return iam.PolicyEvaluationDecisionTypeExplicitDeny
	}

	return iam.PolicyEvaluationDecisionTypeImplicitDeny
}

// findPoliciesByARN returns the policies of a role or a user, and its boundary; a nil boundary is none.
func (s *IAM) findPoliciesByARN(arn string) (own, boundary []authz.Policy, err error) {
	for _, r := range s.st.Roles {
		if r.roleARN(s) == arn {
			return s.st.parseIdentityPolicies(&r.identity), s.st.boundaryPolicies(&r.identity), nil
		}
	}

	for _, u := range s.st.Users {
		if u.userARN(s) == arn {
			return s.st.parseIdentityPolicies(&u.identity), s.st.boundaryPolicies(&u.identity), nil
		}
	}

	return nil, nil, newNotFoundError("The principal %s cannot be found.", arn)
}
