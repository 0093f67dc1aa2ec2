// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
)

// template has the parts of a template that the tests of the rollout read.
type template struct {
	Parameters map[string]struct {
		Default, AllowedPattern string
	}
	Mappings struct {
		Text struct{ T map[string]string }
	}
	Resources map[string]struct {
		Type           string
		DependsOn      []string
		CreationPolicy any
		UpdatePolicy   any
		DeletionPolicy string
		Properties     map[string]any
	}
}

func parse(t *testing.T, body string) template {
	t.Helper()
	var out template
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSlotsAreRolledOneAfterAnother(t *testing.T) {
	doc := parse(t, rendered(t, ha())["template.json"])
	policy := func(suspended ...any) any {
		return map[string]any{"AutoScalingRollingUpdate": map[string]any{
			"PauseTime": map[string]any{"Ref": "UpdateTimeout"}, "SuspendProcesses": suspended, "WaitOnResourceSignals": true,
		}}
	}
	update := policy("HealthCheck", "ReplaceUnhealthy")
	creation := func(count any) any {
		return map[string]any{"ResourceSignal": map[string]any{"Count": count, "Timeout": map[string]any{"Ref": "CreationTimeout"}}}
	}
	const slot, gate, workers = "AutoscalingGroupControlPlane", "ControlPlaneReady", "AutoscalingGroupWorkers"
	for id, want := range map[string]struct {
		after            []string
		creation, update any
	}{
		slot + "A": {nil, nil, update},
		slot + "B": {[]string{slot + "A"}, nil, update},
		slot + "C": {[]string{slot + "B"}, nil, update},
		gate:       {[]string{slot + "C"}, creation(3.), nil},
		workers: {
			[]string{gate}, creation(map[string]any{"Ref": "WorkersMinSize"}), // the gate waits for the last slot
			policy("AZRebalance", "AlarmNotification", "HealthCheck", "ReplaceUnhealthy", "ScheduledActions"),
		},
	} {
		r := doc.Resources[id]
		var after []string
		for _, d := range r.DependsOn {
			if d == gate || strings.HasPrefix(d, slot) {
				after = append(after, d)
			}
		}
		slices.Sort(want.after)
		if diff := cmp.Diff([]any{want.after, want.creation, want.update}, []any{after, r.CreationPolicy, r.UpdatePolicy}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	pattern := regexp.MustCompile(doc.Parameters["UpdateTimeout"].AllowedPattern)
	for _, name := range []string{"CreationTimeout", "UpdateTimeout"} {
		if d := doc.Parameters[name].Default; d == "" || !pattern.MatchString(d) {
			t.Errorf("the default of %s is %q", name, d)
		}
	}
}

func TestNothingWaitsWhereNothingSignals(t *testing.T) {
	body, err := cloudformation.Render(ha().Graph(t), cloudformation.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"CreationPolicy", "UpdatePolicy", "ControlPlaneReady", "CreationTimeout", "UpdateTimeout", "SignalResource"} {
		if strings.Contains(string(body), word) {
			t.Errorf("a graph whose machines do not signal renders %s", word)
		}
	}
}

// TestMachinesAreToldWhatToSignal evaluates user data as CloudFormation would.
func TestMachinesAreToldWhatToSignal(t *testing.T) {
	doc := parse(t, rendered(t, ha())["template.json"])
	for id, want := range map[string]string{
		"LaunchTemplateControlPlaneB": "AutoscalingGroupControlPlaneB,ControlPlaneReady",
		"LaunchTemplateWorkers":       "AutoscalingGroupWorkers",
	} {
		data, _ := doc.Resources[id].Properties["LaunchTemplateData"].(map[string]any)
		_, config, _ := strings.Cut(joined(doc, data["UserData"]), "r'''")
		config, _, _ = strings.Cut(config, "'''")
		var boot struct{ Signal, Stack string }
		if err := json.Unmarshal([]byte(config), &boot); err != nil {
			t.Fatalf("%s: %v\n%s", id, err, config)
		}
		for name := range strings.SplitSeq(boot.Signal, ",") {
			if doc.Resources[name].Type == "" {
				t.Errorf("%s signals %s, which does not exist", id, name)
			}
		}
		if boot.Signal != want || boot.Stack != "AWS::StackName" {
			t.Errorf("%s signals %q of %q", id, boot.Signal, boot.Stack)
		}
	}
}

// joined evaluates the intrinsic functions in user data.
func joined(doc template, v any) string {
	switch x := v.(type) {
	case string:
		return x
	case []any:
		var b strings.Builder
		for _, e := range x {
			b.WriteString(joined(doc, e))
		}
		return b.String()
	case map[string]any:
		for f, arg := range x {
			list, _ := arg.([]any)
			switch f {
			case "Fn::Base64":
				return joined(doc, arg)
			case "Fn::Join":
				return joined(doc, list[1])
			case "Fn::FindInMap":
				return doc.Mappings.Text.T[joined(doc, list[2])]
			case "Ref":
				return joined(doc, arg)
			}
		}
	}
	return "unknown"
}

// TestOnlyTheControlPlaneSignals checks the policies of both roles: a worker's role was able to signal any resource of
// the stack, and so let a rollout go on too early.
func TestOnlyTheControlPlaneSignals(t *testing.T) {
	doc := parse(t, rendered(t, ha())["template.json"])
	stack := map[string]any{"Fn::Sub": "arn:aws:cloudformation:us-east-1:123456789012:stack/${AWS::StackName}/*"}
	for id, want := range map[string][]any{
		"IamRolePolicyControlPlaneA": {[]any{"cloudformation:SignalResource"}, []any{stack}},
		"IamRolePolicyControlPlaneC": {[]any{"cloudformation:SignalResource"}, []any{stack}},
		"IamRolePolicyWorker":        nil,
	} {
		policy, _ := doc.Resources[id].Properties["PolicyDocument"].(map[string]any)
		statements, _ := policy["Statement"].([]any)
		var got []any
		for _, s := range statements {
			if m, _ := s.(map[string]any); m["Sid"] == "Signal" {
				got = append(got, m["Action"], m["Resource"])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
}

func TestStackPolicyKeepsData(t *testing.T) {
	g := ha().StackGraph(t, "us-east-1")
	body, err := cloudformation.StackPolicy(g)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"Statement":[{"Action":"Update:*","Effect":"Allow","Principal":"*","Resource":"*"},` +
		`{"Action":["Update:Replace","Update:Delete"],"Effect":"Deny","Principal":"*","Resource":` +
		`["LogicalResourceId/KmsKeyMain","LogicalResourceId/VolumeEtcdA","LogicalResourceId/VolumeEtcdB","LogicalResourceId/VolumeEtcdC"]}]}`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Error(diff)
	}
}

func TestRolloutOf(t *testing.T) {
	got := render.RolloutOf(ha().StackGraph(t, "us-east-1"))
	want := render.Rollout{
		Slots:  []graph.Addr{"autoscaling-group/control-plane-a", "autoscaling-group/control-plane-b", "autoscaling-group/control-plane-c"},
		Groups: []graph.Addr{"autoscaling-group/workers"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
