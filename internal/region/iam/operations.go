// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Service returns IAM's operations for the wire layer.
func (s *IAM) Service() wire.Service {
	operations := slices.Concat(
		roleOps(s),
		policyOps(s),
		policyTagOps(s),
		instanceProfileOps(s),
		userOps(s),
		boundaryOps(s),
		oidcOps(s),
	)
	for i, op := range operations {
		operations[i] = staleHandlers{s}.wrap(op)
	}

	return wire.Service{
		Name:       "iam",
		Protocol:   wire.QueryProtocol,
		Version:    "2010-05-08",
		Namespace:  "https://iam.amazonaws.com/doc/2010-05-08/",
		Operations: operations,
		Authorize:  s.authorizeRequest,
	}
}

func roleOps(s *IAM) []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "CreateRole", s.createRole),
		state.ReadOperation(s.store, "GetRole", s.getRole),
		state.ReadOperation(s.store, "ListRoles", s.listRoles),
		state.WriteOperation(s.store, "UpdateAssumeRolePolicy", s.updateAssumeRolePolicy),
		state.WriteOperation(s.store, "UpdateRole", s.updateRole),
		state.WriteOperation(s.store, "DeleteRole", s.deleteRole),
		state.WriteOperation(s.store, "TagRole", s.tagRole),
		state.WriteOperation(s.store, "UntagRole", s.untagRole),
		state.ReadOperation(s.store, "ListRoleTags", s.listRoleTags),
		state.WriteOperation(s.store, "CreateServiceLinkedRole", s.createServiceLinkedRole),
		state.WriteOperation(s.store, "PutRolePolicy", s.putRolePolicy),
		state.ReadOperation(s.store, "GetRolePolicy", s.getRolePolicy),
		state.ReadOperation(s.store, "ListRolePolicies", s.listRolePolicies),
		state.WriteOperation(s.store, "DeleteRolePolicy", s.deleteRolePolicy),
		state.WriteOperation(s.store, "AttachRolePolicy", s.attachRolePolicy),
		state.WriteOperation(s.store, "DetachRolePolicy", s.detachRolePolicy),
		state.ReadOperation(s.store, "ListAttachedRolePolicies", s.listAttachedRolePolicies),
		state.ReadOperation(s.store, "GetAccountAuthorizationDetails", s.getAccountAuthorizationDetails),
		state.ReadOperation(s.store, "GetAccountSummary", accountHandlers{s}.getAccountSummary),
		state.ReadOperationContext(s.store, "SimulatePrincipalPolicy", s.simulatePrincipalPolicy),
	}
}

func policyOps(s *IAM) []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "CreatePolicy", s.createPolicy),
		state.ReadOperation(s.store, "GetPolicy", s.getPolicy),
		state.ReadOperation(s.store, "ListPolicies", s.listPolicies),
		state.WriteOperation(s.store, "DeletePolicy", s.deletePolicy),
		state.WriteOperation(s.store, "CreatePolicyVersion", s.createPolicyVersion),
		state.ReadOperation(s.store, "GetPolicyVersion", s.getPolicyVersion),
		state.ReadOperation(s.store, "ListPolicyVersions", s.listPolicyVersions),
		state.WriteOperation(s.store, "SetDefaultPolicyVersion", s.setDefaultPolicyVersion),
		state.WriteOperation(s.store, "DeletePolicyVersion", s.deletePolicyVersion),
	}
}

func instanceProfileOps(s *IAM) []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "CreateInstanceProfile", s.createInstanceProfile),
		state.ReadOperation(s.store, "GetInstanceProfile", s.getInstanceProfile),
		state.ReadOperation(s.store, "ListInstanceProfiles", s.listInstanceProfiles),
		state.ReadOperation(s.store, "ListInstanceProfilesForRole", s.listInstanceProfilesForRole),
		state.WriteOperation(s.store, "DeleteInstanceProfile", s.deleteInstanceProfile),
		state.WriteOperation(s.store, "AddRoleToInstanceProfile", s.addRoleToInstanceProfile),
		state.WriteOperation(s.store, "RemoveRoleFromInstanceProfile", s.removeRoleFromInstanceProfile),
		state.WriteOperation(s.store, "TagInstanceProfile", s.tagInstanceProfile),
		state.WriteOperation(s.store, "UntagInstanceProfile", s.untagInstanceProfile),
		state.ReadOperation(s.store, "ListInstanceProfileTags", s.listInstanceProfileTags),
	}
}

