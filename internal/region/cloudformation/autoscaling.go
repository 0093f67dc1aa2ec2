// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

const autoScalingGroupTypeName = "AWS::AutoScaling::AutoScalingGroup"

// launchProperties are the properties of a group that say what it launches: their change begins a rolling update.
func launchProperties() []string {
	return []string{
		"LaunchTemplate",
		"MixedInstancesPolicy",
		"LaunchConfigurationName",
		"VPCZoneIdentifier",
		"PlacementGroup",
	}
}

func scalingTypes() map[string]resourceType {
	return map[string]resourceType{
		autoScalingGroupTypeName:          autoScalingGroupType(),
		"AWS::AutoScaling::LifecycleHook": lifecycleHookType(),
		"AWS::AutoScaling::WarmPool": {
			create: func(j *handlerRequest) error {
				if err := j.runOperation("autoscaling", "PutWarmPool", j.omitProperties()); err != nil {
					return err
				}

				return j.setPhysicalID(j.stringProperty("AutoScalingGroupName"))
			},
			update: func(j *handlerRequest) error { return j.runOperation("autoscaling", "PutWarmPool", j.omitProperties()) },
			delete: func(j *handlerRequest) error {
				return j.runOperation(
					"autoscaling",
					"DeleteWarmPool",
					template.Object{"AutoScalingGroupName": j.physicalID, "ForceDelete": true},
				)
			},
		},
	}
}

// autoScalingGroupType is a group of machines. Its machines take a while to come and to go.
func autoScalingGroupType() resourceType {
	return resourceType{
		nameProperty:  "AutoScalingGroupName",
		maxNameLength: 255,
		create: func(j *handlerRequest) error {
			in, err := autoScalingGroupInput(j)
			if err != nil {
				return err
			}

			name := j.physicalName()
			in["AutoScalingGroupName"], in["Tags"] = name, autoScalingGroupTags(j, name)
			if hooks, ok := j.props["LifecycleHookSpecificationList"]; ok {
				in["LifecycleHookSpecificationList"] = hooks
			}

			if err := j.runOperation("autoscaling", "CreateAutoScalingGroup", in); err != nil {
				return err
			}

			return j.setPhysicalID(name)
		},
		stabilize: func(j *handlerRequest) error {
			g, err := j.describeAutoScalingGroup()
			if err != nil {
				return err
			}

			j.attributes["AutoScalingGroupARN"] = template.ValueAt(g, "AutoScalingGroupARN")

			return j.waitForCapacity()
		},
		update: updateAutoScalingGroup,
		delete: func(j *handlerRequest) error {
			g, err := j.describeAutoScalingGroup()
			if err != nil || g == nil {
				return err
			}

			return j.runOperation(
				"autoscaling",
				"DeleteAutoScalingGroup",
				template.Object{"AutoScalingGroupName": j.physicalID, "ForceDelete": true},
			)
		},
		isDeleted: func(j *handlerRequest) (bool, error) {
			g, err := j.describeAutoScalingGroup()
			return g == nil, err
		},
		findCreated: func(j *handlerRequest) (bool, error) {
			name := j.stringProperty("AutoScalingGroupName")
			j.physicalID = name
			g, err := j.describeAutoScalingGroup()
			tags := template.ListAt(g, "Tags")
			mine := slices.ContainsFunc(tags, func(t any) bool {
				return template.StringAt(t, "Key") == "aws:cloudformation:stack-id" &&
					template.StringAt(t, "Value") == j.stackID
			})
			if !mine {
				j.physicalID = ""
			}

			return mine, err
		},
	}
}

// lifecycleHookType holds machines up at a point of their lives.
func lifecycleHookType() resourceType {
	return resourceType{
		nameProperty:  "LifecycleHookName",
		maxNameLength: 255,
		create: func(j *handlerRequest) error {
			name := j.physicalName()
			in := j.omitProperties()
			in["LifecycleHookName"] = name
			if err := j.runOperation("autoscaling", "PutLifecycleHook", in); err != nil {
				return err
			}

			return j.setPhysicalID(name)
		},
		update: func(j *handlerRequest) error {
			in := j.omitProperties()
			in["LifecycleHookName"] = j.physicalID
			return j.runOperation("autoscaling", "PutLifecycleHook", in)
		},
		delete: func(j *handlerRequest) error {
			return j.runOperation(
				"autoscaling",
				"DeleteLifecycleHook",
				template.Object{
					"AutoScalingGroupName": j.props["AutoScalingGroupName"],
					"LifecycleHookName":    j.physicalID,
				},
			)
		},
	}
}

// autoScalingGroupInput is the group as Auto Scaling takes it, but its name and tags.
func autoScalingGroupInput(j *handlerRequest) (template.Object, error) {
	in := j.pickProperties(
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
		if !j.hasProperty(property) {
			continue
		}

		n, err := strconv.Atoi(j.stringProperty(property))
		if err != nil {
			return nil, fmt.Errorf(
				"Value '%s' at '%s' must be a number",
				j.stringProperty(property),
				property,
			)
		}

		in[member] = n
	}

	if zones := template.ListAt(j.props["VPCZoneIdentifier"]); zones != nil {
		var ids []string
		for _, z := range zones {
			t, _ := template.ScalarText(z)
			ids = append(ids, t)
		}

		in["VPCZoneIdentifier"] = strings.Join(ids, ",")
	}

	return in, nil
}

