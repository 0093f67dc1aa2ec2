// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"encoding/json"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// policyDocument returns a policy as text, as the services expect it. The property may be an object or a
// text.
func (req *Request) policyDocument(property string) string {
	return documentText(req.Properties[property])
}

func documentText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return ""
		}

		return string(b)
	}
}

// syncInlinePolicies makes a role's inline policies match its property Policies.
func (req *Request) syncInlinePolicies(ctx context.Context, before any) error {
	wanted := map[string]bool{}
	for _, p := range template.ListAt(req.Properties["Policies"]) {
		name := template.StringAt(p, "PolicyName")
		wanted[name] = true
		if err := req.runOperation(ctx, "iam", "PutRolePolicy", template.Object{
			"RoleName":       req.PhysicalID,
			"PolicyName":     name,
			"PolicyDocument": documentText(template.ValueAt(p, "PolicyDocument")),
		}); err != nil {
			return err
		}
	}

	for _, p := range template.ListAt(before) {
		if name := template.StringAt(p, "PolicyName"); !wanted[name] {
			if err := IgnoreNotFound(req.runOperation(ctx, "iam", "DeleteRolePolicy", template.Object{
				"RoleName":   req.PhysicalID,
				"PolicyName": name,
			})); err != nil {
				return err
			}
		}
	}

	return nil
}

// syncManagedPolicies makes a role's managed policies match its property ManagedPolicyArns.
func (req *Request) syncManagedPolicies(ctx context.Context, before, after any) error {
	more, fewer := diffLists(before, after)
	for _, arn := range more {
		if err := req.runOperation(ctx, "iam", "AttachRolePolicy", template.Object{
			"RoleName":  req.PhysicalID,
			"PolicyArn": arn,
		}); err != nil {
			return err
		}
	}

	for _, arn := range fewer {
		if err := IgnoreNotFound(req.runOperation(ctx, "iam", "DetachRolePolicy", template.Object{
			"RoleName":  req.PhysicalID,
			"PolicyArn": arn,
		})); err != nil {
			return err
		}
	}

	return nil
}

func iamTypes() map[string]Type {
	return map[string]Type{
		"AWS::IAM::Role": roleType(),
		"AWS::IAM::RolePolicy": {
			NeedsCapability: true,
			NameProperty:    "PolicyName",
			Create: func(ctx context.Context, req *Request) error {
				if err := putRolePolicy(ctx, req); err != nil {
					return err
				}

				return req.setPhysicalID(
					ctx,
					req.stringProperty("PolicyName")+"|"+req.stringProperty("RoleName"),
				)
			},
			Update: putRolePolicy,
			Delete: func(ctx context.Context, req *Request) error {
				return req.runOperation(
					ctx,
					"iam",
					"DeleteRolePolicy",
					req.pickProperties("RoleName", "PolicyName"),
				)
			},
		},
		"AWS::IAM::Policy": {
			NeedsCapability: true,
			NameProperty:    "PolicyName",
			Create: func(ctx context.Context, req *Request) error {
				if err := forEachRole(ctx, req, req.Properties["Roles"], putRolePolicy); err != nil {
					return err
				}

				return req.setPhysicalID(ctx, req.stringProperty("PolicyName"))
			},
			Update: func(ctx context.Context, req *Request) error {
				_, fewer := diffLists(req.OldProperties["Roles"], req.Properties["Roles"])
				if err := forEachRole(ctx, req, fewer, deleteRolePolicy); err != nil {
					return err
				}

				return forEachRole(ctx, req, req.Properties["Roles"], putRolePolicy)
			},
			Delete: func(ctx context.Context, req *Request) error {
				return forEachRole(ctx, req, req.Properties["Roles"], deleteRolePolicy)
			},
			ReplacementProperties: []string{"PolicyName"},
		},
		"AWS::IAM::ManagedPolicy":   managedPolicyType(),
		"AWS::IAM::InstanceProfile": instanceProfileType(),
		"AWS::IAM::OIDCProvider":    oidcProviderType(),
	}
}

func putRolePolicy(ctx context.Context, req *Request) error {
	in := req.pickProperties("RoleName", "PolicyName")
	in["PolicyDocument"] = req.policyDocument("PolicyDocument")
	return req.runOperation(ctx, "iam", "PutRolePolicy", in)
}

func deleteRolePolicy(ctx context.Context, req *Request) error {
	return IgnoreNotFound(
		req.runOperation(ctx, "iam", "DeleteRolePolicy", req.pickProperties("RoleName", "PolicyName")),
	)
}

// forEachRole calls do for each role in a list, with the property RoleName set to the role.
func forEachRole(
	ctx context.Context,
	req *Request,
	roles any,
	do func(context.Context, *Request) error,
) error {
	for _, r := range template.ListAt(roles) {
		one := *req
		one.Properties = req.omitProperties()
		one.Properties["RoleName"] = r
		if err := do(ctx, &one); err != nil {
			return err
		}
	}

	return nil
}

