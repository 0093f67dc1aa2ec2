// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
)

func names() stack.NameIndex {
	return stack.NameIndex{
		AddrByLogicalID: map[string]graph.Addr{"VpcMain": "vpc/main", "SubnetA": "subnet/a", "GroupA": "autoscaling-group/a"},
		KindByType:      map[string]string{"AWS::EC2::VPC": "vpc", "AWS::EC2::Subnet": "subnet", "AWS::AutoScaling::AutoScalingGroup": "autoscaling-group", "AWS::EC2::Volume": "volume"},
		OrderByAddr:     map[graph.Addr]int{"vpc/main": 0, "subnet/a": 1, "autoscaling-group/a": 2},
	}
}

func change(action types.ChangeAction, id, typ string, edit ...func(*types.ResourceChange)) types.Change {
	r := &types.ResourceChange{Action: action, LogicalResourceId: &id, ResourceType: &typ}
	if action != types.ChangeActionAdd {
		r.PhysicalResourceId = aws.String("id-of-" + id)
	}
	for _, e := range edit {
		e(r)
	}
	return types.Change{ResourceChange: r}
}

func detail(t types.ResourceTargetDefinition, evaluation types.EvaluationType) func(*types.ResourceChange) {
	return func(r *types.ResourceChange) {
		r.Details = append(r.Details, types.ResourceChangeDetail{Target: &t, Evaluation: evaluation})
	}
}

func replaced(how types.Replacement, policy types.PolicyAction) func(*types.ResourceChange) {
	return func(r *types.ResourceChange) { r.Replacement, r.PolicyAction = how, policy }
}