// autoScalingGroupTags are a group's tags; the stack's own are handed on to instances.
func autoScalingGroupTags(j *handlerRequest, name string) []any {
	out := []any{}
	seen := map[string]bool{}
	for _, t := range template.ListAt(j.props["Tags"]) {
		seen[template.StringAt(t, "Key")] = true
		out = append(out, template.Object{
			"Key": template.ValueAt(
				t,
				"Key",
			), "Value": template.ValueAt(t, "Value"), "PropagateAtLaunch": template.ValueAt(t, "PropagateAtLaunch"), "ResourceId": name, "ResourceType": "auto-scaling-group",
		})
	}

	for k, v := range j.stackTags {
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

// describeAutoScalingGroup is the group as it is; nil if there is none.
func (j *handlerRequest) describeAutoScalingGroup() (any, error) {
	out, err := j.callOperation(
		"autoscaling",
		"DescribeAutoScalingGroups",
		template.Object{"AutoScalingGroupNames": []any{j.physicalID}},
	)

	return template.ValueAt(out, "AutoScalingGroups", 0), err
}

// waitForCapacity waits until the group has as many instances as it should. A launch that fails twice fails it.
func (j *handlerRequest) waitForCapacity() error {
	return j.waitUntil(func() (bool, error) {
		g, err := j.describeAutoScalingGroup()
		if err != nil {
			return false, err
		}

		want := intOr(template.ValueAt(g, "DesiredCapacity"), 0)
		inService := len(instancesInService(g))
		if inService >= want {
			return true, nil
		}

		out, err := j.callOperation(
			"autoscaling",
			"DescribeScalingActivities",
			template.Object{"AutoScalingGroupName": j.physicalID},
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

// instancesInService are the ids of a group's instances that serve.
func instancesInService(g any) []string {
	var out []string
	for _, i := range template.ListAt(g, "Instances") {
		if template.StringAt(i, "LifecycleState") == "InService" {
			out = append(out, template.StringAt(i, "InstanceId"))
		}
	}

	return out
}

func updateAutoScalingGroup(j *handlerRequest) error {
	in, err := autoScalingGroupInput(j)
	if err != nil {
		return err
	}

	delete(in, "TargetGroupARNs")
	in["AutoScalingGroupName"] = j.physicalID
	if ignore, _ := template.ScalarText(template.ValueAt(j.policy, "AutoScalingScheduledAction", "IgnoreUnmodifiedGroupSizeProperties")); ignore == "true" {
		for _, size := range []string{"MinSize", "MaxSize", "DesiredCapacity"} {
			if !j.propertyChanged(size) {
				delete(in, size)
			}
		}
	}

	if err := j.runRollingUpdate(in); err != nil {
		return err
	}

	if err := j.syncTargetGroups(); err != nil {
		return err
	}

	if err := j.updateGroupTags(); err != nil {
		return err
	}

	g, err := j.describeAutoScalingGroup()
	j.attributes["AutoScalingGroupARN"] = template.ValueAt(g, "AutoScalingGroupARN")

	return err
}

// syncTargetGroups brings a group's target groups to what they should be.
func (j *handlerRequest) syncTargetGroups() error {
	more, fewer := diffLists(j.oldProps["TargetGroupARNs"], j.props["TargetGroupARNs"])
	if len(more) > 0 {
		if err := j.runOperation("autoscaling", "AttachLoadBalancerTargetGroups", template.Object{"AutoScalingGroupName": j.physicalID, "TargetGroupARNs": more}); err != nil {
			return err
		}
	}

	if len(fewer) == 0 {
		return nil
	}

	err := j.runOperation(
		"autoscaling",
		"DetachLoadBalancerTargetGroups",
		template.Object{"AutoScalingGroupName": j.physicalID, "TargetGroupARNs": fewer},
	)
	if errorCode(err) == "ValidationError" {
		return nil // an earlier process did it
	}

	return err
}

func (j *handlerRequest) updateGroupTags() error {
	before := *j
	after := *j
	before.props = j.oldProps
	before.stackTags = j.oldStackTags
	more, fewer := diffLists(
		autoScalingGroupTags(&before, j.physicalID),
		autoScalingGroupTags(&after, j.physicalID),
	)

	kept := map[string]bool{}
	for _, t := range autoScalingGroupTags(&after, j.physicalID) {
		kept[template.StringAt(t, "Key")] = true
	}

	fewer = slices.DeleteFunc(fewer, func(t any) bool { return kept[template.StringAt(t, "Key")] })
	if len(fewer) > 0 {
		if err := j.runOperation("autoscaling", "DeleteTags", template.Object{"Tags": fewer}); err != nil {
			return err
		}
	}

	if len(more) > 0 {
		return j.runOperation("autoscaling", "CreateOrUpdateTags", template.Object{"Tags": more})
	}

	return nil
}

var errNoGroup = errors.New("the group is gone")