func roleType() Type {
	return Type{
		NeedsCapability: true,
		NameProperty:    "RoleName",
		MaxNameLength:   64,
		Create: func(ctx context.Context, req *Request) error {
			in := req.pickProperties("Path", "Description", "MaxSessionDuration", "PermissionsBoundary")
			name := req.physicalName()
			in["RoleName"] = name
			in["AssumeRolePolicyDocument"] = req.policyDocument("AssumeRolePolicyDocument")
			if tags := req.resourceTags(); len(tags) > 0 {
				in["Tags"] = tags
			}

			if err := req.runOperation(ctx, "iam", "CreateRole", in); err != nil &&
				(!req.Resumed || ErrorCode(err) != "EntityAlreadyExists") {
				return err
			}

			return req.setPhysicalID(ctx, name)
		},
		Stabilize: func(ctx context.Context, req *Request) error {
			out, err := req.callOperation(ctx, "iam", "GetRole", template.Object{"RoleName": req.PhysicalID})
			if err != nil {
				return err
			}

			req.Attributes["Arn"] = template.StringAt(out, "Role", "Arn")
			req.Attributes["RoleId"] = template.StringAt(out, "Role", "RoleId")
			if err := req.syncInlinePolicies(ctx, nil); err != nil {
				return err
			}

			return req.syncManagedPolicies(ctx, nil, req.Properties["ManagedPolicyArns"])
		},
		Update: updateRole,
		Delete: func(ctx context.Context, req *Request) error {
			own := *req
			own.Properties = template.Object{}
			if err := own.syncInlinePolicies(ctx, req.Properties["Policies"]); err != nil {
				return err
			}

			if err := req.syncManagedPolicies(ctx, req.Properties["ManagedPolicyArns"], nil); err != nil {
				return err
			}

			return req.runOperation(ctx, "iam", "DeleteRole", template.Object{"RoleName": req.PhysicalID})
		},
	}
}

// updateRoleBoundary sets or removes the permissions boundary of a role.
func updateRoleBoundary(ctx context.Context, req *Request) error {
	if !req.propertyChanged("PermissionsBoundary") {
		return nil
	}

	in := template.Object{"RoleName": req.PhysicalID}
	if req.stringProperty("PermissionsBoundary") == "" {
		return req.runOperation(ctx, "iam", "DeleteRolePermissionsBoundary", in)
	}

	in["PermissionsBoundary"] = req.stringProperty("PermissionsBoundary")

	return req.runOperation(ctx, "iam", "PutRolePermissionsBoundary", in)
}

func updateRole(ctx context.Context, req *Request) error {
	if err := updateRoleBoundary(ctx, req); err != nil {
		return err
	}

	if req.propertyChanged("AssumeRolePolicyDocument") {
		if err := req.runOperation(ctx, "iam", "UpdateAssumeRolePolicy", template.Object{
			"RoleName":       req.PhysicalID,
			"PolicyDocument": req.policyDocument("AssumeRolePolicyDocument"),
		}); err != nil {
			return err
		}
	}

	if req.propertyChanged("Description", "MaxSessionDuration") {
		in := req.pickProperties("MaxSessionDuration")
		in["RoleName"] = req.PhysicalID
		in["Description"] = req.stringProperty("Description")
		if err := req.runOperation(ctx, "iam", "UpdateRole", in); err != nil {
			return err
		}
	}

	if err := req.syncInlinePolicies(ctx, req.OldProperties["Policies"]); err != nil {
		return err
	}

	if err := req.syncManagedPolicies(
		ctx,
		req.OldProperties["ManagedPolicyArns"],
		req.Properties["ManagedPolicyArns"],
	); err != nil {
		return err
	}

	return req.updateTags("Tags", func(tags []any) error {
		return req.runOperation(ctx, "iam", "TagRole", template.Object{
			"RoleName": req.PhysicalID,
			"Tags":     tags,
		})
	}, func(keys []any) error {
		return req.runOperation(ctx, "iam", "UntagRole", template.Object{
			"RoleName": req.PhysicalID,
			"TagKeys":  keys,
		})
	})
}

func managedPolicyType() Type {
	return Type{
		NeedsCapability: true,
		NameProperty:    "ManagedPolicyName",
		MaxNameLength:   128,
		Create: func(ctx context.Context, req *Request) error {
			in := req.pickProperties("Path", "Description")
			in["PolicyName"] = req.physicalName()
			in["PolicyDocument"] = req.policyDocument("PolicyDocument")
			out, err := req.callOperation(ctx, "iam", "CreatePolicy", in)
			if err != nil {
				return err
			}

			return req.setPhysicalID(ctx, template.ValueAt(out, "Policy", "Arn"))
		},
		Stabilize: func(ctx context.Context, req *Request) error {
			req.Attributes["PolicyArn"] = req.PhysicalID
			return forEachAttachedRole(ctx, req, req.Properties["Roles"], "AttachRolePolicy")
		},
		Update: func(ctx context.Context, req *Request) error {
			if req.propertyChanged("PolicyDocument") {
				if err := createPolicyVersion(ctx, req); err != nil {
					return err
				}
			}

			more, fewer := diffLists(req.OldProperties["Roles"], req.Properties["Roles"])
			if err := forEachAttachedRole(ctx, req, more, "AttachRolePolicy"); err != nil {
				return err
			}

			return forEachAttachedRole(ctx, req, fewer, "DetachRolePolicy")
		},
		Delete: func(ctx context.Context, req *Request) error {
			if err := IgnoreNotFound(
				forEachAttachedRole(ctx, req, req.Properties["Roles"], "DetachRolePolicy"),
			); err != nil {
				return err
			}

			if err := deleteOldVersions(ctx, req); err != nil {
				return err
			}

			return req.runOperation(ctx, "iam", "DeletePolicy", template.Object{"PolicyArn": req.PhysicalID})
		},
	}
}

