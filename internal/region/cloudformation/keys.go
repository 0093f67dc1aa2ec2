// SPDX-License-Identifier: Apache-2.0

package cloudformation

// kmsTags are tags as KMS takes them.
func kmsTags(tags []any) []any {
	out := []any{}
	for _, t := range tags {
		out = append(out, tree{"TagKey": at(t, "Key"), "TagValue": at(t, "Value")})
	}
	return out
}

func keyTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::KMS::Key":   keyType(),
		"AWS::KMS::Alias": aliasType(),
	}
}

// setRotation turns a key's rotation on or off.
func setRotation(j *job) error {
	op := "DisableKeyRotation"
	if j.props["EnableKeyRotation"] == true {
		op = "EnableKeyRotation"
	}
	return j.do("kms", op, tree{"KeyId": j.id})
}

// enable turns a key on or off.
func enable(j *job) error {
	op := "EnableKey"
	if j.props["Enabled"] == false {
		op = "DisableKey"
	}
	return j.do("kms", op, tree{"KeyId": j.id})
}

func keyType() resourceType {
	return resourceType{
		make: func(j *job) error {
			in := j.take("Description", "KeySpec", "KeyUsage", "MultiRegion", "Origin")
			if p := j.document("KeyPolicy"); p != "" {
				in["Policy"] = p
			}
			if tags := j.tagsOf(); len(tags) > 0 {
				in["Tags"] = kmsTags(tags)
			}
			out, err := j.call("kms", "CreateKey", in)
			if err != nil {
				return err
			}
			return j.made(at(out, "KeyMetadata", "KeyId"))
		},
		settle: func(j *job) error {
			out, err := j.call("kms", "DescribeKey", tree{"KeyId": j.id})
			if err != nil {
				return err
			}
			j.attributes["Arn"], j.attributes["KeyId"] = textOf(out, "KeyMetadata", "Arn"), j.id
			if j.props["EnableKeyRotation"] == true {
				if err := setRotation(j); err != nil {
					return err
				}
			}
			if j.props["Enabled"] == false {
				return enable(j)
			}
			return nil
		},
		change: changeKey,
		remove: func(j *job) error {
			in := tree{"KeyId": j.id}
			if days, ok := j.props["PendingWindowInDays"]; ok {
				in["PendingWindowInDays"] = days
			}
			err := j.do("kms", "ScheduleKeyDeletion", in)
			if code(err) == "KMSInvalidStateException" {
				return nil // it is scheduled already
			}
			return err
		},
		replaced: []string{"KeySpec", "KeyUsage", "MultiRegion", "Origin"},
	}
}

func changeKey(j *job) error {
	for _, part := range []struct {
		property string
		set      func(*job) error
	}{
		{"KeyPolicy", func(j *job) error {
			return j.do("kms", "PutKeyPolicy", tree{"KeyId": j.id, "PolicyName": "default", "Policy": j.document("KeyPolicy")})
		}},
		{"Description", func(j *job) error {
			return j.do("kms", "UpdateKeyDescription", tree{"KeyId": j.id, "Description": j.text("Description")})
		}},
		{"EnableKeyRotation", setRotation},
		{"Enabled", enable},
	} {
		if !j.differs(part.property) {
			continue
		}
		if err := part.set(j); err != nil {
			return err
		}
	}
	return j.retag("Tags", func(tags []any) error {
		return j.do("kms", "TagResource", tree{"KeyId": j.id, "Tags": kmsTags(tags)})
	}, func(keys []any) error { return j.do("kms", "UntagResource", tree{"KeyId": j.id, "TagKeys": keys}) })
}

func aliasType() resourceType {
	return resourceType{
		name: "AliasName",
		make: func(j *job) error {
			if err := j.do("kms", "CreateAlias", j.take("AliasName", "TargetKeyId")); err != nil && (!j.again || code(err) != "AlreadyExistsException") {
				return err
			}
			return j.made(j.text("AliasName"))
		},
		change: func(j *job) error { return j.do("kms", "UpdateAlias", j.take("AliasName", "TargetKeyId")) },
		remove: func(j *job) error { return j.do("kms", "DeleteAlias", tree{"AliasName": j.id}) },
	}
}
