// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "github.com/slipway-k8s/slipway/internal/region/cloudformation/template"

// kmsTags are tags as KMS takes them.
func kmsTags(tags []any) []any {
	out := []any{}
	for _, t := range tags {
		out = append(out, template.Object{"TagKey": template.ValueAt(t, "Key"), "TagValue": template.ValueAt(t, "Value")})
	}

	return out
}

func kmsTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::KMS::Key":   kmsKeyType(),
		"AWS::KMS::Alias": kmsAliasType(),
	}
}

// setKeyRotation turns a key's rotation on or off.
func setKeyRotation(j *handlerRequest) error {
	op := "DisableKeyRotation"
	if j.props["EnableKeyRotation"] == true {
		op = "EnableKeyRotation"
	}

	return j.runOperation("kms", op, template.Object{"KeyId": j.physicalID})
}

// setKeyEnabled turns a key on or off.
func setKeyEnabled(j *handlerRequest) error {
	op := "EnableKey"
	if j.props["Enabled"] == false {
		op = "DisableKey"
	}

	return j.runOperation("kms", op, template.Object{"KeyId": j.physicalID})
}

func kmsKeyType() resourceType {
	return resourceType{
		create: func(j *handlerRequest) error {
			in := j.pickProperties("Description", "KeySpec", "KeyUsage", "MultiRegion", "Origin")
			if p := j.policyDocument("KeyPolicy"); p != "" {
				in["Policy"] = p
			}

			if tags := j.resourceTags(); len(tags) > 0 {
				in["Tags"] = kmsTags(tags)
			}

			out, err := j.callOperation("kms", "CreateKey", in)
			if err != nil {
				return err
			}

			return j.setPhysicalID(template.ValueAt(out, "KeyMetadata", "KeyId"))
		},
		stabilize: func(j *handlerRequest) error {
			out, err := j.callOperation("kms", "DescribeKey", template.Object{"KeyId": j.physicalID})
			if err != nil {
				return err
			}

			j.attributes["Arn"], j.attributes["KeyId"] = template.StringAt(out, "KeyMetadata", "Arn"), j.physicalID
			if j.props["EnableKeyRotation"] == true {
				if err := setKeyRotation(j); err != nil {
					return err
				}
			}

			if j.props["Enabled"] == false {
				return setKeyEnabled(j)
			}

			return nil
		},
		update: updateKey,
		delete: func(j *handlerRequest) error {
			in := template.Object{"KeyId": j.physicalID}
			if days, ok := j.props["PendingWindowInDays"]; ok {
				in["PendingWindowInDays"] = days
			}

			err := j.runOperation("kms", "ScheduleKeyDeletion", in)
			if errorCode(err) == "KMSInvalidStateException" {
				return nil // it is scheduled already
			}

			return err
		},
		replacementProperties: []string{"KeySpec", "KeyUsage", "MultiRegion", "Origin"},
	}
}

func updateKey(j *handlerRequest) error {
	for _, part := range []struct {
		property string
		set      func(*handlerRequest) error
	}{
		{"KeyPolicy", func(j *handlerRequest) error {
			return j.runOperation("kms", "PutKeyPolicy", template.Object{"KeyId": j.physicalID, "PolicyName": "default", "Policy": j.policyDocument("KeyPolicy")})
		}},
		{"Description", func(j *handlerRequest) error {
			return j.runOperation("kms", "UpdateKeyDescription", template.Object{"KeyId": j.physicalID, "Description": j.stringProperty("Description")})
		}},
		{"EnableKeyRotation", setKeyRotation},
		{"Enabled", setKeyEnabled},
	} {
		if !j.propertyChanged(part.property) {
			continue
		}

		if err := part.set(j); err != nil {
			return err
		}
	}

	return j.updateTags("Tags", func(tags []any) error {
		return j.runOperation("kms", "TagResource", template.Object{"KeyId": j.physicalID, "Tags": kmsTags(tags)})
	}, func(keys []any) error {
		return j.runOperation("kms", "UntagResource", template.Object{"KeyId": j.physicalID, "TagKeys": keys})
	})
}

func kmsAliasType() resourceType {
	return resourceType{
		nameProperty: "AliasName",
		create: func(j *handlerRequest) error {
			if err := j.runOperation("kms", "CreateAlias", j.pickProperties("AliasName", "TargetKeyId")); err != nil &&
				(!j.resumed || errorCode(err) != "AlreadyExistsException") {
				return err
			}

			return j.setPhysicalID(j.stringProperty("AliasName"))
		},
		update: func(j *handlerRequest) error {
			return j.runOperation("kms", "UpdateAlias", j.pickProperties("AliasName", "TargetKeyId"))
		},
		delete: func(j *handlerRequest) error {
			return j.runOperation("kms", "DeleteAlias", template.Object{"AliasName": j.physicalID})
		},
	}
}
