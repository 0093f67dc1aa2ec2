// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// AutoScalingGroupTypeName is the type whose update policy can replace instances in batches.
const AutoScalingGroupTypeName = "AWS::AutoScaling::AutoScalingGroup"

// LaunchProperties returns the properties of a group whose change begins a rolling update.
func LaunchProperties() []string {
	return []string{
		"LaunchTemplate",
		"MixedInstancesPolicy",
		"LaunchConfigurationName",
		"VPCZoneIdentifier",
		"PlacementGroup",
	}
}

func scalingTypes() map[string]Type {
	return map[string]Type{
		AutoScalingGroupTypeName:          autoScalingGroupType(),
		"AWS::AutoScaling::LifecycleHook": lifecycleHookType(),
		"AWS::AutoScaling::WarmPool": {
			Create: func(ctx context.Context, req *Request) error {
				if err := req.runOperation(
					ctx,
					"autoscaling",
					"PutWarmPool",
					req.omitProperties(),
				); err != nil {
					return err
				}

				return req.setPhysicalID(ctx, req.stringProperty("AutoScalingGroupName"))
			},
			Update: func(ctx context.Context, req *Request) error {
				return req.runOperation(ctx, "autoscaling", "PutWarmPool", req.omitProperties())
			},
			Delete: func(ctx context.Context, req *Request) error {
				return req.runOperation(ctx,
					"autoscaling",
					"DeleteWarmPool",
					template.Object{"AutoScalingGroupName": req.PhysicalID, "ForceDelete": true},
				)
			},
		},
	}
}

// autoScalingGroupType is AWS::AutoScaling::AutoScalingGroup. Its creation and its deletion wait for its
// instances.
func autoScalingGroupType() Type {
	return Type{
		NameProperty:  "AutoScalingGroupName",
		MaxNameLength: 255,
		Create:        createAutoScalingGroup,
		Stabilize:     stabilizeAutoScalingGroup,
		Update:        updateAutoScalingGroup,
		Delete:        deleteAutoScalingGroup,
		IsDeleted: func(ctx context.Context, req *Request) (bool, error) {
			g, err := req.describeAutoScalingGroup(ctx)
			return g == nil, err
		},
		FindCreated: findCreatedAutoScalingGroup,
	}
}

func createAutoScalingGroup(ctx context.Context, req *Request) error {
	in, err := autoScalingGroupInput(ctx, req)
	if err != nil {
		return err
	}

	name := req.physicalName()
	in["AutoScalingGroupName"] = name
	in["Tags"] = autoScalingGroupTags(req, name)
	if hooks, ok := req.Properties["LifecycleHookSpecificationList"]; ok {
		in["LifecycleHookSpecificationList"] = hooks
	}

	if err := req.runOperation(ctx, "autoscaling", "CreateAutoScalingGroup", in); err != nil {
		return err
	}

	return req.setPhysicalID(ctx, name)
}

func stabilizeAutoScalingGroup(ctx context.Context, req *Request) error {
	g, err := req.describeAutoScalingGroup(ctx)
	if err != nil {
		return err
	}

	req.Attributes["AutoScalingGroupARN"] = template.ValueAt(g, "AutoScalingGroupARN")
	if err := req.syncNotifications(ctx, nil); err != nil {
		return err
	}

	return req.waitForCapacity(ctx)
}

func deleteAutoScalingGroup(ctx context.Context, req *Request) error {
	g, err := req.describeAutoScalingGroup(ctx)
	if err != nil || g == nil {
		return err
	}

	return req.runOperation(ctx,
		"autoscaling",
		"DeleteAutoScalingGroup",
		template.Object{"AutoScalingGroupName": req.PhysicalID, "ForceDelete": true},
	)
}

func findCreatedAutoScalingGroup(ctx context.Context, req *Request) (bool, error) {
	name := req.stringProperty("AutoScalingGroupName")
	req.PhysicalID = name
	g, err := req.describeAutoScalingGroup(ctx)
	tags := template.ListAt(g, "Tags")
	mine := slices.ContainsFunc(tags, func(t any) bool {
		return template.StringAt(t, "Key") == "aws:cloudformation:stack-id" &&
			template.StringAt(t, "Value") == req.StackID
	})
	if !mine {
		req.PhysicalID = ""
	}

	return mine, err
}

// lifecycleHookType is AWS::AutoScaling::LifecycleHook.
func lifecycleHookType() Type {
	return Type{
		NameProperty:  "LifecycleHookName",
		MaxNameLength: 255,
		Create: func(ctx context.Context, req *Request) error {
			name := req.physicalName()
			in := req.omitProperties()
			in["LifecycleHookName"] = name
			if err := req.runOperation(ctx, "autoscaling", "PutLifecycleHook", in); err != nil {
				return err
			}

			return req.setPhysicalID(ctx, name)
		},
		Update: func(ctx context.Context, req *Request) error {
			in := req.omitProperties()
			in["LifecycleHookName"] = req.PhysicalID
			return req.runOperation(ctx, "autoscaling", "PutLifecycleHook", in)
		},
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx,
				"autoscaling",
				"DeleteLifecycleHook",
				template.Object{
					"AutoScalingGroupName": req.Properties["AutoScalingGroupName"],
					"LifecycleHookName":    req.PhysicalID,
				},
			)
		},
	}
}

