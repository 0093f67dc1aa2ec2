// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// policyDocument is a policy as the services take it: a text. A property may hold an object or a text.
func (j *handlerRequest) policyDocument(property string) string {
	return documentText(j.props[property])
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

// syncInlinePolicies brings a role's policies to those in its Policies property.
func (j *handlerRequest) syncInlinePolicies(before any) error {
	wanted := map[string]bool{}
	for _, p := range template.ListAt(j.props["Policies"]) {
		name := template.StringAt(p, "PolicyName")
		wanted[name] = true
		if err := j.runOperation("iam", "PutRolePolicy", template.Object{"RoleName": j.physicalID, "PolicyName": name, "PolicyDocument": documentText(template.ValueAt(p, "PolicyDocument"))}); err != nil {
			return err
		}
	}

	for _, p := range template.ListAt(before) {
		if name := template.StringAt(p, "PolicyName"); !wanted[name] {
			if err := ignoreNotFound(j.runOperation("iam", "DeleteRolePolicy", template.Object{"RoleName": j.physicalID, "PolicyName": name})); err != nil {
				return err
			}
		}
	}

	return nil
}

// syncManagedPolicies brings a role's managed policies to those in its ManagedPolicyArns property.
func (j *handlerRequest) syncManagedPolicies(before, after any) error {
	more, fewer := diffLists(before, after)
	for _, arn := range more {
		if err := j.runOperation("iam", "AttachRolePolicy", template.Object{"RoleName": j.physicalID, "PolicyArn": arn}); err != nil {
			return err
		}
	}

	for _, arn := range fewer {
		if err := ignoreNotFound(j.runOperation("iam", "DetachRolePolicy", template.Object{"RoleName": j.physicalID, "PolicyArn": arn})); err != nil {
			return err
		}
	}

	return nil
}

func iamTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::IAM::Role": roleType(),
		"AWS::IAM::RolePolicy": {
			needsCapability: true,
			nameProperty:    "PolicyName",
			create: func(j *handlerRequest) error {
				if err := putRolePolicy(j); err != nil {
					return err
				}

				return j.setPhysicalID(j.stringProperty("PolicyName") + "|" + j.stringProperty("RoleName"))
			},
			update: putRolePolicy,
			delete: func(j *handlerRequest) error {
				return j.runOperation("iam", "DeleteRolePolicy", j.pickProperties("RoleName", "PolicyName"))
			},
		},
		"AWS::IAM::Policy": {
			needsCapability: true,
			nameProperty:    "PolicyName",
			create: func(j *handlerRequest) error {
				if err := forEachRole(j, j.props["Roles"], putRolePolicy); err != nil {
					return err
				}

				return j.setPhysicalID(j.stringProperty("PolicyName"))
			},
			update: func(j *handlerRequest) error {
				_, fewer := diffLists(j.oldProps["Roles"], j.props["Roles"])
				if err := forEachRole(j, fewer, deleteRolePolicy); err != nil {
					return err
				}

				return forEachRole(j, j.props["Roles"], putRolePolicy)
			},
			delete:                func(j *handlerRequest) error { return forEachRole(j, j.props["Roles"], deleteRolePolicy) },
			replacementProperties: []string{"PolicyName"},
		},
		"AWS::IAM::ManagedPolicy":   managedPolicyType(),
		"AWS::IAM::InstanceProfile": instanceProfileType(),
	}
}

func putRolePolicy(j *handlerRequest) error {
	in := j.pickProperties("RoleName", "PolicyName")
	in["PolicyDocument"] = j.policyDocument("PolicyDocument")
	return j.runOperation("iam", "PutRolePolicy", in)
}

func deleteRolePolicy(j *handlerRequest) error {
	return ignoreNotFound(
		j.runOperation("iam", "DeleteRolePolicy", j.pickProperties("RoleName", "PolicyName")),
	)
}

// forEachRole calls do for every role in a list, as if it were the property RoleName.
func forEachRole(j *handlerRequest, roles any, do func(*handlerRequest) error) error {
	for _, r := range template.ListAt(roles) {
		one := *j
		one.props = j.omitProperties()
		one.props["RoleName"] = r
		if err := do(&one); err != nil {
			return err
		}
	}

	return nil
}

