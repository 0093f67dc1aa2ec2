// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render"
)

const (
	// ControlPlaneGate is the name of the resource that waits, while a stack is made, until all of the control plane is well. A slot
	// can not wait for itself: it has a quorum only once the slots after it are there.
	ControlPlaneGate = "ControlPlaneReady"
	// CreationTimeout is the parameter that says how long machines may take to be well when a stack is made.
	CreationTimeout = "CreationTimeout"
	// UpdateTimeout is the one for machines that are replaced.
	UpdateTimeout = "UpdateTimeout"

	// A machine is well within 2 minutes or so. The rest is for AWS to make load balancers and NAT gateways, for slow
	// mirrors, and for etcd to copy a large database.
	creationDefault = "PT30M"
	updateDefault   = "PT15M"
	durationPattern = "^PT([0-9]+[HMS]){1,3}$"
)

// suspendedProcesses are the processes of a group that AWS recommends to suspend while CloudFormation replaces its machines.
func suspendedProcesses() []string {
	return []string{"AZRebalance", "AlarmNotification", "HealthCheck", "ReplaceUnhealthy", "ScheduledActions"}
}

// addRollout adds to the body of the resource of n what it waits for, and what waits for it.
func (r renderer) addRollout(n *graph.Node, body jsonObject, after []string) []string {
	slot := slices.Index(r.rollout.Slots, n.Addr)
	group := slices.Index(r.rollout.Groups, n.Addr)
	if slot < 0 && group < 0 {
		return after
	}

	// One after another, and none has to be in service: these are the defaults, and the size of a template counts.
	body["UpdatePolicy"] = jsonObject{"AutoScalingRollingUpdate": jsonObject{
		"PauseTime":        jsonObject{"Ref": UpdateTimeout},
		"SuspendProcesses": suspendedProcesses(), "WaitOnResourceSignals": true,
	}}
	if slot > 0 {
		after = append(after, r.logicalIDs[r.rollout.Slots[slot-1]])
	}

	if group < 0 {
		return after
	}

	if count := r.renderField(n, "MinSize"); count != "0" {
		body["CreationPolicy"] = creationPolicy(count)
	}

	if last := len(r.rollout.Slots) - 1; last >= 0 {
		after = append(after, ControlPlaneGate, r.logicalIDs[r.rollout.Slots[last]])
	}

	return after
}

// renderField is the rendered value of a property of n.
func (r renderer) renderField(n *graph.Node, property string) any {
	for _, f := range graph.Fields(n.Resource) {
		if f.Property == property {
			v, err := r.renderValue(propertyPath{node: n}.child(property), f)
			if err == nil {
				return v
			}
		}
	}

	return nil
}

func creationPolicy(count any) jsonObject {
	return jsonObject{
		"ResourceSignal": jsonObject{"Count": count, "Timeout": jsonObject{"Ref": CreationTimeout}},
	}
}

// renderGate is the resource that waits for all slots; nil where none signals.
func (r renderer) renderGate() jsonObject {
	n := len(r.rollout.Slots)
	if n == 0 {
		return nil
	}

	return jsonObject{
		"Type": "AWS::CloudFormation::WaitCondition", "DependsOn": []string{r.logicalIDs[r.rollout.Slots[n-1]]},
		"CreationPolicy": creationPolicy(n),
	}
}

// timeoutParameters are the parameters of the rollout.
func (r renderer) timeoutParameters() jsonObject {
	if len(r.rollout.Slots)+len(r.rollout.Groups) == 0 {
		return nil
	}

	param := func(value, what string) jsonObject {
		return jsonObject{
			"Type":           "String",
			"Default":        value,
			"AllowedPattern": durationPattern,
			"Description":    "how long machines may take to be well when " + what,
		}
	}

	return jsonObject{
		CreationTimeout: param(creationDefault, "the stack is made"),
		UpdateTimeout:   param(updateDefault, "they are replaced"),
	}
}

// signalNames are the names of what the machines of the group at addr signal: their own group, and the gate.
func (r renderer) signalNames(addr graph.Addr) string {
	if slices.Contains(r.rollout.Slots, addr) {
		return r.logicalIDs[addr] + "," + ControlPlaneGate
	}

	return r.logicalIDs[addr]
}

// renderLiteral renders a string in which the renderer's own names may be marked: a list of strings and references.
func (r renderer) renderLiteral(s string) []any {
	for {
		addr, before, after := graph.FindSignals(s)
		if addr == "" {
			break
		}

		s = before + r.signalNames(addr) + after
	}

	var out []any
	for i, piece := range strings.Split(s, graph.StackNamePlaceholder) {
		if i > 0 {
			out = append(out, jsonObject{"Ref": "AWS::StackName"})
		}

		out = append(out, renderVersioned(piece)...)
	}

	return out
}

// StackPolicy returns the policy of the stack of g's template: everything may be changed, but what holds data may be
// neither replaced nor removed.
func StackPolicy(g *graph.Graph) ([]byte, error) {
	ids, err := LogicalIDs(g)
	if err != nil {
		return nil, err
	}

	kept := []string{}
	for addr := range render.RetainedResources(g) {
		kept = append(kept, "LogicalResourceId/"+ids[addr])
	}

	slices.Sort(kept)
	statements := []jsonObject{{"Effect": "Allow", "Principal": "*", "Action": "Update:*", "Resource": "*"}}
	if len(kept) > 0 {
		statements = append(statements, jsonObject{
			"Effect": "Deny", "Principal": "*", "Action": []string{"Update:Replace", "Update:Delete"}, "Resource": kept,
		})
	}

	body, err := json.Marshal(jsonObject{"Statement": statements})
	if err != nil {
		return nil, fmt.Errorf("encode the stack policy: %w", err)
	}

	return body, nil
}
