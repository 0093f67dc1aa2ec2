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
	// ControlPlaneGate is the logical id of the wait condition that completes, during the stack's creation,
	// when the whole control plane is healthy. A slot cannot wait for itself: etcd has a quorum only when the
	// later slots run too.
	ControlPlaneGate = "ControlPlaneReady"
	// CreationTimeout is the parameter for how long machines may take to become healthy when the stack is
	// created.
	CreationTimeout = "CreationTimeout"
	// UpdateTimeout is the parameter for how long replaced machines may take to become healthy.
	UpdateTimeout = "UpdateTimeout"

	// A machine is healthy after about 2 minutes. The rest of the time is for AWS to create load balancers
	// and NAT gateways, for slow mirrors, and for etcd to copy a large database.
	creationDefault = "PT30M"
	updateDefault   = "PT15M"
	durationPattern = "^PT([0-9]+[HMS]){1,3}$"
)

// suspendedProcesses returns the Auto Scaling processes that AWS recommends to suspend while CloudFormation
// replaces machines.
func suspendedProcesses() []string {
	return []string{"AZRebalance", "AlarmNotification", "HealthCheck", "ReplaceUnhealthy", "ScheduledActions"}
}

// suspendedSlotProcesses returns those of them that matter for a group of one machine in one zone.
func suspendedSlotProcesses() []string { return []string{"HealthCheck", "ReplaceUnhealthy"} }

// addRollout adds the update and creation policies of n to its body, and returns after with the resources
// that n waits for.
func (r renderer) addRollout(n *graph.Node, body jsonObject, after []string) []string {
	slot := slices.Index(r.rollout.Slots, n.Addr)
	group := slices.Index(r.rollout.Groups, n.Addr)
	if slot < 0 && group < 0 {
		return after
	}

	// MaxBatchSize 1 and MinInstancesInService 0 are the defaults; they are left out because of the
	// template's size.
	suspended := suspendedProcesses()
	if slot >= 0 {
		suspended = suspendedSlotProcesses()
	}

	body["UpdatePolicy"] = jsonObject{"AutoScalingRollingUpdate": jsonObject{
		"PauseTime":             jsonObject{"Ref": UpdateTimeout},
		"SuspendProcesses":      suspended,
		"WaitOnResourceSignals": true,
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

// renderField returns the rendered value of a property of n; nil if it has none.
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

// renderGate returns the wait condition for all slots; nil if they do not signal.
func (r renderer) renderGate() jsonObject {
	n := len(r.rollout.Slots)
	if n == 0 {
		return nil
	}

	return jsonObject{
		"Type":           "AWS::CloudFormation::WaitCondition",
		"DependsOn":      []string{r.logicalIDs[r.rollout.Slots[n-1]]},
		"CreationPolicy": creationPolicy(n),
	}
}

// timeoutParameters returns the timeout parameters; none if no machine signals.
func (r renderer) timeoutParameters() jsonObject {
	if len(r.rollout.Slots)+len(r.rollout.Groups) == 0 {
		return nil
	}

	param := func(value, what string) jsonObject {
		return jsonObject{
			"Type":           "String",
			"Default":        value,
			"AllowedPattern": durationPattern,
			"Description":    "time to become healthy when " + what,
		}
	}

	return jsonObject{
		CreationTimeout: param(creationDefault, "the stack is created"),
		UpdateTimeout:   param(updateDefault, "they are replaced"),
	}
}

// signalNames returns the logical ids that machines of the group at addr signal: their own group and, for a
// slot, the gate.
func (r renderer) signalNames(addr graph.Addr) string {
	if slices.Contains(r.rollout.Slots, addr) {
		return r.logicalIDs[addr] + "," + ControlPlaneGate
	}

	return r.logicalIDs[addr]
}

// renderLiteral renders a string that may contain placeholders, as a list of strings and references.
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

		out = append(out, r.renderReferences(piece)...)
	}

	return out
}

// renderReferences renders a string that may contain references to resources of the graph, as a document does.
func (r renderer) renderReferences(s string) []any {
	var out []any
	for s != "" {
		symbol, before, after := graph.FindJSONReference(s)
		out = append(out, renderVersioned(before)...)
		if symbol != (graph.Symbol{}) {
			out = append(out, r.renderReference(symbol))
		}

		s = after
	}

	return out
}

// StackPolicy returns the stack policy for g's template: it allows every update, except replacing or deleting
// resources that hold data.
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
			"Effect":    "Deny",
			"Principal": "*",
			"Action":    []string{"Update:Replace", "Update:Delete"},
			"Resource":  kept,
		})
	}

	body, err := json.Marshal(jsonObject{"Statement": statements})
	if err != nil {
		return nil, fmt.Errorf("encode the stack policy: %w", err)
	}

	return body, nil
}
