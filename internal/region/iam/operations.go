// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Service is IAM on the wire.
func (s *IAM) Service() wire.Service {
	return wire.Service{
		Name:      "iam",
		Protocol:  wire.Query,
		Version:   "2010-05-08",
		Namespace: "https://iam.amazonaws.com/doc/2010-05-08/",
		Ops:       slices.Concat(s.roleOps(), s.policyOps(), s.instanceProfileOps(), s.userOps()),
		Authorize: s.authorizeRequest,
	}
}

func (s *IAM) roleOps() []wire.Op {
	return []wire.Op{
		writeOperation(
			s,
			"CreateRole",
			s.createRole,
		), readOperation(s, "GetRole", s.getRole), readOperation(s, "ListRoles", s.listRoles),
		writeOperation(
			s,
			"UpdateAssumeRolePolicy",
			s.updateAssumeRolePolicy,
		), writeOperation(s, "UpdateRole", s.updateRole), writeOperation(s, "DeleteRole", s.deleteRole),
		writeOperation(
			s,
			"TagRole",
			s.tagRole,
		), writeOperation(s, "UntagRole", s.untagRole), readOperation(s, "ListRoleTags", s.listRoleTags),
		writeOperation(s, "CreateServiceLinkedRole", s.createServiceLinkedRole),
		writeOperation(
			s,
			"PutRolePolicy",
			s.putRolePolicy,
		), readOperation(s, "GetRolePolicy", s.getRolePolicy),
		readOperation(
			s,
			"ListRolePolicies",
			s.listRolePolicies,
		), writeOperation(s, "DeleteRolePolicy", s.deleteRolePolicy),
		writeOperation(
			s,
			"AttachRolePolicy",
			s.attachRolePolicy,
		), writeOperation(s, "DetachRolePolicy", s.detachRolePolicy),
		readOperation(s, "ListAttachedRolePolicies", s.listAttachedRolePolicies),
		readOperation(
			s,
			"GetAccountAuthorizationDetails",
			s.getAccountAuthorizationDetails,
		), wire.Operation("SimulatePrincipalPolicy", s.simulatePrincipalPolicy),
	}
}

func (s *IAM) policyOps() []wire.Op {
	return []wire.Op{
		writeOperation(
			s,
			"CreatePolicy",
			s.createPolicy,
		), readOperation(s, "GetPolicy", s.getPolicy), readOperation(s, "ListPolicies", s.listPolicies),
		writeOperation(
			s,
			"DeletePolicy",
			s.deletePolicy,
		), writeOperation(s, "CreatePolicyVersion", s.createPolicyVersion),
		readOperation(
			s,
			"GetPolicyVersion",
			s.getPolicyVersion,
		), readOperation(s, "ListPolicyVersions", s.listPolicyVersions),
		writeOperation(
			s,
			"SetDefaultPolicyVersion",
			s.setDefaultPolicyVersion,
		), writeOperation(s, "DeletePolicyVersion", s.deletePolicyVersion),
	}
}

func (s *IAM) instanceProfileOps() []wire.Op {
	return []wire.Op{
		writeOperation(
			s,
			"CreateInstanceProfile",
			s.createInstanceProfile,
		), readOperation(s, "GetInstanceProfile", s.getInstanceProfile),
		readOperation(
			s,
			"ListInstanceProfiles",
			s.listInstanceProfiles,
		), readOperation(s, "ListInstanceProfilesForRole", s.listInstanceProfilesForRole),
		writeOperation(
			s,
			"DeleteInstanceProfile",
			s.deleteInstanceProfile,
		), writeOperation(s, "AddRoleToInstanceProfile", s.addRoleToInstanceProfile),
		writeOperation(
			s,
			"RemoveRoleFromInstanceProfile",
			s.removeRoleFromInstanceProfile,
		), writeOperation(s, "TagInstanceProfile", s.tagInstanceProfile),
		writeOperation(
			s,
			"UntagInstanceProfile",
			s.untagInstanceProfile,
		), readOperation(s, "ListInstanceProfileTags", s.listInstanceProfileTags),
	}
}

