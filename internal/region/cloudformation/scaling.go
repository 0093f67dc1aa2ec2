// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const groupType = "AWS::AutoScaling::AutoScalingGroup"

// launching are the properties of a group that say what it launches: their change begins a rolling update.
func launching() []string {
	return []string{"LaunchTemplate", "MixedInstancesPolicy", "LaunchConfigurationName", "VPCZoneIdentifier", "PlacementGroup"}
}

func scalingTypes() map[string]resourceType {
	return map[string]resourceType{
		groupType:                         scalingGroup(),
		"AWS::AutoScaling::LifecycleHook": hookType(),
		"AWS::AutoScaling::WarmPool": {
			make: func(j *job) error {
				if err := j.do("autoscaling", "PutWarmPool", j.takeAll()); err != nil {
					return err
				}
				return j.made(j.text("AutoScalingGroupName"))
			},
			change: func(j *job) error { return j.do("autoscaling", "PutWarmPool", j.takeAll()) },
			remove: func(j *job) error {
				return j.do("autoscaling", "DeleteWarmPool", tree{"AutoScalingGroupName": j.id, "ForceDelete": true})
			},
		},
	}
}

// scalingGroup is a group of machines. Its machines take a while to come and to go.
func scalingGroup() resourceType {
	return resourceType{
		name: "AutoScalingGroupName", max: 255,
		make: func(j *job) error {
			in, err := groupInput(j)
			if err != nil {
				return err
			}
			name := j.named()
			in["AutoScalingGroupName"], in["Tags"] = name, groupTags(j, name)
			if hooks, ok := j.props["LifecycleHookSpecificationList"]; ok {
				in["LifecycleHookSpecificationList"] = hooks
			}
			if err := j.do("autoscaling", "CreateAutoScalingGroup", in); err != nil {
				return err
			}
			return j.made(name)
		},
		settle: func(j *job) error {
			g, err := j.group()
			if err != nil {
				return err
			}
			j.attributes["AutoScalingGroupARN"] = at(g, "AutoScalingGroupARN")
			return j.stabilize()
		},
		change: changeGroupSize,
		remove: func(j *job) error {
			g, err := j.group()
			if err != nil || g == nil {
				return err
			}
			return j.do("autoscaling", "DeleteAutoScalingGroup", tree{"AutoScalingGroupName": j.id, "ForceDelete": true})
		},
		gone: func(j *job) (bool, error) {
			g, err := j.group()
			return g == nil, err
		},
		adopt: func(j *job) (bool, error) {
			name := j.text("AutoScalingGroupName")
			j.id = name
			g, err := j.group()
			tags := list0(g, "Tags")
			mine := slices.ContainsFunc(tags, func(t any) bool {
				return textOf(t, "Key") == "aws:cloudformation:stack-id" && textOf(t, "Value") == j.stack
			})
			if !mine {
				j.id = ""
			}
			return mine, err
		},
	}
}

// hookType holds machines up at a point of their lives.
func hookType() resourceType {
	return resourceType{
		name: "LifecycleHookName", max: 255,
		make: func(j *job) error {
			name := j.named()
			in := j.takeAll()
			in["LifecycleHookName"] = name
			if err := j.do("autoscaling", "PutLifecycleHook", in); err != nil {
				return err
			}
			return j.made(name)
		},
		change: func(j *job) error {
			in := j.takeAll()
			in["LifecycleHookName"] = j.id
			return j.do("autoscaling", "PutLifecycleHook", in)
		},
		remove: func(j *job) error {
			return j.do("autoscaling", "DeleteLifecycleHook", tree{"AutoScalingGroupName": j.props["AutoScalingGroupName"], "LifecycleHookName": j.id})
		},
	}
}

// groupInput is the group as Auto Scaling takes it, but its name and tags.
func groupInput(j *job) (tree, error) {
	in := j.take(
		"AvailabilityZones", "CapacityRebalance", "Context", "DefaultInstanceWarmup", "DesiredCapacityType", "HealthCheckGracePeriod",
		"HealthCheckType", "LaunchTemplate", "MaxInstanceLifetime", "MixedInstancesPolicy", "NewInstancesProtectedFromScaleIn",
		"PlacementGroup", "ServiceLinkedRoleARN", "TargetGroupARNs", "TerminationPolicies", "InstanceMaintenancePolicy",
	)
	for property, member := range map[string]string{
		"MinSize": "MinSize", "MaxSize": "MaxSize", "DesiredCapacity": "DesiredCapacity", "Cooldown": "DefaultCooldown",
	} {
		if !j.has(property) {
			continue
		}
		n, err := strconv.Atoi(j.text(property))
		if err != nil {
			return nil, fmt.Errorf("Value '%s' at '%s' must be a number", j.text(property), property) //nolint:staticcheck // CloudFormation's words
		}
		in[member] = n
	}
	if zones := list0(j.props["VPCZoneIdentifier"]); zones != nil {
		var ids []string
		for _, z := range zones {
			t, _ := text(z)
			ids = append(ids, t)
		}
		in["VPCZoneIdentifier"] = strings.Join(ids, ",")
	}
	return in, nil
}

