// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// logTypes are the types of CloudWatch Logs.
func logTypes() map[string]Type {
	return map[string]Type{
		"AWS::Logs::LogGroup": {
			NameProperty:  "LogGroupName",
			MaxNameLength: 512,
			Create:        createLogGroup,
			Stabilize:     setRetention,
			Update:        updateLogGroup,
			Delete: func(ctx context.Context, req *Request) error {
				return req.runOperation(ctx, "logs", "DeleteLogGroup", template.Object{"LogGroupName": req.PhysicalID})
			},
		},
	}
}

func createLogGroup(ctx context.Context, req *Request) error {
	name := req.physicalName()
	in := req.omitProperties("Tags", "RetentionInDays")
	in["LogGroupName"] = name
	if tags := mergeTags(req.StackTags, req.Properties["Tags"]); len(tags) > 0 {
		in["Tags"] = tagObject(tags)
	}

	err := req.runOperation(ctx, "logs", "CreateLogGroup", in)
	if err != nil && (!req.Resumed || ErrorCode(err) != "ResourceAlreadyExistsException") {
		return err
	}

	return req.setPhysicalID(ctx, name)
}

// setRetention sets or removes the retention of a group, and sets the attributes.
func setRetention(ctx context.Context, req *Request) error {
	req.Attributes["Arn"] = logGroupARN(ctx, req) + ":*"
	in := template.Object{"LogGroupName": req.PhysicalID}
	if !req.hasProperty("RetentionInDays") {
		return req.runOperation(ctx, "logs", "DeleteRetentionPolicy", in)
	}

	in["RetentionInDays"] = req.Properties["RetentionInDays"]

	return req.runOperation(ctx, "logs", "PutRetentionPolicy", in)
}

// logGroupARN returns the ARN of a group; empty if the group does not exist.
func logGroupARN(ctx context.Context, req *Request) string {
	out, err := req.callOperation(ctx, "logs", "DescribeLogGroups", template.Object{
		"LogGroupNamePrefix": req.PhysicalID,
	})
	if err != nil {
		return ""
	}

	for _, g := range template.ListAt(out, "LogGroups") {
		if template.StringAt(g, "LogGroupName") == req.PhysicalID {
			return template.StringAt(g, "LogGroupArn")
		}
	}

	return ""
}

func updateLogGroup(ctx context.Context, req *Request) error {
	if err := setRetention(ctx, req); err != nil {
		return err
	}

	arn := logGroupARN(ctx, req)

	return req.updateTags("Tags", func(tags []any) error {
		return req.runOperation(ctx, "logs", "TagResource", template.Object{
			"ResourceArn": arn,
			"Tags":        tagObject(mergeTags(nil, tags)),
		})
	}, func(keys []any) error {
		return req.runOperation(ctx, "logs", "UntagResource", template.Object{"ResourceArn": arn, "TagKeys": keys})
	})
}
