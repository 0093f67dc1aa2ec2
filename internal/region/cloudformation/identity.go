// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "encoding/json"

// document is a policy as the services take it: a text. A property may hold an object or a text.
func (j *job) document(property string) string { return documentOf(j.props[property]) }

func documentOf(v any) string {
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

// inline brings a role's policies to those in its Policies property.
func (j *job) inline(before any) error {
	wanted := map[string]bool{}
	for _, p := range list0(j.props["Policies"]) {
		name := textOf(p, "PolicyName")
		wanted[name] = true
		if err := j.do("iam", "PutRolePolicy", tree{"RoleName": j.id, "PolicyName": name, "PolicyDocument": documentOf(at(p, "PolicyDocument"))}); err != nil {
			return err
		}
	}
	for _, p := range list0(before) {
		if name := textOf(p, "PolicyName"); !wanted[name] {
			if err := unlessAbsent(j.do("iam", "DeleteRolePolicy", tree{"RoleName": j.id, "PolicyName": name})); err != nil {
				return err
			}
		}
	}
	return nil
}

// attach brings a role's managed policies to those in its ManagedPolicyArns property.
func (j *job) attach(before, after any) error {
	more, fewer := changes(before, after)
	for _, arn := range more {
		if err := j.do("iam", "AttachRolePolicy", tree{"RoleName": j.id, "PolicyArn": arn}); err != nil {
			return err
		}
	}
	for _, arn := range fewer {
		if err := unlessAbsent(j.do("iam", "DetachRolePolicy", tree{"RoleName": j.id, "PolicyArn": arn})); err != nil {
			return err
		}
	}
	return nil
}

func iamTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::IAM::Role": roleType(),
		"AWS::IAM::RolePolicy": {
			iam: true, name: "PolicyName",
			make: func(j *job) error {
				if err := putPolicy(j); err != nil {
					return err
				}
				return j.made(j.text("PolicyName") + "|" + j.text("RoleName"))
			},
			change: putPolicy,
			remove: func(j *job) error { return j.do("iam", "DeleteRolePolicy", j.take("RoleName", "PolicyName")) },
		},
		"AWS::IAM::Policy": {
			iam: true, name: "PolicyName",
			make: func(j *job) error {
				if err := eachRole(j, j.props["Roles"], putPolicy); err != nil {
					return err
				}
				return j.made(j.text("PolicyName"))
			},
			change: func(j *job) error {
				_, fewer := changes(j.old["Roles"], j.props["Roles"])
				if err := eachRole(j, fewer, dropPolicy); err != nil {
					return err
				}
				return eachRole(j, j.props["Roles"], putPolicy)
			},
			remove:   func(j *job) error { return eachRole(j, j.props["Roles"], dropPolicy) },
			replaced: []string{"PolicyName"},
		},
		"AWS::IAM::ManagedPolicy":   managedType(),
		"AWS::IAM::InstanceProfile": profileType(),
	}
}

func putPolicy(j *job) error {
	in := j.take("RoleName", "PolicyName")
	in["PolicyDocument"] = j.document("PolicyDocument")
	return j.do("iam", "PutRolePolicy", in)
}

func dropPolicy(j *job) error {
	return unlessAbsent(j.do("iam", "DeleteRolePolicy", j.take("RoleName", "PolicyName")))
}

// eachRole calls do for every role in a list, as if it were the property RoleName.
func eachRole(j *job, roles any, do func(*job) error) error {
	for _, r := range list0(roles) {
		one := *j
		one.props = j.takeAll()
		one.props["RoleName"] = r
		if err := do(&one); err != nil {
			return err
		}
	}
	return nil
}

func roleType() resourceType {
	return resourceType{
		iam: true, name: "RoleName", max: 64,
		make: func(j *job) error {
			in := j.take("Path", "Description", "MaxSessionDuration", "PermissionsBoundary")
			name := j.named()
			in["RoleName"], in["AssumeRolePolicyDocument"] = name, j.document("AssumeRolePolicyDocument")
			if tags := j.tagsOf(); len(tags) > 0 {
				in["Tags"] = tags
			}
			if err := j.do("iam", "CreateRole", in); err != nil && (!j.again || code(err) != "EntityAlreadyExists") {
				return err
			}
			return j.made(name)
		},
		settle: func(j *job) error {
			out, err := j.call("iam", "GetRole", tree{"RoleName": j.id})
			if err != nil {
				return err
			}
			j.attributes["Arn"], j.attributes["RoleId"] = textOf(out, "Role", "Arn"), textOf(out, "Role", "RoleId")
			if err := j.inline(nil); err != nil {
				return err
			}
			return j.attach(nil, j.props["ManagedPolicyArns"])
		},
		change: changeRole,
		remove: func(j *job) error {
			own := *j
			own.props = tree{}
			if err := own.inline(j.props["Policies"]); err != nil {
				return err
			}
			if err := j.attach(j.props["ManagedPolicyArns"], nil); err != nil {
				return err
			}
			return j.do("iam", "DeleteRole", tree{"RoleName": j.id})
		},
	}
}

