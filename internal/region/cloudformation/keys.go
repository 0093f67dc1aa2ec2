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
	rotate := func(j *job) error {
		op := "DisableKeyRotation"
		if j.props["EnableKeyRotation"] == true {
			op = "EnableKeyRotation"
		}
		return j.do("kms", op, tree{"KeyId": j.id})
	}
	enable := func(j *job) error {
		op := "EnableKey"
		if j.props["Enabled"] == false {
			op = "DisableKey"
		}
		return j.do("kms", op, tree{"KeyId": j.id})
	}
	return map[string]resourceType{
		"AWS::KMS::Key": {
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
					if err := rotate(j); err != nil {
						return err
					}
				}
				if j.props["Enabled"] == false {
					return enable(j)
				}
				return nil
			},
			change: func(j *job) error {
				if j.differs("KeyPolicy") {
					if err := j.do("kms", "PutKeyPolicy", tree{"KeyId": j.id, "PolicyName": "default", "Policy": j.document("KeyPolicy")}); err != nil {
						return err
					}
				}
				if j.differs("Description") {
					if err := j.do("kms", "UpdateKeyDescription", tree{"KeyId": j.id, "Description": j.text("Description")}); err != nil {
						return err
					}
				}
				if j.differs("EnableKeyRotation") {
					if err := rotate(j); err != nil {
						return err
					}
				}
				if j.differs("Enabled") {
					if err := enable(j); err != nil {
						return err
					}
				}
				return j.retag("Tags", func(tags []any) error {
					return j.do("kms", "TagResource", tree{"KeyId": j.id, "Tags": kmsTags(tags)})
				}, func(keys []any) error { return j.do("kms", "UntagResource", tree{"KeyId": j.id, "TagKeys": keys}) })
			},
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
		},
		"AWS::KMS::Alias": {
			name: "AliasName",
			make: func(j *job) error {
				if err := j.do("kms", "CreateAlias", j.take("AliasName", "TargetKeyId")); err != nil && (!j.again || code(err) != "AlreadyExistsException") {
					return err
				}
				return j.made(j.text("AliasName"))
			},
			change: func(j *job) error { return j.do("kms", "UpdateAlias", j.take("AliasName", "TargetKeyId")) },
			remove: func(j *job) error { return j.do("kms", "DeleteAlias", tree{"AliasName": j.id}) },
		},
	}
}
