// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/target"
)

const (
	// Gate is the name of the resource that waits, while a stack is made, until all of the control plane is well. A slot
	// can not wait for itself: it has a quorum only once the slots after it are there.
	Gate = "ControlPlaneReady"
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

// suspended are the processes of a group that AWS recommends to suspend while CloudFormation replaces its machines.
func suspended() []string {
	return []string{"AZRebalance", "AlarmNotification", "HealthCheck", "ReplaceUnhealthy", "ScheduledActions"}
}

// rollout adds to the body of the resource of n what it waits for, and what waits for it.
func (r renderer) rollout(n *graph.Node, body object, after []string) []string {
	slot := slices.Index(r.machines.Slots, n.Addr)
	group := slices.Index(r.machines.Groups, n.Addr)
	if slot < 0 && group < 0 {
		return after
	}
	// One after another, and none has to be in service: these are the defaults, and the size of a template counts.
	body["UpdatePolicy"] = object{"AutoScalingRollingUpdate": object{
		"PauseTime":        object{"Ref": UpdateTimeout},
		"SuspendProcesses": suspended(), "WaitOnResourceSignals": true,
	}}
	if slot > 0 {
		after = append(after, r.ids[r.machines.Slots[slot-1]])
	}
	if group < 0 {
		return after
	}
	if count := r.field(n, "MinSize"); count != "0" {
		body["CreationPolicy"] = creationPolicy(count)
	}
	if last := len(r.machines.Slots) - 1; last >= 0 {
		after = append(after, Gate, r.ids[r.machines.Slots[last]])
	}
	return after
}

// field is the rendered value of a property of n.
func (r renderer) field(n *graph.Node, property string) any {
	for _, f := range graph.Fields(n.Resource) {
		if f.Property == property {
			v, err := r.value(place{node: n}.at(property), f)
			if err == nil {
				return v
			}
		}
	}
	return nil
}

func creationPolicy(count any) object {
	return object{"ResourceSignal": object{"Count": count, "Timeout": object{"Ref": CreationTimeout}}}
}

// gate is the resource that waits for all slots; nil where none signals.
func (r renderer) gate() object {
	n := len(r.machines.Slots)
	if n == 0 {
		return nil
	}
	return object{
		"Type": "AWS::CloudFormation::WaitCondition", "DependsOn": []string{r.ids[r.machines.Slots[n-1]]},
		"CreationPolicy": creationPolicy(n),
	}
}

// timeouts are the parameters of the rollout.
func (r renderer) timeouts() object {
	if len(r.machines.Slots)+len(r.machines.Groups) == 0 {
		return nil
	}
	param := func(value, what string) object {
		return object{"Type": "String", "Default": value, "AllowedPattern": durationPattern, "Description": "how long machines may take to be well when " + what}
	}
	return object{
		CreationTimeout: param(creationDefault, "the stack is made"),
		UpdateTimeout:   param(updateDefault, "they are replaced"),
	}
}

// signals are the names of what the machines of the group at addr signal: their own group, and the gate.
func (r renderer) signals(addr graph.Addr) string {
	if slices.Contains(r.machines.Slots, addr) {
		return r.ids[addr] + "," + Gate
	}
	return r.ids[addr]
}

// literal renders a string in which the renderer's own names may be marked: a list of strings and references.
func (r renderer) literal(s string) []any {
	for {
		addr, before, after := graph.SignalsIn(s)
		if addr == "" {
			break
		}
		s = before + r.signals(addr) + after
	}
	var out []any
	for i, piece := range strings.Split(s, graph.StackName) {
		if i > 0 {
			out = append(out, object{"Ref": "AWS::StackName"})
		}
		out = append(out, versioned(piece)...)
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
	for addr := range target.Retained(g) {
		kept = append(kept, "LogicalResourceId/"+ids[addr])
	}
	slices.Sort(kept)
	statements := []object{{"Effect": "Allow", "Principal": "*", "Action": "Update:*", "Resource": "*"}}
	if len(kept) > 0 {
		statements = append(statements, object{
			"Effect": "Deny", "Principal": "*", "Action": []string{"Update:Replace", "Update:Delete"}, "Resource": kept,
		})
	}
	body, err := json.Marshal(object{"Statement": statements})
	if err != nil {
		return nil, fmt.Errorf("encode the stack policy: %w", err)
	}
	return body, nil
}