// autoScalingGroupInput returns the input of CreateAutoScalingGroup and UpdateAutoScalingGroup, without name
// and tags.
func autoScalingGroupInput(_ context.Context, req *Request) (template.Object, error) {
	in := req.pickProperties(
		"AvailabilityZones",
		"CapacityRebalance",
		"Context",
		"DefaultInstanceWarmup",
		"DesiredCapacityType",
		"HealthCheckGracePeriod",
		"HealthCheckType",
		"LaunchTemplate",
		"MaxInstanceLifetime",
		"MixedInstancesPolicy",
		"NewInstancesProtectedFromScaleIn",
		"PlacementGroup",
		"ServiceLinkedRoleARN",
		"TargetGroupARNs",
		"TerminationPolicies",
		"InstanceMaintenancePolicy",
	)

	for property, member := range map[string]string{
		"MinSize": "MinSize", "MaxSize": "MaxSize", "DesiredCapacity": "DesiredCapacity", "Cooldown": "DefaultCooldown",
	} {
		if !req.hasProperty(property) {
			continue
		}

		n, err := strconv.Atoi(req.stringProperty(property))
		if err != nil {
			return nil, fmt.Errorf(
				"Value '%s' at '%s' must be a number",
				req.stringProperty(property),
				property,
			)
		}

		in[member] = n
	}

	if zones := template.ListAt(req.Properties["VPCZoneIdentifier"]); zones != nil {
		var ids []string
		for _, z := range zones {
			t, _ := template.ScalarText(z)
			ids = append(ids, t)
		}

		in["VPCZoneIdentifier"] = strings.Join(ids, ",")
	}

	return in, nil
}

// autoScalingGroupTags returns the tags of a group. The stack's tags are propagated to instances.
func autoScalingGroupTags(req *Request, name string) []any {
	out := []any{}
	seen := map[string]bool{}
	for _, t := range template.ListAt(req.Properties["Tags"]) {
		seen[template.StringAt(t, "Key")] = true
		out = append(out, template.Object{
			"Key": template.ValueAt(
				t,
				"Key",
			), "Value": template.ValueAt(t, "Value"), "PropagateAtLaunch": template.ValueAt(t, "PropagateAtLaunch"), "ResourceId": name, "ResourceType": "auto-scaling-group",
		})
	}

	for k, v := range req.StackTags {
		if !seen[k] {
			out = append(
				out,
				template.Object{
					"Key":               k,
					"Value":             v,
					"PropagateAtLaunch": true,
					"ResourceId":        name,
					"ResourceType":      "auto-scaling-group",
				},
			)
		}
	}

	return out
}

// describeAutoScalingGroup returns the group; nil if it does not exist.
func (req *Request) describeAutoScalingGroup(ctx context.Context) (any, error) {
	out, err := req.callOperation(ctx,
		"autoscaling",
		"DescribeAutoScalingGroups",
		template.Object{"AutoScalingGroupNames": []any{req.PhysicalID}},
	)

	return template.ValueAt(out, "AutoScalingGroups", 0), err
}

// waitForCapacity waits until the group has its desired number of instances in service. It fails after two
// failed launches in a row.
func (req *Request) waitForCapacity(ctx context.Context) error {
	return req.waitUntil(ctx, func() (bool, error) {
		g, err := req.describeAutoScalingGroup(ctx)
		if err != nil {
			return false, err
		}

		want := template.IntOr(template.ValueAt(g, "DesiredCapacity"), 0)
		inService := len(instancesInService(g))
		if inService >= want {
			return true, nil
		}

		out, err := req.callOperation(ctx,
			"autoscaling",
			"DescribeScalingActivities",
			template.Object{"AutoScalingGroupName": req.PhysicalID},
		)
		if err != nil {
			return false, err
		}

		var reasons []string

		for _, a := range template.ListAt(out, "Activities") {
			if template.StringAt(a, "StatusCode") != "Failed" {
				break
			}

			reasons = append(reasons, template.StringAt(a, "StatusMessage"))
		}

		if len(reasons) > 1 {
			return false, fmt.Errorf(
				"Group did not stabilize. {current/minSize/maxSize} group size = {%d/%s/%s}. Failed Scaling Activities: %d. Last reason: %s",
				inService,
				template.StringAt(g, "MinSize"),
				template.StringAt(g, "MaxSize"),
				len(reasons),
				reasons[0],
			)
		}

		return false, nil
	})
}