func roleType() resourceType {
	return resourceType{
		needsCapability: true,
		nameProperty:    "RoleName",
		maxNameLength:   64,
		create: func(j *handlerRequest) error {
			in := j.pickProperties("Path", "Description", "MaxSessionDuration", "PermissionsBoundary")
			name := j.physicalName()
			in["RoleName"], in["AssumeRolePolicyDocument"] = name, j.policyDocument(
				"AssumeRolePolicyDocument",
			)
			if tags := j.resourceTags(); len(tags) > 0 {
				in["Tags"] = tags
			}

			if err := j.runOperation("iam", "CreateRole", in); err != nil &&
				(!j.resumed || errorCode(err) != "EntityAlreadyExists") {
				return err
			}

			return j.setPhysicalID(name)
		},
		stabilize: func(j *handlerRequest) error {
			out, err := j.callOperation("iam", "GetRole", template.Object{"RoleName": j.physicalID})
			if err != nil {
				return err
			}

			j.attributes["Arn"], j.attributes["RoleId"] = template.StringAt(
				out,
				"Role",
				"Arn",
			), template.StringAt(
				out,
				"Role",
				"RoleId",
			)
			if err := j.syncInlinePolicies(nil); err != nil {
				return err
			}

			return j.syncManagedPolicies(nil, j.props["ManagedPolicyArns"])
		},
		update: updateRole,
		delete: func(j *handlerRequest) error {
			own := *j
			own.props = template.Object{}
			if err := own.syncInlinePolicies(j.props["Policies"]); err != nil {
				return err
			}

			if err := j.syncManagedPolicies(j.props["ManagedPolicyArns"], nil); err != nil {
				return err
			}

			return j.runOperation("iam", "DeleteRole", template.Object{"RoleName": j.physicalID})
		},
	}
}

func updateRole(j *handlerRequest) error {
	if j.propertyChanged("AssumeRolePolicyDocument") {
		if err := j.runOperation("iam", "UpdateAssumeRolePolicy", template.Object{"RoleName": j.physicalID, "PolicyDocument": j.policyDocument("AssumeRolePolicyDocument")}); err != nil {
			return err
		}
	}

	if j.propertyChanged("Description", "MaxSessionDuration") {
		in := j.pickProperties("MaxSessionDuration")
		in["RoleName"], in["Description"] = j.physicalID, j.stringProperty("Description")
		if err := j.runOperation("iam", "UpdateRole", in); err != nil {
			return err
		}
	}

	if err := j.syncInlinePolicies(j.oldProps["Policies"]); err != nil {
		return err
	}

	if err := j.syncManagedPolicies(j.oldProps["ManagedPolicyArns"], j.props["ManagedPolicyArns"]); err != nil {
		return err
	}

	return j.updateTags("Tags", func(tags []any) error {
		return j.runOperation("iam", "TagRole", template.Object{"RoleName": j.physicalID, "Tags": tags})
	}, func(keys []any) error {
		return j.runOperation("iam", "UntagRole", template.Object{"RoleName": j.physicalID, "TagKeys": keys})
	})
}

func managedPolicyType() resourceType {
	return resourceType{
		needsCapability: true,
		nameProperty:    "ManagedPolicyName",
		maxNameLength:   128,
		create: func(j *handlerRequest) error {
			in := j.pickProperties("Path", "Description")
			in["PolicyName"], in["PolicyDocument"] = j.physicalName(), j.policyDocument("PolicyDocument")
			out, err := j.callOperation("iam", "CreatePolicy", in)
			if err != nil {
				return err
			}

			return j.setPhysicalID(template.ValueAt(out, "Policy", "Arn"))
		},
		stabilize: func(j *handlerRequest) error {
			j.attributes["PolicyArn"] = j.physicalID
			return forEachAttachedRole(j, j.props["Roles"], "AttachRolePolicy")
		},
		update: func(j *handlerRequest) error {
			if j.propertyChanged("PolicyDocument") {
				if err := createPolicyVersion(j); err != nil {
					return err
				}
			}

			more, fewer := diffLists(j.oldProps["Roles"], j.props["Roles"])
			if err := forEachAttachedRole(j, more, "AttachRolePolicy"); err != nil {
				return err
			}

			return forEachAttachedRole(j, fewer, "DetachRolePolicy")
		},
		delete: func(j *handlerRequest) error {
			if err := ignoreNotFound(forEachAttachedRole(j, j.props["Roles"], "DetachRolePolicy")); err != nil {
				return err
			}

			if err := deleteOldVersions(j); err != nil {
				return err
			}

			return j.runOperation("iam", "DeletePolicy", template.Object{"PolicyArn": j.physicalID})
		},
	}
}

