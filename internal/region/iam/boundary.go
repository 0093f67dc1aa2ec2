// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// boundaryKey is the condition key with the ARN of a permissions boundary.
const boundaryKey = "iam:PermissionsBoundary"

// boundaryHandlers are the operations on permissions boundaries.
type boundaryHandlers struct{ *IAM }

func boundaryOps(i *IAM) []wire.Operation {
	s := boundaryHandlers{i}

	return []wire.Operation{
		state.WriteOperation(s.store, "PutRolePermissionsBoundary", s.putRoleBoundary),
		state.WriteOperation(s.store, "DeleteRolePermissionsBoundary", s.deleteRoleBoundary),
		state.WriteOperation(s.store, "PutUserPermissionsBoundary", s.putUserBoundary),
		state.WriteOperation(s.store, "DeleteUserPermissionsBoundary", s.deleteUserBoundary),
	}
}

// setBoundary sets the boundary of an identity. The policy must exist; an empty ARN removes the boundary.
func (st *serviceState) setBoundary(i *identity, arn string) error {
	if arn != "" {
		p, err := st.findPolicy(arn)
		if err != nil {
			return err
		}

		if p.Path == serviceLinkedPath {
			return newErrorf(
				codePolicyNotAttachable,
				"Policy %s is of service-linked roles only.",
				arn,
			)
		}
	}

	i.Boundary = arn

	return nil
}

// attachedBoundary describes the boundary of an identity; nil for none.
func (i *identity) attachedBoundary() *iam.AttachedPermissionsBoundary {
	if i.Boundary == "" {
		return nil
	}

	return &iam.AttachedPermissionsBoundary{
		PermissionsBoundaryArn:  new(i.Boundary),
		PermissionsBoundaryType: new(iam.PermissionsBoundaryAttachmentTypePermissionsBoundaryPolicy),
	}
}

// countBoundaries returns the number of roles and users whose boundary a policy is.
func (st *serviceState) countBoundaries(arn string) int64 {
	var n int64
	for _, r := range st.Roles {
		if r.Boundary == arn {
			n++
		}
	}

	for _, u := range st.Users {
		if u.Boundary == arn {
			n++
		}
	}

	return n
}

func (s boundaryHandlers) putRoleBoundary(
	in *iam.PutRolePermissionsBoundaryInput,
) (*iam.PutRolePermissionsBoundaryOutput, error) {
	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	return &iam.PutRolePermissionsBoundaryOutput{}, s.st.setBoundary(&r.identity, *in.PermissionsBoundary)
}

func (s boundaryHandlers) deleteRoleBoundary(
	in *iam.DeleteRolePermissionsBoundaryInput,
) (*iam.DeleteRolePermissionsBoundaryOutput, error) {
	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	if r.Boundary == "" {
		return nil, newNotFoundError("Role %s does not have a permissions boundary.", r.Name)
	}

	return &iam.DeleteRolePermissionsBoundaryOutput{}, s.st.setBoundary(&r.identity, "")
}

func (s boundaryHandlers) putUserBoundary(
	in *iam.PutUserPermissionsBoundaryInput,
) (*iam.PutUserPermissionsBoundaryOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	return &iam.PutUserPermissionsBoundaryOutput{}, s.st.setBoundary(&u.identity, *in.PermissionsBoundary)
}

func (s boundaryHandlers) deleteUserBoundary(
	in *iam.DeleteUserPermissionsBoundaryInput,
) (*iam.DeleteUserPermissionsBoundaryOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	if u.Boundary == "" {
		return nil, newNotFoundError("User %s does not have a permissions boundary.", u.Name)
	}

	return &iam.DeleteUserPermissionsBoundaryOutput{}, s.st.setBoundary(&u.identity, "")
}

// boundaryPolicies returns the boundary of an identity as a set of policies; nil without a boundary. A boundary whose
// policy was deleted allows nothing.
func (st *serviceState) boundaryPolicies(i *identity) []authz.Policy {
	if i.Boundary == "" {
		return nil
	}

	if p, err := st.findPolicy(i.Boundary); err == nil {
		return appendPolicy(nil, p.defaultDocument())
	}

	return []authz.Policy{{}}
}

// requestBoundary returns the value of the condition key for a request: the boundary that the request sets, or that
// of the role or user whose policies it changes. AWS's reference lists the operations that have the key.
func (s *IAM) requestBoundary(op string, in any) string {
	switch op {
	case "CreateRole", "CreateUser", "PutRolePermissionsBoundary", "PutUserPermissionsBoundary":
		return wire.StringMember(in, "PermissionsBoundary")
	}

	if !strings.HasSuffix(op, "RolePolicy") && !strings.HasSuffix(op, "UserPolicy") &&
		!strings.HasSuffix(op, "PermissionsBoundary") || strings.HasPrefix(op, "Get") {
		return ""
	}

	s.store.Lock()
	defer s.store.Unlock()
	if r, ok := s.st.Roles[wire.StringMember(in, "RoleName")]; ok && op != "UpdateAssumeRolePolicy" {
		return r.Boundary
	}

	if u, ok := s.st.Users[wire.StringMember(in, "UserName")]; ok {
		return u.Boundary
	}

	return ""
}
