// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Service is IAM on the wire.
func (s *IAM) Service() wire.Service {
	return wire.Service{
		Name:      "iam",
		Protocol:  wire.Query,
		Version:   "2010-05-08",
		Namespace: "https://iam.amazonaws.com/doc/2010-05-08/",
		Ops:       slices.Concat(s.roleOps(), s.policyOps(), s.profileOps(), s.userOps()),
		Authorize: s.authorizeOp,
	}
}

func (s *IAM) roleOps() []wire.Op {
	return []wire.Op{
		write(
			s,
			"CreateRole",
			s.createRole,
		), read(s, "GetRole", s.getRole), read(s, "ListRoles", s.listRoles),
		write(
			s,
			"UpdateAssumeRolePolicy",
			s.updateTrust,
		), write(s, "UpdateRole", s.updateRole), write(s, "DeleteRole", s.deleteRole),
		write(
			s,
			"TagRole",
			s.tagRole,
		), write(s, "UntagRole", s.untagRole), read(s, "ListRoleTags", s.listRoleTags),
		write(s, "CreateServiceLinkedRole", s.createServiceLinkedRole),
		write(s, "PutRolePolicy", s.putRolePolicy), read(s, "GetRolePolicy", s.getRolePolicy),
		read(s, "ListRolePolicies", s.listRolePolicies), write(s, "DeleteRolePolicy", s.deleteRolePolicy),
		write(s, "AttachRolePolicy", s.attachRolePolicy), write(s, "DetachRolePolicy", s.detachRolePolicy),
		read(s, "ListAttachedRolePolicies", s.listAttachedRolePolicies),
		read(
			s,
			"GetAccountAuthorizationDetails",
			s.accountDetails,
		), wire.Operation("SimulatePrincipalPolicy", s.simulate),
	}
}

func (s *IAM) policyOps() []wire.Op {
	return []wire.Op{
		write(
			s,
			"CreatePolicy",
			s.createPolicy,
		), read(s, "GetPolicy", s.getPolicy), read(s, "ListPolicies", s.listPolicies),
		write(s, "DeletePolicy", s.deletePolicy), write(s, "CreatePolicyVersion", s.createPolicyVersion),
		read(s, "GetPolicyVersion", s.getPolicyVersion), read(s, "ListPolicyVersions", s.listPolicyVersions),
		write(
			s,
			"SetDefaultPolicyVersion",
			s.setDefaultPolicyVersion,
		), write(s, "DeletePolicyVersion", s.deletePolicyVersion),
	}
}

func (s *IAM) profileOps() []wire.Op {
	return []wire.Op{
		write(s, "CreateInstanceProfile", s.createProfile), read(s, "GetInstanceProfile", s.getProfile),
		read(
			s,
			"ListInstanceProfiles",
			s.listProfiles,
		), read(s, "ListInstanceProfilesForRole", s.listProfilesForRole),
		write(s, "DeleteInstanceProfile", s.deleteProfile), write(s, "AddRoleToInstanceProfile", s.addRole),
		write(s, "RemoveRoleFromInstanceProfile", s.removeRole), write(s, "TagInstanceProfile", s.tagProfile),
		write(
			s,
			"UntagInstanceProfile",
			s.untagProfile,
		), read(s, "ListInstanceProfileTags", s.listProfileTags),
	}
}

func (s *IAM) userOps() []wire.Op {
	return []wire.Op{
		write(
			s,
			"CreateUser",
			s.createUser,
		), wire.Operation("GetUser", s.getUser), read(s, "ListUsers", s.listUsers),
		write(s, "DeleteUser", s.deleteUser), wire.Operation("CreateAccessKey", s.createAccessKey),
		wire.Operation(
			"DeleteAccessKey",
			s.deleteAccessKey,
		), wire.Operation("UpdateAccessKey", s.updateAccessKey),
		wire.Operation("ListAccessKeys", s.listAccessKeys),
		write(s, "PutUserPolicy", s.putUserPolicy), read(s, "GetUserPolicy", s.getUserPolicy),
		read(s, "ListUserPolicies", s.listUserPolicies), write(s, "DeleteUserPolicy", s.deleteUserPolicy),
		write(s, "AttachUserPolicy", s.attachUserPolicy), write(s, "DetachUserPolicy", s.detachUserPolicy),
		read(s, "ListAttachedUserPolicies", s.listAttachedUserPolicies),
	}
}

// authorizeOp asks for the entity that an operation names, with its tags.
func (s *IAM) authorizeOp(ctx context.Context, op string, in any) error {
	c := wire.Check{Action: "iam:" + op}
	var tags map[string]string
	c.Resource, tags = s.target(in)
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
		tree, err := record.ShapeToMap(in)
		if err != nil || tree["Tags"] == nil {
			return err
		}

		c.Action = made // whoever makes it with tags must be allowed to tag it
		record.AddRequestTags(c.Context, tree["Tags"])

		return wire.Authorize(ctx, c)
	}

	if op != "AddRoleToInstanceProfile" {
		return nil
	}

	arn, _ := s.RoleARN(wire.Member(in, "RoleName"))

	return wire.Authorize(ctx, wire.Check{Action: "iam:PassRole", Resource: arn})
}

// target is the ARN of the entity that in names, and its tags.
func (s *IAM) target(in any) (string, map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := wire.Member(in, "Path")
	if path == "" {
		path = "/"
	}

	if name := wire.Member(in, "InstanceProfileName"); name != "" {
		if p, ok := s.st.Profiles[name]; ok {
			return p.arn(s), p.Tags
		}

		return s.arn("instance-profile", path, name), nil
	}

	if name := wire.Member(in, "RoleName"); name != "" {
		if r, ok := s.st.Roles[name]; ok {
			return r.arn(s), r.Tags
		}

		return s.arn("role", path, name), nil
	}

	if name := wire.Member(in, "UserName"); name != "" {
		if u, ok := s.st.Users[name]; ok {
			return u.arn(s), u.Tags
		}

		return s.arn("user", path, name), nil
	}

	if arn := wire.Member(in, "PolicyArn"); arn != "" {
		return arn, nil
	}

	if name := wire.Member(in, "PolicyName"); name != "" {
		return s.arn("policy", path, name), nil
	}

	return "*", nil
}
