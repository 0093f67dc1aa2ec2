// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// parameterTypes are the types of SSM.
func parameterTypes() map[string]Type {
	return map[string]Type{
		"AWS::SSM::Parameter": {
			NameProperty:  "Name",
			MaxNameLength: 1011,
			Create: func(ctx context.Context, req *Request) error {
				in := req.pickProperties("Type", "Value", "Description", "AllowedPattern", "Tier", "DataType")
				name := req.physicalName()
				in["Name"] = name
				if tags := mergeTags(req.StackTags, req.Properties["Tags"]); len(tags) > 0 {
					in["Tags"] = tagObjects(tags)
				}

				if err := req.runOperation(ctx, "ssm", "PutParameter", in); err != nil &&
					(!req.Resumed || ErrorCode(err) != "ParameterAlreadyExists") {
					return err
				}

				return req.setPhysicalID(ctx, name)
			},
			Stabilize: setParameterAttributes,
			Update: func(ctx context.Context, req *Request) error {
				in := req.pickProperties("Type", "Value", "Description", "AllowedPattern", "Tier", "DataType")
				in["Name"] = req.PhysicalID
				in["Overwrite"] = true
				if err := req.runOperation(ctx, "ssm", "PutParameter", in); err != nil {
					return err
				}

				return setParameterAttributes(ctx, req)
			},
			Delete: func(ctx context.Context, req *Request) error {
				return req.runOperation(ctx, "ssm", "DeleteParameter", template.Object{
					"Name": req.PhysicalID,
				})
			},
			extraAttributes: []string{"Type", "Value"},
		},
	}
}

func setParameterAttributes(_ context.Context, req *Request) error {
	req.Attributes["Type"] = req.stringProperty("Type")
	req.Attributes["Value"] = req.stringProperty("Value")
	return nil
}