// forEachAttachedRole calls an operation such as AttachRolePolicy for each role in a list.
func forEachAttachedRole(ctx context.Context, req *Request, roles any, op string) error {
	for _, r := range template.ListAt(roles) {
		if err := req.runOperation(ctx, "iam", op, template.Object{
			"RoleName":  r,
			"PolicyArn": req.PhysicalID,
		}); err != nil {
			return err
		}
	}

	return nil
}

// createPolicyVersion creates a new default version, and deletes the others: IAM keeps five, CloudFormation
// one.
func createPolicyVersion(ctx context.Context, req *Request) error {
	err := req.runOperation(ctx,
		"iam",
		"CreatePolicyVersion",
		template.Object{
			"PolicyArn":      req.PhysicalID,
			"PolicyDocument": req.policyDocument("PolicyDocument"),
			"SetAsDefault":   true,
		},
	)
	if err != nil {
		return err
	}

	return deleteOldVersions(ctx, req)
}

// deleteOldVersions deletes the versions that are not the default.
func deleteOldVersions(ctx context.Context, req *Request) error {
	out, err := req.callOperation(ctx, "iam", "ListPolicyVersions", template.Object{
		"PolicyArn": req.PhysicalID,
	})
	for _, v := range template.ListAt(out, "Versions") {
		if template.ValueAt(v, "IsDefaultVersion") == true {
			continue
		}

		if err := req.runOperation(ctx, "iam", "DeletePolicyVersion", template.Object{
			"PolicyArn": req.PhysicalID,
			"VersionId": template.ValueAt(v, "VersionId"),
		}); err != nil {
			return err
		}
	}

	return err
}

func instanceProfileType() Type {
	return Type{
		NeedsCapability: true,
		NameProperty:    "InstanceProfileName",
		MaxNameLength:   128,
		Create:          createInstanceProfile,
		Stabilize:       stabilizeInstanceProfile,
		Update: func(ctx context.Context, req *Request) error {
			return syncProfileRoles(ctx, req, req.OldProperties["Roles"], req.Properties["Roles"])
		},
		Delete: deleteInstanceProfile,
	}
}

func syncProfileRoles(ctx context.Context, req *Request, before, after any) error {
	more, fewer := diffLists(before, after)
	for _, r := range fewer {
		if err := IgnoreNotFound(
			req.runOperation(ctx, "iam", "RemoveRoleFromInstanceProfile", template.Object{
				"InstanceProfileName": req.PhysicalID,
				"RoleName":            r,
			}),
		); err != nil {
			return err
		}
	}

	for _, r := range more {
		err := req.runOperation(ctx,
			"iam",
			"AddRoleToInstanceProfile",
			template.Object{"InstanceProfileName": req.PhysicalID, "RoleName": r},
		)
		if err != nil && (!req.Resumed || ErrorCode(err) != "LimitExceeded") {
			return err
		}
	}

	return nil
}

func createInstanceProfile(ctx context.Context, req *Request) error {
	in := req.pickProperties("Path")
	name := req.physicalName()
	in["InstanceProfileName"] = name
	if err := req.runOperation(ctx, "iam", "CreateInstanceProfile", in); err != nil &&
		(!req.Resumed || ErrorCode(err) != "EntityAlreadyExists") {
		return err
	}

	return req.setPhysicalID(ctx, name)
}

func stabilizeInstanceProfile(ctx context.Context, req *Request) error {
	out, err := req.callOperation(ctx,
		"iam",
		"GetInstanceProfile",
		template.Object{"InstanceProfileName": req.PhysicalID},
	)
	if err != nil {
		return err
	}

	req.Attributes["Arn"] = template.StringAt(out, "InstanceProfile", "Arn")

	return syncProfileRoles(ctx, req, nil, req.Properties["Roles"])
}

func deleteInstanceProfile(ctx context.Context, req *Request) error {
	if err := syncProfileRoles(ctx, req, req.Properties["Roles"], nil); err != nil {
		return err
	}

	return req.runOperation(ctx, "iam", "DeleteInstanceProfile", template.Object{
		"InstanceProfileName": req.PhysicalID,
	})
}
