// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// findStatement returns the ID of the first statement of a policy whose ID begins with prefix; empty if there is none.
func findStatement(policy, prefix string) string {
	var document struct{ Statement []struct{ Sid string } }
	if json.Unmarshal([]byte(policy), &document) != nil {
		return ""
	}

	for _, s := range document.Statement {
		if strings.HasPrefix(s.Sid, prefix) {
			return s.Sid
		}
	}

	return ""
}

// eventTypes are the types of EventBridge.
func eventTypes() map[string]Type {
	return map[string]Type{
		"AWS::Events::Rule": {
			NameProperty:  "Name",
			MaxNameLength: 64,
			Create: func(ctx context.Context, req *Request) error {
				name := req.physicalName()
				if err := putRule(ctx, req, name); err != nil {
					return err
				}

				return req.setPhysicalID(ctx, name)
			},
			Stabilize: putTargets,
			Update:    updateRule,
			Delete: func(ctx context.Context, req *Request) error {
				if err := IgnoreNotFound(removeTargets(ctx, req, targetIDs(req.Properties))); err != nil {
					return err
				}

				return req.runOperation(ctx, "events", "DeleteRule", template.Object{"Name": req.PhysicalID})
			},
		},
	}
}

// putRule creates or replaces a rule. Tags of an existing rule stay as they are.
func putRule(ctx context.Context, req *Request, name string) error {
	in := req.omitProperties("Name", "Tags", "Targets", "EventPattern")
	in["Name"] = name
	if pattern := documentText(req.Properties["EventPattern"]); pattern != "" {
		in["EventPattern"] = pattern
	}

	if tags := req.resourceTags(); len(tags) > 0 {
		in["Tags"] = tags
	}

	return req.runOperation(ctx, "events", "PutRule", in)
}

// putTargets gives a rule its targets, and sets the attributes.
func putTargets(ctx context.Context, req *Request) error {
	out, err := req.callOperation(ctx, "events", "DescribeRule", template.Object{"Name": req.PhysicalID})
	if err != nil {
		return err
	}

	req.Attributes["Arn"] = template.StringAt(out, "Arn")
	targets := template.ListAt(req.Properties["Targets"])
	if len(targets) == 0 {
		return nil
	}

	return req.runOperation(ctx, "events", "PutTargets", template.Object{"Rule": req.PhysicalID, "Targets": targets})
}

// targetIDs returns the ids of the targets of a rule.
func targetIDs(properties template.Object) []any {
	var out []any
	for _, t := range template.ListAt(properties["Targets"]) {
		out = append(out, template.ValueAt(t, "Id"))
	}

	return out
}

func removeTargets(ctx context.Context, req *Request, ids []any) error {
	if len(ids) == 0 {
		return nil
	}

	return req.runOperation(ctx, "events", "RemoveTargets", template.Object{"Rule": req.PhysicalID, "Ids": ids})
}

func updateRule(ctx context.Context, req *Request) error {
	if err := putRule(ctx, req, req.PhysicalID); err != nil {
		return err
	}

	_, fewer := diffLists(targetIDs(req.OldProperties), targetIDs(req.Properties))
	if err := removeTargets(ctx, req, fewer); err != nil {
		return err
	}

	if err := putTargets(ctx, req); err != nil {
		return err
	}

	return req.updateTags("Tags", func(tags []any) error {
		in := template.Object{"ResourceARN": req.Attributes["Arn"], "Tags": tags}
		return req.runOperation(ctx, "events", "TagResource", in)
	}, func(keys []any) error {
		in := template.Object{"ResourceARN": req.Attributes["Arn"], "TagKeys": keys}
		return req.runOperation(ctx, "events", "UntagResource", in)
	})
}