// instancesInService returns the IDs of a group's instances in service.
func instancesInService(g any) []string {
	var out []string
	for _, i := range template.ListAt(g, "Instances") {
		if template.StringAt(i, "LifecycleState") == "InService" {
			out = append(out, template.StringAt(i, "InstanceId"))
		}
	}

	return out
}

func updateAutoScalingGroup(ctx context.Context, req *Request) error {
	in, err := autoScalingGroupInput(ctx, req)
	if err != nil {
		return err
	}

	delete(in, "TargetGroupARNs")
	in["AutoScalingGroupName"] = req.PhysicalID
	if ignore, _ := template.ScalarText(
		template.ValueAt(req.Policy, "AutoScalingScheduledAction", "IgnoreUnmodifiedGroupSizeProperties"),
	); ignore == "true" {
		for _, size := range []string{"MinSize", "MaxSize", "DesiredCapacity"} {
			if !req.propertyChanged(size) {
				delete(in, size)
			}
		}
	}

	if err := req.runRollingUpdate(ctx, in); err != nil {
		return err
	}

	if err := req.syncTargetGroups(ctx); err != nil {
		return err
	}

	if err := req.syncLifecycleHooks(ctx); err != nil {
		return err
	}

	if err := req.syncNotifications(ctx, req.OldProperties["NotificationConfigurations"]); err != nil {
		return err
	}

	if err := req.updateGroupTags(ctx); err != nil {
		return err
	}

	g, err := req.describeAutoScalingGroup(ctx)
	req.Attributes["AutoScalingGroupARN"] = template.ValueAt(g, "AutoScalingGroupARN")

	return err
}

// syncTargetGroups attaches and detaches target groups, so that the group has those of its properties.
func (req *Request) syncTargetGroups(ctx context.Context) error {
	more, fewer := diffLists(req.OldProperties["TargetGroupARNs"], req.Properties["TargetGroupARNs"])
	if len(more) > 0 {
		if err := req.runOperation(ctx, "autoscaling", "AttachLoadBalancerTargetGroups", template.Object{
			"AutoScalingGroupName": req.PhysicalID,
			"TargetGroupARNs":      more,
		}); err != nil {
			return err
		}
	}

	if len(fewer) == 0 {
		return nil
	}

	err := req.runOperation(ctx,
		"autoscaling",
		"DetachLoadBalancerTargetGroups",
		template.Object{"AutoScalingGroupName": req.PhysicalID, "TargetGroupARNs": fewer},
	)
	if ErrorCode(err) == "ValidationError" {
		return nil // an earlier process has done it
	}

	return err
}

// syncLifecycleHooks puts the hooks of LifecycleHookSpecificationList that are new or changed, and deletes those that
// it no longer has. Hooks that are resources of their own are not touched.
func (req *Request) syncLifecycleHooks(ctx context.Context) error {
	const property = "LifecycleHookSpecificationList"
	more, fewer := diffLists(req.OldProperties[property], req.Properties[property])
	kept := map[string]bool{}
	for _, h := range template.ListAt(req.Properties[property]) {
		kept[template.StringAt(h, "LifecycleHookName")] = true
	}

	for _, h := range more {
		in := template.Object{"AutoScalingGroupName": req.PhysicalID}
		fields, _ := h.(template.Object)
		maps.Copy(in, fields)
		if err := req.runOperation(ctx, "autoscaling", "PutLifecycleHook", in); err != nil {
			return err
		}
	}

	for _, h := range fewer {
		name := template.StringAt(h, "LifecycleHookName")
		if kept[name] {
			continue
		}

		in := template.Object{"AutoScalingGroupName": req.PhysicalID, "LifecycleHookName": name}
		err := req.runOperation(ctx, "autoscaling", "DeleteLifecycleHook", in)
		if err != nil && ErrorCode(err) != "ValidationError" { // an earlier process has deleted it
			return err
		}
	}

	return nil
}

func (req *Request) updateGroupTags(ctx context.Context) error {
	before := *req
	after := *req
	before.Properties = req.OldProperties
	before.StackTags = req.OldStackTags
	more, fewer := diffLists(
		autoScalingGroupTags(&before, req.PhysicalID),
		autoScalingGroupTags(&after, req.PhysicalID),
	)

	kept := map[string]bool{}
	for _, t := range autoScalingGroupTags(&after, req.PhysicalID) {
		kept[template.StringAt(t, "Key")] = true
	}

	fewer = slices.DeleteFunc(fewer, func(t any) bool { return kept[template.StringAt(t, "Key")] })
	if len(fewer) > 0 {
		if err := req.runOperation(ctx, "autoscaling", "DeleteTags", template.Object{
			"Tags": fewer,
		}); err != nil {
			return err
		}
	}

	if len(more) > 0 {
		return req.runOperation(ctx, "autoscaling", "CreateOrUpdateTags", template.Object{"Tags": more})
	}

	return nil
}

var errNoGroup = errors.New("the group is gone")