// forEachAttachedRole attaches the policy to roles, or takes it from them.
func forEachAttachedRole(j *handlerRequest, roles any, op string) error {
	for _, r := range template.ListAt(roles) {
		if err := j.runOperation("iam", op, template.Object{"RoleName": r, "PolicyArn": j.physicalID}); err != nil {
			return err
		}
	}

	return nil
}

// createPolicyVersion makes a new default version; IAM keeps five, CloudFormation one.
func createPolicyVersion(j *handlerRequest) error {
	err := j.runOperation(
		"iam",
		"CreatePolicyVersion",
		template.Object{
			"PolicyArn":      j.physicalID,
			"PolicyDocument": j.policyDocument("PolicyDocument"),
			"SetAsDefault":   true,
		},
	)
	if err != nil {
		return err
	}

	return deleteOldVersions(j)
}

// deleteOldVersions deletes the versions that are not the default.
func deleteOldVersions(j *handlerRequest) error {
	out, err := j.callOperation("iam", "ListPolicyVersions", template.Object{"PolicyArn": j.physicalID})
	for _, v := range template.ListAt(out, "Versions") {
		if template.ValueAt(v, "IsDefaultVersion") == true {
			continue
		}

		if err := j.runOperation("iam", "DeletePolicyVersion", template.Object{"PolicyArn": j.physicalID, "VersionId": template.ValueAt(v, "VersionId")}); err != nil {
			return err
		}
	}

	return err
}

func instanceProfileType() resourceType {
	roles := func(j *handlerRequest, before, after any) error {
		more, fewer := diffLists(before, after)
		for _, r := range fewer {
			if err := ignoreNotFound(j.runOperation("iam", "RemoveRoleFromInstanceProfile", template.Object{"InstanceProfileName": j.physicalID, "RoleName": r})); err != nil {
				return err
			}
		}

		for _, r := range more {
			err := j.runOperation(
				"iam",
				"AddRoleToInstanceProfile",
				template.Object{"InstanceProfileName": j.physicalID, "RoleName": r},
			)
			if err != nil && (!j.resumed || errorCode(err) != "LimitExceeded") {
				return err
			}
		}

		return nil
	}

	return resourceType{
		needsCapability: true,
		nameProperty:    "InstanceProfileName",
		maxNameLength:   128,
		create: func(j *handlerRequest) error {
			in := j.pickProperties("Path")
			name := j.physicalName()
			in["InstanceProfileName"] = name
			if err := j.runOperation("iam", "CreateInstanceProfile", in); err != nil &&
				(!j.resumed || errorCode(err) != "EntityAlreadyExists") {
				return err
			}

			return j.setPhysicalID(name)
		},
		stabilize: func(j *handlerRequest) error {
			out, err := j.callOperation(
				"iam",
				"GetInstanceProfile",
				template.Object{"InstanceProfileName": j.physicalID},
			)
			if err != nil {
				return err
			}

			j.attributes["Arn"] = template.StringAt(out, "InstanceProfile", "Arn")

			return roles(j, nil, j.props["Roles"])
		},
		update: func(j *handlerRequest) error { return roles(j, j.oldProps["Roles"], j.props["Roles"]) },
		delete: func(j *handlerRequest) error {
			if err := roles(j, j.props["Roles"], nil); err != nil {
				return err
			}

			return j.runOperation("iam", "DeleteInstanceProfile", template.Object{"InstanceProfileName": j.physicalID})
		},
	}
}