func changeRole(j *job) error {
	if j.differs("AssumeRolePolicyDocument") {
		if err := j.do("iam", "UpdateAssumeRolePolicy", tree{"RoleName": j.id, "PolicyDocument": j.document("AssumeRolePolicyDocument")}); err != nil {
			return err
		}
	}
	if j.differs("Description", "MaxSessionDuration") {
		in := j.take("MaxSessionDuration")
		in["RoleName"], in["Description"] = j.id, j.text("Description")
		if err := j.do("iam", "UpdateRole", in); err != nil {
			return err
		}
	}
	if err := j.inline(j.old["Policies"]); err != nil {
		return err
	}
	if err := j.attach(j.old["ManagedPolicyArns"], j.props["ManagedPolicyArns"]); err != nil {
		return err
	}
	return j.retag("Tags", func(tags []any) error {
		return j.do("iam", "TagRole", tree{"RoleName": j.id, "Tags": tags})
	}, func(keys []any) error { return j.do("iam", "UntagRole", tree{"RoleName": j.id, "TagKeys": keys}) })
}

func managedType() resourceType {
	return resourceType{
		iam: true, name: "ManagedPolicyName", max: 128,
		make: func(j *job) error {
			in := j.take("Path", "Description")
			in["PolicyName"], in["PolicyDocument"] = j.named(), j.document("PolicyDocument")
			out, err := j.call("iam", "CreatePolicy", in)
			if err != nil {
				return err
			}
			return j.made(at(out, "Policy", "Arn"))
		},
		settle: func(j *job) error {
			j.attributes["PolicyArn"] = j.id
			return eachARN(j, j.props["Roles"], "AttachRolePolicy")
		},
		change: func(j *job) error {
			if j.differs("PolicyDocument") {
				if err := newVersion(j); err != nil {
					return err
				}
			}
			more, fewer := changes(j.old["Roles"], j.props["Roles"])
			if err := eachARN(j, more, "AttachRolePolicy"); err != nil {
				return err
			}
			return eachARN(j, fewer, "DetachRolePolicy")
		},
		remove: func(j *job) error {
			if err := unlessAbsent(eachARN(j, j.props["Roles"], "DetachRolePolicy")); err != nil {
				return err
			}
			if err := dropVersions(j); err != nil {
				return err
			}
			return j.do("iam", "DeletePolicy", tree{"PolicyArn": j.id})
		},
	}
}

// eachARN attaches the policy to roles, or takes it from them.
func eachARN(j *job, roles any, op string) error {
	for _, r := range list0(roles) {
		if err := j.do("iam", op, tree{"RoleName": r, "PolicyArn": j.id}); err != nil {
			return err
		}
	}
	return nil
}

// newVersion makes a new default version; IAM keeps five, CloudFormation one.
func newVersion(j *job) error {
	err := j.do("iam", "CreatePolicyVersion", tree{"PolicyArn": j.id, "PolicyDocument": j.document("PolicyDocument"), "SetAsDefault": true})
	if err != nil {
		return err
	}
	return dropVersions(j)
}

// dropVersions deletes the versions that are not the default.
func dropVersions(j *job) error {
	out, err := j.call("iam", "ListPolicyVersions", tree{"PolicyArn": j.id})
	for _, v := range list0(out, "Versions") {
		if at(v, "IsDefaultVersion") == true {
			continue
		}
		if err := j.do("iam", "DeletePolicyVersion", tree{"PolicyArn": j.id, "VersionId": at(v, "VersionId")}); err != nil {
			return err
		}
	}
	return err
}

func profileType() resourceType {
	roles := func(j *job, before, after any) error {
		more, fewer := changes(before, after)
		for _, r := range fewer {
			if err := unlessAbsent(j.do("iam", "RemoveRoleFromInstanceProfile", tree{"InstanceProfileName": j.id, "RoleName": r})); err != nil {
				return err
			}
		}
		for _, r := range more {
			err := j.do("iam", "AddRoleToInstanceProfile", tree{"InstanceProfileName": j.id, "RoleName": r})
			if err != nil && (!j.again || code(err) != "LimitExceeded") {
				return err
			}
		}
		return nil
	}
	return resourceType{
		iam: true, name: "InstanceProfileName", max: 128,
		make: func(j *job) error {
			in := j.take("Path")
			name := j.named()
			in["InstanceProfileName"] = name
			if err := j.do("iam", "CreateInstanceProfile", in); err != nil && (!j.again || code(err) != "EntityAlreadyExists") {
				return err
			}
			return j.made(name)
		},
		settle: func(j *job) error {
			out, err := j.call("iam", "GetInstanceProfile", tree{"InstanceProfileName": j.id})
			if err != nil {
				return err
			}
			j.attributes["Arn"] = textOf(out, "InstanceProfile", "Arn")
			return roles(j, nil, j.props["Roles"])
		},
		change: func(j *job) error { return roles(j, j.old["Roles"], j.props["Roles"]) },
		remove: func(j *job) error {
			if err := roles(j, j.props["Roles"], nil); err != nil {
				return err
			}
			return j.do("iam", "DeleteInstanceProfile", tree{"InstanceProfileName": j.id})
		},
	}
}
