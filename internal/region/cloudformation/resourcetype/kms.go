// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// kmsTags returns tags with the member names of KMS.
func kmsTags(tags []any) []any {
	out := []any{}
	for _, t := range tags {
		out = append(out, template.Object{
			"TagKey":   template.ValueAt(t, "Key"),
			"TagValue": template.ValueAt(t, "Value"),
		})
	}

	return out
}

func kmsTypes() map[string]Type {
	return map[string]Type{
		"AWS::KMS::Key":   kmsKeyType(),
		"AWS::KMS::Alias": kmsAliasType(),
	}
}

// setKeyRotation enables or disables the rotation of a key.
func setKeyRotation(ctx context.Context, req *Request) error {
	op := "DisableKeyRotation"
	if req.Properties["EnableKeyRotation"] == true {
		op = "EnableKeyRotation"
	}

	return req.runOperation(ctx, "kms", op, template.Object{"KeyId": req.PhysicalID})
}

// setKeyEnabled enables or disables a key.
func setKeyEnabled(ctx context.Context, req *Request) error {
	op := "EnableKey"
	if req.Properties["Enabled"] == false {
		op = "DisableKey"
	}

	return req.runOperation(ctx, "kms", op, template.Object{"KeyId": req.PhysicalID})
}

func kmsKeyType() Type {
	return Type{
		Create: func(ctx context.Context, req *Request) error {
			in := req.pickProperties(
				"BypassPolicyLockoutSafetyCheck", "Description", "KeySpec", "KeyUsage", "MultiRegion", "Origin",
			)
			if p := req.policyDocument("KeyPolicy"); p != "" {
				in["Policy"] = p
			}

			if tags := req.resourceTags(); len(tags) > 0 {
				in["Tags"] = kmsTags(tags)
			}

			out, err := req.callOperation(ctx, "kms", "CreateKey", in)
			if err != nil {
				return err
			}

			return req.setPhysicalID(ctx, template.ValueAt(out, "KeyMetadata", "KeyId"))
		},
		Stabilize: func(ctx context.Context, req *Request) error {
			out, err := req.callOperation(ctx, "kms", "DescribeKey", template.Object{"KeyId": req.PhysicalID})
			if err != nil {
				return err
			}

			req.Attributes["Arn"] = template.StringAt(out, "KeyMetadata", "Arn")
			req.Attributes["KeyId"] = req.PhysicalID
			if req.Properties["EnableKeyRotation"] == true {
				if err := setKeyRotation(ctx, req); err != nil {
					return err
				}
			}

			if req.Properties["Enabled"] == false {
				return setKeyEnabled(ctx, req)
			}

			return nil
		},
		Update: updateKey,
		Delete: func(ctx context.Context, req *Request) error {
			in := template.Object{"KeyId": req.PhysicalID}
			if days, ok := req.Properties["PendingWindowInDays"]; ok {
				in["PendingWindowInDays"] = days
			}

			err := req.runOperation(ctx, "kms", "ScheduleKeyDeletion", in)
			if ErrorCode(err) == "KMSInvalidStateException" {
				return nil // its deletion is scheduled already
			}

			return err
		},
		ReplacementProperties: []string{"KeySpec", "KeyUsage", "MultiRegion", "Origin"},
	}
}

func updateKey(ctx context.Context, req *Request) error {
	for _, part := range []struct {
		property string
		set      func(context.Context, *Request) error
	}{
		{"KeyPolicy", func(ctx context.Context, req *Request) error {
			in := req.pickProperties("BypassPolicyLockoutSafetyCheck")
			in["KeyId"] = req.PhysicalID
			in["PolicyName"] = "default"
			in["Policy"] = req.policyDocument("KeyPolicy")

			return req.runOperation(ctx, "kms", "PutKeyPolicy", in)
		}},
		{"Description", func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "kms", "UpdateKeyDescription", template.Object{
				"KeyId":       req.PhysicalID,
				"Description": req.stringProperty("Description"),
			})
		}},
		{"EnableKeyRotation", setKeyRotation},
		{"Enabled", setKeyEnabled},
	} {
		if !req.propertyChanged(part.property) {
			continue
		}

		if err := part.set(ctx, req); err != nil {
			return err
		}
	}

	return req.updateTags("Tags", func(tags []any) error {
		return req.runOperation(ctx, "kms", "TagResource", template.Object{
			"KeyId": req.PhysicalID,
			"Tags":  kmsTags(tags),
		})
	}, func(keys []any) error {
		return req.runOperation(ctx, "kms", "UntagResource", template.Object{
			"KeyId":   req.PhysicalID,
			"TagKeys": keys,
		})
	})
}

func kmsAliasType() Type {
	return Type{
		NameProperty: "AliasName",
		Create: func(ctx context.Context, req *Request) error {
			if err := req.runOperation(
				ctx,
				"kms",
				"CreateAlias",
				req.pickProperties("AliasName", "TargetKeyId"),
			); err != nil &&
				(!req.Resumed || ErrorCode(err) != "AlreadyExistsException") {
				return err
			}

			return req.setPhysicalID(ctx, req.stringProperty("AliasName"))
		},
		Update: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "kms", "UpdateAlias", req.pickProperties("AliasName", "TargetKeyId"))
		},
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "kms", "DeleteAlias", template.Object{"AliasName": req.PhysicalID})
		},
	}
}
