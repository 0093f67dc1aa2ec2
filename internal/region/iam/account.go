// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// accountDetails pages through users, roles and policies as one list.
func (s *IAM) accountDetails(
	in *iam.GetAccountAuthorizationDetailsInput,
) (*iam.GetAccountAuthorizationDetailsOutput, error) {
	var keys []string
	add := func(filter string, names []string) {
		if len(in.Filter) == 0 ||
			slices.ContainsFunc(in.Filter, func(f *string) bool { return str(f) == filter }) {
			for _, n := range names {
				keys = append(keys, filter+" "+n)
			}
		}
	}

	add(iam.EntityTypeLocalManagedPolicy, sorted(s.st.Policies))
	add(iam.EntityTypeRole, sorted(s.st.Roles))
	add(iam.EntityTypeUser, sorted(s.st.Users))
	slices.Sort(keys)
	w, err := page(keys, in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.GetAccountAuthorizationDetailsOutput{IsTruncated: w.more, Marker: w.marker}

	for _, key := range w.keys {
		kind, name, _ := strings.Cut(key, " ")
		switch kind {
		case iam.EntityTypeRole:
			out.RoleDetailList = append(out.RoleDetailList, s.st.Roles[name].detail(s))
		case iam.EntityTypeUser:
			out.UserDetailList = append(out.UserDetailList, s.st.Users[name].detail(s))
		default:
			out.Policies = append(out.Policies, s.st.Policies[name].detail(s))
		}
	}

	return out, nil
}

func (r *role) detail(s *IAM) *iam.RoleDetail {
	out := &iam.RoleDetail{
		Arn:                      new(r.arn(s)),
		RoleId:                   new(r.ID),
		RoleName:                 new(r.Name),
		Path:                     new(r.Path),
		CreateDate:               new(r.Created),
		AssumeRolePolicyDocument: encoded(r.Trust),
		Tags:                     tagList(r.Tags),
		RolePolicyList:           r.inlineShapes(),
		AttachedManagedPolicies:  s.attachedShapes(r.Attached),
		InstanceProfileList:      []*iam.InstanceProfile{},
	}

	for _, name := range s.profilesOf(r.Name) {
		p := s.st.Profiles[name].shape(s)
		p.Tags = tagList(s.st.Profiles[name].Tags)
		out.InstanceProfileList = append(out.InstanceProfileList, p)
	}

	return out
}

func (u *user) detail(s *IAM) *iam.UserDetail {
	return &iam.UserDetail{
		Arn:                     new(u.arn(s)),
		UserId:                  new(u.ID),
		UserName:                new(u.Name),
		Path:                    new(u.Path),
		CreateDate:              new(u.Created),
		Tags:                    tagList(u.Tags),
		UserPolicyList:          u.inlineShapes(),
		AttachedManagedPolicies: s.attachedShapes(u.Attached),
		GroupList:               []*string{},
	}
}

// simulate answers what a user's or role's policies would say.
func (s *IAM) simulate(
	_ context.Context,
	in *iam.SimulatePrincipalPolicyInput,
) (*iam.SimulatePolicyResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	policies, err := s.policiesByARN(*in.PolicySourceArn)
	if err != nil {
		return nil, err
	}

	for _, document := range in.PolicyInputList {
		p, err := authz.Parse(authz.Identity, str(document))
		if err != nil {
			return nil, invalid("the policy input is malformed: %v", err)
		}

		policies = append(policies, p)
	}

	keys := map[string][]string{}

	for _, e := range in.ContextEntries {
		for _, v := range e.ContextKeyValues {
			keys[str(e.ContextKeyName)] = append(keys[str(e.ContextKeyName)], str(v))
		}
	}

	resources := in.ResourceArns
	if len(resources) == 0 {
		resources = []*string{new("*")}
	}

	out := &iam.SimulatePolicyResponse{IsTruncated: new(false)}

	for _, action := range in.ActionNames {
		for _, resource := range resources {
			d := authz.Decide(
				policies,
				authz.Request{Action: str(action), Resource: str(resource), Context: keys},
			)

			decision := iam.PolicyEvaluationDecisionTypeImplicitDeny
			switch {
			case d.Allowed:
				decision = iam.PolicyEvaluationDecisionTypeAllowed
			case d.Denied:
				decision = iam.PolicyEvaluationDecisionTypeExplicitDeny
			}

			out.EvaluationResults = append(out.EvaluationResults, &iam.EvaluationResult{
				EvalActionName: action, EvalResourceName: resource, EvalDecision: new(decision),
			})
		}
	}

	return out, nil
}

func (s *IAM) policiesByARN(arn string) ([]authz.Policy, error) {
	for _, r := range s.st.Roles {
		if r.arn(s) == arn {
			return s.parsed(&r.identity), nil
		}
	}

	for _, u := range s.st.Users {
		if u.arn(s) == arn {
			return s.parsed(&u.identity), nil
		}
	}

	return nil, missing("The principal %s cannot be found.", arn)
}