func (s *IAM) userOps() []wire.Op {
	return []wire.Op{
		writeOperation(
			s,
			"CreateUser",
			s.createUser,
		), wire.Operation("GetUser", s.getUser), readOperation(s, "ListUsers", s.listUsers),
		writeOperation(s, "DeleteUser", s.deleteUser), wire.Operation("CreateAccessKey", s.createAccessKey),
		wire.Operation(
			"DeleteAccessKey",
			s.deleteAccessKey,
		), wire.Operation("UpdateAccessKey", s.updateAccessKey),
		wire.Operation("ListAccessKeys", s.listAccessKeys),
		writeOperation(
			s,
			"PutUserPolicy",
			s.putUserPolicy,
		), readOperation(s, "GetUserPolicy", s.getUserPolicy),
		readOperation(
			s,
			"ListUserPolicies",
			s.listUserPolicies,
		), writeOperation(s, "DeleteUserPolicy", s.deleteUserPolicy),
		writeOperation(
			s,
			"AttachUserPolicy",
			s.attachUserPolicy,
		), writeOperation(s, "DetachUserPolicy", s.detachUserPolicy),
		readOperation(s, "ListAttachedUserPolicies", s.listAttachedUserPolicies),
	}
}

// authorizeRequest asks for the entity that an operation names, with its tags.
func (s *IAM) authorizeRequest(ctx context.Context, op string, in any) error {
	c := wire.Check{Action: "iam:" + op}
	var tags map[string]string
	c.Resource, tags = s.requestResource(in)
	c.Context = map[string][]string{}
	for k, v := range tags {
		c.Context["aws:ResourceTag/"+k] = []string{v}
	}

	if arn := wire.Member(in, "PolicyArn"); arn != "" && c.Resource != arn {
		c.Context["iam:PolicyARN"] = []string{arn}
	}

	if err := wire.Authorize(ctx, c); err != nil {
		return err
	}

	if made := map[string]string{"CreateRole": "iam:TagRole", "CreateUser": "iam:TagUser", "CreateInstanceProfile": "iam:TagInstanceProfile"}[op]; made != "" {
		tree, err := sdkshape.ShapeToMap(in)
		if err != nil || tree["Tags"] == nil {
			return err
		}

		c.Action = made // whoever makes it with tags must be allowed to tag it
		sdkshape.AddRequestTags(c.Context, tree["Tags"])

		return wire.Authorize(ctx, c)
	}

	if op != "AddRoleToInstanceProfile" {
		return nil
	}

	arn, _ := s.RoleARN(wire.Member(in, "RoleName"))

	return wire.Authorize(ctx, wire.Check{Action: "iam:PassRole", Resource: arn})
}

// requestResource is the ARN of the entity that in names, and its tags.
func (s *IAM) requestResource(in any) (string, map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := wire.Member(in, "Path")
	if path == "" {
		path = "/"
	}

	if name := wire.Member(in, "InstanceProfileName"); name != "" {
		if p, ok := s.st.Profiles[name]; ok {
			return p.profileARN(s), p.Tags
		}

		return s.entityARN("instance-profile", path, name), nil
	}

	if name := wire.Member(in, "RoleName"); name != "" {
		if r, ok := s.st.Roles[name]; ok {
			return r.roleARN(s), r.Tags
		}

		return s.entityARN("role", path, name), nil
	}

	if name := wire.Member(in, "UserName"); name != "" {
		if u, ok := s.st.Users[name]; ok {
			return u.userARN(s), u.Tags
		}

		return s.entityARN("user", path, name), nil
	}

	if arn := wire.Member(in, "PolicyArn"); arn != "" {
		return arn, nil
	}

	if name := wire.Member(in, "PolicyName"); name != "" {
		return s.entityARN("policy", path, name), nil
	}

	return "*", nil
}