// groupTags are a group's tags; the stack's own are handed on to instances.
func groupTags(j *job, name string) []any {
	out, seen := []any{}, map[string]bool{}
	for _, t := range list0(j.props["Tags"]) {
		seen[textOf(t, "Key")] = true
		out = append(out, tree{
			"Key": at(t, "Key"), "Value": at(t, "Value"), "PropagateAtLaunch": at(t, "PropagateAtLaunch"), "ResourceId": name, "ResourceType": "auto-scaling-group",
		})
	}
	for k, v := range j.tags {
		if !seen[k] {
			out = append(out, tree{"Key": k, "Value": v, "PropagateAtLaunch": true, "ResourceId": name, "ResourceType": "auto-scaling-group"})
		}
	}
	return out
}

// group is the group as it is; nil if there is none.
func (j *job) group() (any, error) {
	out, err := j.call("autoscaling", "DescribeAutoScalingGroups", tree{"AutoScalingGroupNames": []any{j.id}})
	return at(out, "AutoScalingGroups", 0), err
}

// stabilize waits until the group has as many instances as it should. A launch that fails twice fails it.
func (j *job) stabilize() error {
	return j.wait(func() (bool, error) {
		g, err := j.group()
		if err != nil {
			return false, err
		}
		want, inService := number(at(g, "DesiredCapacity"), 0), len(inService(g))
		if inService >= want {
			return true, nil
		}
		out, err := j.call("autoscaling", "DescribeScalingActivities", tree{"AutoScalingGroupName": j.id})
		if err != nil {
			return false, err
		}
		var reasons []string
		for _, a := range list0(out, "Activities") {
			if textOf(a, "StatusCode") != "Failed" {
				break
			}
			reasons = append(reasons, textOf(a, "StatusMessage"))
		}
		if len(reasons) > 1 {
			return false, fmt.Errorf("Group did not stabilize. {current/minSize/maxSize} group size = {%d/%s/%s}. Failed Scaling Activities: %d. Last reason: %s", //nolint:staticcheck // CloudFormation's words
				inService, textOf(g, "MinSize"), textOf(g, "MaxSize"), len(reasons), reasons[0])
		}
		return false, nil
	})
}

// inService are the ids of a group's instances that serve.
func inService(g any) []string {
	var out []string
	for _, i := range list0(g, "Instances") {
		if textOf(i, "LifecycleState") == "InService" {
			out = append(out, textOf(i, "InstanceId"))
		}
	}
	return out
}

func changeGroupSize(j *job) error {
	in, err := groupInput(j)
	if err != nil {
		return err
	}
	delete(in, "TargetGroupARNs")
	in["AutoScalingGroupName"] = j.id
	if ignore, _ := text(at(j.policy, "AutoScalingScheduledAction", "IgnoreUnmodifiedGroupSizeProperties")); ignore == "true" {
		for _, size := range []string{"MinSize", "MaxSize", "DesiredCapacity"} {
			if !j.differs(size) {
				delete(in, size)
			}
		}
	}
	if err := j.roll(in); err != nil {
		return err
	}
	if err := j.moveTargets(); err != nil {
		return err
	}
	if err := j.retagGroup(); err != nil {
		return err
	}
	g, err := j.group()
	j.attributes["AutoScalingGroupARN"] = at(g, "AutoScalingGroupARN")
	return err
}

// moveTargets brings a group's target groups to what they should be.
func (j *job) moveTargets() error {
	more, fewer := changes(j.old["TargetGroupARNs"], j.props["TargetGroupARNs"])
	if len(more) > 0 {
		if err := j.do("autoscaling", "AttachLoadBalancerTargetGroups", tree{"AutoScalingGroupName": j.id, "TargetGroupARNs": more}); err != nil {
			return err
		}
	}
	if len(fewer) == 0 {
		return nil
	}
	err := j.do("autoscaling", "DetachLoadBalancerTargetGroups", tree{"AutoScalingGroupName": j.id, "TargetGroupARNs": fewer})
	if code(err) == "ValidationError" {
		return nil // an earlier process did it
	}
	return err
}

func (j *job) retagGroup() error {
	before, after := *j, *j
	before.props, before.tags = j.old, j.oldTags
	more, fewer := changes(groupTags(&before, j.id), groupTags(&after, j.id))
	kept := map[string]bool{}
	for _, t := range groupTags(&after, j.id) {
		kept[textOf(t, "Key")] = true
	}
	fewer = slices.DeleteFunc(fewer, func(t any) bool { return kept[textOf(t, "Key")] })
	if len(fewer) > 0 {
		if err := j.do("autoscaling", "DeleteTags", tree{"Tags": fewer}); err != nil {
			return err
		}
	}
	if len(more) > 0 {
		return j.do("autoscaling", "CreateOrUpdateTags", tree{"Tags": more})
	}
	return nil
}

var errNoGroup = errors.New("the group is gone")