func TestSteps(t *testing.T) {
	const vpc, subnet, group, volume = "AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::Volume"
	prop := func(name, path, before, after string, recreate types.RequiresRecreation) types.ResourceTargetDefinition {
		d := types.ResourceTargetDefinition{Attribute: types.ResourceAttributeProperties, Name: &name, RequiresRecreation: recreate}
		if path != "" {
			d.Path = &path
		}
		if before != "" {
			d.BeforeValue = &before
		}
		if after != "" {
			d.AfterValue = &after
		}
		return d
	}
	static, dynamic := types.EvaluationTypeStatic, types.EvaluationTypeDynamic
	for name, tc := range map[string]struct {
		changes []types.Change
		want    []string
	}{
		"none": {want: []string{}},
		"created, in the order of the graph": {
			changes: []types.Change{
				change(types.ChangeActionAdd, "Gate", "AWS::CloudFormation::WaitCondition"), change(types.ChangeActionAdd, "SubnetA", subnet), change(types.ChangeActionAdd, "VpcMain", vpc),
			},
			want: []string{"  + vpc/main", "  + subnet/a", "  + wait-condition/Gate"},
		},
		"changed in place": {
			changes: []types.Change{change(types.ChangeActionModify, "GroupA", group,
				detail(prop("MaxSize", "/Properties/MaxSize", "2", "4", types.RequiresRecreationNever), static))},
			want: []string{"  ~ autoscaling-group/a (id-of-GroupA)", `MaxSize: "2" → "4"`},
		},
		"the same property for two causes, and one that is known later": {
			changes: []types.Change{change(types.ChangeActionModify, "GroupA", group,
				detail(prop("LaunchTemplate", "", "", "", types.RequiresRecreationNever), dynamic),
				detail(prop("LaunchTemplate", "", "", "", types.RequiresRecreationNever), static),
				detail(prop("MinSize", "", "", "", types.RequiresRecreationNever), dynamic))},
			want: []string{"  ~ autoscaling-group/a (id-of-GroupA)", `LaunchTemplate: "(not shown)" → "(not shown)"`, `MinSize: "(not shown)" → (known after apply)`},
		},
		"replaced": {
			changes: []types.Change{change(types.ChangeActionModify, "SubnetA", subnet, replaced(types.ReplacementTrue, types.PolicyActionReplaceAndDelete),
				detail(prop("CidrBlock", "/Properties/CidrBlock", "10.0.0.0/24", "10.0.1.0/24", types.RequiresRecreationAlways), static))},
			want: []string{"-/+ subnet/a (id-of-SubnetA)", `CidrBlock: "10.0.0.0/24" → "10.0.1.0/24"  # forces replacement`},
		},
		"replaced, and the old one stays": {
			changes: []types.Change{change(types.ChangeActionModify, "VolumeX", volume, replaced(types.ReplacementTrue, types.PolicyActionReplaceAndRetain))},
			want:    []string{"-/+ volume/VolumeX (id-of-VolumeX)  # the old one is kept in AWS"},
		},
		"perhaps replaced": {
			changes: []types.Change{change(types.ChangeActionModify, "SubnetA", subnet, replaced(types.ReplacementConditional, ""))},
			want:    []string{"  ~ subnet/a (id-of-SubnetA)  # may be replaced: CloudFormation decides during the update"},
		},
		"destroyed, or left": {
			changes: []types.Change{
				change(types.ChangeActionRemove, "SubnetA", subnet, replaced("", types.PolicyActionDelete)),
				change(types.ChangeActionRemove, "VolumeX", volume, replaced("", types.PolicyActionRetain)),
			},
			want: []string{"  - subnet/a (id-of-SubnetA)", "  - volume/VolumeX (id-of-VolumeX)  # removed from the stack, kept in AWS"},
		},
		"tags, policies and structures": {
			changes: []types.Change{change(types.ChangeActionModify, "VpcMain", vpc,
				detail(types.ResourceTargetDefinition{Attribute: types.ResourceAttributeTags, AttributeChangeType: types.AttributeChangeTypeAdd, Path: aws.String("/Properties/Tags/3"), AfterValue: aws.String(`{"Key":"a","Value":"b"}`)}, static),
				detail(types.ResourceTargetDefinition{Attribute: types.ResourceAttributeUpdatePolicy}, static),
				detail(types.ResourceTargetDefinition{Attribute: types.ResourceAttributeProperties, Name: aws.String("X"), AttributeChangeType: types.AttributeChangeTypeRemove, BeforeValue: aws.String("1")}, static),
				detail(types.ResourceTargetDefinition{Attribute: types.ResourceAttributeProperties, Name: aws.String("Y"), AfterValue: aws.String("{{changeSet:KNOWN_AFTER_APPLY}}"), BeforeValue: aws.String("2")}, dynamic))},
			want: []string{
				"  ~ vpc/main (id-of-VpcMain)", `Tags.3: (not set) → {"Key":"a","Value":"b"}`, `UpdatePolicy: "(not shown)" → "(not shown)"`,
				`X: "1" → (not set)`, `Y: "2" → (known after apply)`,
			},
		},
		"values are in the contexts of the whole resource": {
			changes: []types.Change{change(types.ChangeActionModify, "GroupA", group, func(r *types.ResourceChange) {
				r.BeforeContext = aws.String(`{"Properties":{"MaxSize":"2","Data":{"Image":"ami-1","Type":"t","Tags":[{"Key":"k","Value":"v"}]}}}`)
				r.AfterContext = aws.String(`{"Properties":{"MaxSize":"4","Data":{"Image":"ami-2","Type":"t","Tags":[{"Key":"k","Value":"w"}],"Id":"{{changeSet:KNOWN_AFTER_APPLY}}"}}}`)
			},
				detail(prop("MaxSize", "", "", "", types.RequiresRecreationNever), static),
				detail(prop("Data", "", "", "", types.RequiresRecreationNever), dynamic), detail(prop("Data", "", "", "", types.RequiresRecreationNever), static),
				detail(prop("Same", "", "", "", types.RequiresRecreationNever), static))},
			want: []string{
				"  ~ autoscaling-group/a (id-of-GroupA)", `Data.Id: (not set) → (known after apply)`, `Data.Image: "ami-1" → "ami-2"`, `Data.Tags.0.Value: "v" → "w"`,
				`MaxSize: "2" → "4"`, `Same: "(not shown)" → "(not shown)"`,
			},
		},
		"something else than a resource": {changes: []types.Change{{}}, want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := []string{}
			for _, s := range stack.StepsOf(tc.changes, names()) {
				got = append(got, s.String())
				for _, c := range s.Changes {
					got = append(got, c.String())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMergeChanges: a group whose launch template changes in place is described without property values only.
func TestMergeChanges(t *testing.T) {
	t.Parallel()
	const group, launchTemplate = "AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::LaunchTemplate"
	name, path, before, after := "LaunchTemplateData", "/Properties/LaunchTemplateData/InstanceType", "t3.large", "m5.large"
	version := "LaunchTemplate"
	valued := []types.Change{change(types.ChangeActionModify, "TemplateA", launchTemplate, detail(types.ResourceTargetDefinition{
		Attribute: types.ResourceAttributeProperties, Name: &name, Path: &path, BeforeValue: &before, AfterValue: &after,
	}, types.EvaluationTypeStatic))}
	all := []types.Change{
		change(types.ChangeActionModify, "GroupA", group, detail(types.ResourceTargetDefinition{
			Attribute: types.ResourceAttributeProperties, Name: &version,
		}, types.EvaluationTypeDynamic)),
		change(types.ChangeActionModify, "TemplateA", launchTemplate, detail(types.ResourceTargetDefinition{
			Attribute: types.ResourceAttributeProperties, Name: &name,
		}, types.EvaluationTypeStatic)),
		{},
	}
	var got []string
	for _, s := range stack.StepsOf(stack.MergeChanges(valued, all), names()) {
		got = append(got, s.String())
		for _, c := range s.Changes {
			got = append(got, c.String())
		}
	}
	if diff := cmp.Diff([]string{
		"  ~ autoscaling-group/a (id-of-GroupA)", `LaunchTemplate: "(not shown)" → (known after apply)`,
		"  ~ launch-template/TemplateA (id-of-TemplateA)", `LaunchTemplateData.InstanceType: "t3.large" → "m5.large"`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPhaseOf(t *testing.T) {
	for status, want := range map[types.StackStatus]stack.Phase{
		"": stack.PhaseAbsent, "DELETE_COMPLETE": stack.PhaseAbsent, "REVIEW_IN_PROGRESS": stack.PhaseReview,
		"CREATE_IN_PROGRESS": stack.PhaseInProgress, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS": stack.PhaseInProgress, "UPDATE_ROLLBACK_IN_PROGRESS": stack.PhaseInProgress, "DELETE_IN_PROGRESS": stack.PhaseInProgress,
		"CREATE_COMPLETE": stack.PhaseUpdatable, "UPDATE_COMPLETE": stack.PhaseUpdatable, "UPDATE_ROLLBACK_COMPLETE": stack.PhaseUpdatable, "IMPORT_COMPLETE": stack.PhaseUpdatable,
		"CREATE_FAILED": stack.PhaseDeleteOnly, "ROLLBACK_COMPLETE": stack.PhaseDeleteOnly, "ROLLBACK_FAILED": stack.PhaseDeleteOnly, "DELETE_FAILED": stack.PhaseDeleteOnly,
		"UPDATE_ROLLBACK_FAILED": stack.PhaseRollbackFailed, "UPDATE_FAILED": stack.PhaseRollbackFailed,
	} {
		if got := stack.PhaseOf(status); got != want {
			t.Errorf("%s: got %s, want %s", status, got, want)
		}
	}
	// Every status that the client knows has a phase, and only four are success.
	for _, s := range types.StackStatus("").Values() {
		if stack.PhaseOf(s) == stack.PhaseInProgress != (strings.HasSuffix(string(s), "_IN_PROGRESS") && s != "REVIEW_IN_PROGRESS") {
			t.Errorf("%s: phase %s", s, stack.PhaseOf(s))
		}
		if stack.IsSuccess(s) && (strings.Contains(string(s), "FAILED") || strings.Contains(string(s), "ROLLBACK")) {
			t.Errorf("%s counts as success", s)
		}
	}
}

func event(typ, id, status, reason string, second int) types.StackEvent {
	at := time.Unix(int64(second), 0).UTC()
	return types.StackEvent{
		ResourceType: &typ, LogicalResourceId: &id, ResourceStatus: types.ResourceStatus(status), ResourceStatusReason: &reason, Timestamp: &at,
		PhysicalResourceId: aws.String("id-of-" + id), StackId: aws.String("id-of-stack"),
	}
}

func TestFirstFailure(t *testing.T) {
	const vpc, group, whole = "AWS::EC2::VPC", "AWS::AutoScaling::AutoScalingGroup", "AWS::CloudFormation::Stack"
	events := []types.StackEvent{
		event(whole, "stack", "UPDATE_IN_PROGRESS", "User Initiated", 0),
		event(vpc, "VpcMain", "UPDATE_IN_PROGRESS", "", 1),
		event(group, "GroupA", "UPDATE_IN_PROGRESS", "", 2),
		event(vpc, "Late", "UPDATE_IN_PROGRESS", "Received FAILURE signal with UniqueId i-9", 2),
		event(group, "GroupA", "UPDATE_IN_PROGRESS", "Received SUCCESS signal with UniqueId i-8", 3),
		event(group, "GroupA", "UPDATE_IN_PROGRESS", "Received FAILURE signal with UniqueId i-1", 3),
		event(vpc, "VpcMain", "UPDATE_FAILED", "Resource update cancelled", 3),
		event(group, "GroupA", "UPDATE_FAILED", "Received 1 FAILURE signal(s) out of 1", 4),
		event(whole, "stack", "UPDATE_ROLLBACK_IN_PROGRESS", "The following resource(s) failed to update: [VpcMain, GroupA].", 5),
		event(vpc, "Late", "UPDATE_FAILED", "something else", 6),
	}
	want := stack.FailureCause{Addr: "autoscaling-group/a", ID: "id-of-GroupA", Reason: "Received 1 FAILURE signal(s) out of 1", StartedAt: time.Unix(2, 0).UTC(), Machines: []string{"i-1"}}
	if diff := cmp.Diff(want, stack.FirstFailure(events, names(), "")); diff != "" {
		t.Error(diff)
	}
	err := stack.FailedError{Stack: "s", Status: "UPDATE_ROLLBACK_COMPLETE", Cause: want}
	if got := err.Error(); got != "stack s ended in UPDATE_ROLLBACK_COMPLETE; the first failed resource was autoscaling-group/a (id-of-GroupA): Received 1 FAILURE signal(s) out of 1" {
		t.Error(got)
	}
	if got := stack.FirstFailure(events[:7], names(), "cancelled by its owner"); got.Addr != "" || got.Reason != "cancelled by its owner" {
		t.Errorf("a cancelled resource is reported as the cause: %+v", got)
	}
}

func TestProgress(t *testing.T) {
	for status, want := range map[types.ResourceStatus]string{
		"CREATE_IN_PROGRESS": "create started", "CREATE_COMPLETE": "create done", "CREATE_FAILED": "create failed",
		"UPDATE_IN_PROGRESS": "update started", "UPDATE_COMPLETE": "update done", "UPDATE_FAILED": "update failed",
		"DELETE_IN_PROGRESS": "delete started", "DELETE_COMPLETE": "delete done", "DELETE_SKIPPED": "delete done", "DELETE_FAILED": "delete failed",
	} {
		action, state := stack.ProgressOf(status)
		if got := string(action) + " " + string(state); got != want {
			t.Errorf("%s: got %s, want %s", status, got, want)
		}
	}
}

func TestBegins(t *testing.T) {
	const whole = "AWS::CloudFormation::Stack"
	for status, want := range map[string]bool{
		"CREATE_IN_PROGRESS": true, "UPDATE_IN_PROGRESS": true, "DELETE_IN_PROGRESS": true,
		"REVIEW_IN_PROGRESS": false, "ROLLBACK_IN_PROGRESS": false, "UPDATE_ROLLBACK_IN_PROGRESS": false, "UPDATE_COMPLETE": false, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS": false,
	} {
		if got := stack.StartsOperation(event(whole, "stack", status, "", 0)); got != want {
			t.Errorf("%s: got %v", status, got)
		}
		if stack.StartsOperation(event("AWS::EC2::VPC", "VpcMain", status, "", 0)) {
			t.Errorf("%s of a resource begins an operation", status)
		}
	}
}