func userOps(s *IAM) []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "CreateUser", s.createUser),
		state.ReadOperationContext(s.store, "GetUser", s.getUser),
		state.ReadOperation(s.store, "ListUsers", s.listUsers),
		state.WriteOperation(s.store, "DeleteUser", s.deleteUser),
		state.WriteOperationContext(s.store, "CreateAccessKey", s.createAccessKey),
		state.WriteOperationContext(s.store, "DeleteAccessKey", s.deleteAccessKey),
		state.WriteOperationContext(s.store, "UpdateAccessKey", s.updateAccessKey),
		state.ReadOperationContext(s.store, "ListAccessKeys", s.listAccessKeys),
		state.WriteOperation(s.store, "PutUserPolicy", s.putUserPolicy),
		state.ReadOperation(s.store, "GetUserPolicy", s.getUserPolicy),
		state.ReadOperation(s.store, "ListUserPolicies", s.listUserPolicies),
		state.WriteOperation(s.store, "DeleteUserPolicy", s.deleteUserPolicy),
		state.WriteOperation(s.store, "AttachUserPolicy", s.attachUserPolicy),
		state.WriteOperation(s.store, "DetachUserPolicy", s.detachUserPolicy),
		state.ReadOperation(s.store, "ListAttachedUserPolicies", s.listAttachedUserPolicies),
	}
}

// authorizeRequest asks IAM about the entity that a request names. A caller who creates an entity with tags
// also needs the right to tag it, and a caller who adds a role to an instance profile the right to pass the
// role.
func (s *IAM) authorizeRequest(ctx context.Context, op string, in any) error {
	c := wire.AccessCheck{Action: "iam:" + op}
	var tags map[string]string
	c.Resource, tags = s.requestResource(in)
	c.Context = map[string][]string{}
	for k, v := range tags {
		c.Context["aws:ResourceTag/"+k] = []string{v}
	}

	if arn := wire.StringMember(in, "PolicyArn"); arn != "" && c.Resource != arn {
		c.Context["iam:PolicyARN"] = []string{arn}
	}

	if arn := s.requestBoundary(op, in); arn != "" {
		c.Context[boundaryKey] = []string{arn}
	}

	if err := wire.Authorize(ctx, c); err != nil {
		return err
	}

	tagAction := map[string]string{
		"CreateRole":            "iam:TagRole",
		"CreateUser":            "iam:TagUser",
		"CreatePolicy":          "iam:TagPolicy",
		"CreateInstanceProfile": "iam:TagInstanceProfile",

		"CreateOpenIDConnectProvider": "iam:TagOpenIDConnectProvider",
	}[op]
	if tagAction != "" {
		tree, err := sdkshape.ShapeToMap(in)
		if err != nil || tree["Tags"] == nil {
			return err
		}

		c.Action = tagAction
		sdkshape.AddRequestTags(c.Context, tree["Tags"])

		return wire.Authorize(ctx, c)
	}

	if op != "AddRoleToInstanceProfile" {
		return nil
	}

	arn, _ := findRoleARN(s, wire.StringMember(in, "RoleName"))

	return wire.Authorize(ctx, wire.AccessCheck{
		Action:   "iam:PassRole",
		Resource: arn,
		Context:  map[string][]string{"iam:PassedToService": {"ec2.amazonaws.com"}},
	})
}

// requestResource returns the ARN of the entity that a request names, and its tags; "*" if it names none.
func (s *IAM) requestResource(in any) (string, map[string]string) {
	s.store.Lock()
	defer s.store.Unlock()
	path := wire.StringMember(in, "Path")
	if path == "" {
		path = "/"
	}

	if arn, tags := (oidcHandlers{s}).requestProvider(in); arn != "" {
		return arn, tags
	}

	if name := wire.StringMember(in, "InstanceProfileName"); name != "" {
		if p, ok := s.st.Profiles[name]; ok {
			return p.profileARN(s), p.Tags
		}

		return s.entityARN("instance-profile", path, name), nil
	}

	if name := wire.StringMember(in, "RoleName"); name != "" {
		if r, ok := s.st.Roles[name]; ok {
			return r.roleARN(s), r.Tags
		}

		return s.entityARN("role", path, name), nil
	}

	if name := wire.StringMember(in, "UserName"); name != "" {
		if u, ok := s.st.Users[name]; ok {
			return u.userARN(s), u.Tags
		}

		return s.entityARN("user", path, name), nil
	}

	if arn := wire.StringMember(in, "PolicyArn"); arn != "" {
		if p, ok := s.st.Policies[arn]; ok {
			return arn, p.Tags
		}

		return arn, nil
	}

	if name := wire.StringMember(in, "PolicyName"); name != "" {
		return s.entityARN("policy", path, name), nil
	}

	return "*", nil
}
