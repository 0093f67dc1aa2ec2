// SPDX-License-Identifier: Apache-2.0

// Package plan compares the desired resources of a cluster with the existing ones, and applies the
// difference.
//
// [Compute] is a pure function from a graph and the existing resources to a [Plan]: the steps to take, in a
// valid order. [Applier] executes a plan concurrently through the interface [Cloud]. A [LastApplied] record
// of what was applied lets [Plan.Deviations] tell drift from edits of the manifests.
//
// The package does not know any cloud or any kind of resource by name: existing resources are passed in as
// data, each kind declares its rules in [graph.Kind], and changes are made through an interface.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Action is what a step does with one resource.
type Action string

// The actions. Replace deletes the existing resource and creates another one at the same address.
const (
	Create  Action = "create"
	Update  Action = "update"
	Replace Action = "replace"
	Delete  Action = "delete"
)

// Unknown is shown for a value that AWS assigns while the plan is applied.
const Unknown = "(known after apply)"

// FormatVersion is the version of the JSON format of a plan, see [Document].
const FormatVersion = 1

// ActualResource is one existing resource, as read from AWS.
type ActualResource struct {
	// Addr is the address in the resource's tag; empty for a kind with key properties, which the planner
	// matches by its key.
	Addr graph.Addr
	// ID is the resource's identity in AWS.
	ID string
	// Resource has the properties as read; every reference is literal.
	Resource graph.Resource
	// Attributes are the values that AWS assigned, by CloudFormation's name.
	Attributes map[string]string
	// Owner names the creator of a leftover that a program in the cluster created, such as "service
	// default/web". Empty: Slipway created the resource.
	Owner string
	// UsedBy lists the identities of resources that use this one without a reference in any property. They
	// are deleted before it.
	UsedBy []string
}

// Change is one property that differs.
type Change struct {
	// Property is the path of the property, such as LaunchTemplateData.ImageId or Tags[Name].
	Property string `json:"property"`
	// Old is the value in AWS; null: not set.
	Old any `json:"old"`
	// New is the desired value; null: not set; [Unknown]: known after apply.
	New any `json:"new"`
	// ForcesReplacement is true if AWS cannot change the property in place.
	ForcesReplacement bool `json:"forcesReplacement,omitempty"`
	// Settings are what differs inside the value, if it is a document or a policy. Set by the caller.
	Settings []Setting `json:"settings,omitempty"`
	// Effect is what the change does to what is running. Set by the caller; empty: not known.
	Effect Effect `json:"effect,omitempty"`
	// EffectText describes Effect.
	EffectText string `json:"effectText,omitempty"`
}

// Setting is one setting that differs inside a document.
type Setting struct {
	// Setting is its path in the document, such as kubelet.kubeReserved.cpu.
	Setting string `json:"setting"`
	// Old is the value in the existing document; null: not set. It is never a secret.
	Old any `json:"old"`
	// New is the desired value; null: not set; [Unknown]: known after apply.
	New any `json:"new"`
	// Effect is how running machines get a setting of their node document: "live", "restarts kubelet" or "needs new
	// machines". Empty for settings of other documents.
	Effect string `json:"effect,omitempty"`
}

// Effect is what a step or a change does to what is running.
type Effect string

// The effects.
const (
	// NoEffect interrupts nothing.
	NoEffect Effect = "none"
	// OnNewMachines takes effect on machines that are started later; running machines keep theirs.
	OnNewMachines Effect = "new-machines"
	// RollsMachines replaces running machines.
	RollsMachines Effect = "rolls"
	// Interrupts interrupts traffic, or stops something that runs.
	Interrupts Effect = "interrupts"
)

// Step is one action on one resource.
type Step struct {
	Action Action `json:"action"`
	// Addr is the address of the resource.
	Addr graph.Addr `json:"address"`
	// Kind is the name of the resource's kind.
	Kind string `json:"kind"`
	// ID is the identity of the existing resource; empty for Create.
	ID string `json:"id,omitempty"`
	// Changes lists what differs; empty for Create and Delete.
	Changes []Change `json:"changes,omitempty"`
	// Note is a remark for the reader of the plan, such as "the etcd data on it is lost".
	Note string `json:"note,omitempty"`
	// Owner is [ActualResource.Owner].
	Owner string `json:"owner,omitempty"`
	// Content describes what is created or deleted: the traffic of a rule, the statements of a policy, the
	// values of a record. Set by the caller.
	Content []string `json:"content,omitempty"`
	// Effect is what the step does to what is running; of an update the strongest effect of its changes. Set
	// by the caller; empty: not known.
	Effect Effect `json:"effect,omitempty"`
	// EffectText describes Effect.
	EffectText string `json:"effectText,omitempty"`

	released bool            // a [graph.RolledOut] keeps nothing
	desired  *graph.Node     // nil for Delete
	actual   *ActualResource // nil for Create
	parent   graph.Addr      // see DeletedWith
}

// DeletedWith returns the address of the resource whose deletion, by the same plan, includes that of this step;
// empty if there is none.
func (s Step) DeletedWith() graph.Addr { return s.parent }

// Desired returns the desired resource, with references still symbolic; nil for a deletion.
func (s Step) Desired() graph.Resource {
	if s.desired == nil {
		return nil
	}

	return s.desired.Resource
}

// Actual returns the existing resource; nil for a creation.
func (s Step) Actual() graph.Resource {
	if s.actual == nil {
		return nil
	}

	return s.actual.Resource
}

// lifecycle returns the rules of the kind of s's resource.
func (s Step) lifecycle() graph.Lifecycle {
	switch {
	case s.desired != nil:
		return s.desired.Resource.Kind().Lifecycle
	case s.actual != nil:
		return s.actual.Resource.Kind().Lifecycle
	}

	return graph.Lifecycle{}
}

// Plan is the difference between the desired and the existing resources. The zero Plan does nothing.
type Plan struct {
	// Steps lists what to do, in a valid order.
	Steps []Step

	// Pending lists what a rollout has to change besides.
	Pending []Pending

	actual       []ActualResource // all existing resources, each with its address
	desired      []DesiredResource
	dependencies [][]int // by operation: the operations to wait for
	operations   []planOperation
}

// Options of [Compute].
type Options struct {
	// DestroyData allows deleting resources with data that cannot be recreated; otherwise that is an error
	// finding.
	DestroyData bool
}

// Compute returns the plan that changes actual to desired. It is pure: the same arguments give the same plan.
// A plan with findings of severity error must not be applied.
func Compute(desired *graph.Graph, actual []ActualResource, opt Options) (Plan, diag.Findings) {
	p, fs := compute(desired, actual, opt, nil)
	if released := p.findReleased(desired); len(released) > 0 {
		return compute(desired, actual, opt, released)
	}

	return p, fs
}

// compute is [Compute]. The resources at the addresses in released keep nothing for a rollout.
func compute(
	desired *graph.Graph,
	actual []ActualResource,
	opt Options,
	released map[graph.Addr]bool,
) (Plan, diag.Findings) {
	m := &planner{
		desired:  desired,
		released: released,
		claimed:  map[graph.Addr]*ActualResource{},
		steps:    map[graph.Addr]int{},
	}
	rest := sortActual(actual)
	for _, n := range desired.Nodes() {
		rest = m.planNode(n, rest)
	}

	p := Plan{Steps: m.ordered, Pending: m.pending, desired: m.desiredResources}
	m.addressUnclaimed(rest)
	for i := range rest {
		p.Steps = append(p.Steps, newDeletion(&rest[i]))
	}

	for _, n := range desired.Nodes() {
		if a := m.claimed[n.Addr]; a != nil {
			p.actual = append(p.actual, *a)
		}
	}

	p.actual = append(p.actual, rest...)
	var fs diag.Findings
	fs = append(fs, checkSteps(p.Steps, opt)...)
	cycles := orderOperations(&p, desired)
	if fs.Err() == nil { // else they follow from a replacement that is reported already
		fs = append(fs, cycles...)
	}

	return p, fs
}

// IsEmpty reports whether p has no steps.
func (p Plan) IsEmpty() bool { return len(p.Steps) == 0 }

// ResourceID returns the identity of the existing resource at addr; empty if there is none.
func (p Plan) ResourceID(addr graph.Addr) string {
	for _, a := range p.actual {
		if a.Addr == addr {
			return a.ID
		}
	}

	return ""
}

// planner is the state of one [Compute].
type planner struct {
	desired          *graph.Graph
	claimed          map[graph.Addr]*ActualResource // existing resources that match a desired one
	steps            map[graph.Addr]int             // index into ordered
	ordered          []Step
	desiredResources []DesiredResource
	released         map[graph.Addr]bool
	pending          []Pending
}

// sortActual returns a copy of actual in an order that depends only on its content.
func sortActual(actual []ActualResource) []ActualResource {
	out := slices.Clone(actual)
	slices.SortStableFunc(out, func(a, b ActualResource) int {
		return compareStrings(
			string(a.Addr),
			string(b.Addr),
			a.Resource.Kind().Name,
			b.Resource.Kind().Name,
			a.ID,
			b.ID,
		)
	})

	return out
}

// planNode plans n, and returns rest without the existing resource that matches n.
func (m *planner) planNode(n *graph.Node, rest []ActualResource) []ActualResource {
	newest := graph.Resolve(n.Resource, m.lookupSymbol)
	want := newest
	best := -1
	changes := []Change(nil)

	for i := range rest {
		if !m.matchesNode(&rest[i], n, newest) {
			continue
		}

		kept := keepFrom(newest, rest[i].Resource, m.released[n.Addr])
		cs := Diff(kept, rest[i].Resource)
		if best < 0 || changeCost(cs) < changeCost(changes) {
			best = i
			changes = cs
			want = kept
		}
	}

	m.desiredResources = append(m.desiredResources, DesiredResource{Addr: n.Addr, Resource: want})
	m.pending = append(m.pending, findPending(n.Addr, newest, want)...)
	if best < 0 {
		m.addStep(Step{
			Action:  Create,
			Addr:    n.Addr,
			Kind:    n.Resource.Kind().Name,
			desired: n,
		})

		return rest
	}

	have := rest[best]
	have.Addr = n.Addr
	m.claimed[n.Addr] = &have
	if len(changes) > 0 {
		s := Step{
			Action:  Update,
			Addr:    n.Addr,
			Kind:    n.Resource.Kind().Name,
			ID:      have.ID,
			Changes: changes,

			released: m.released[n.Addr],
			desired:  n,
			actual:   &have,
		}
		if slices.ContainsFunc(changes, func(c Change) bool { return c.ForcesReplacement }) {
			s.Action = Replace
		}

		if s.Action == Update {
			s.Note = s.lifecycle().UpdateNote
		}

		m.addStep(s)
	}

	return slices.Delete(rest, best, best+1)
}

func (m *planner) addStep(s Step) {
	m.steps[s.Addr] = len(m.ordered)
	m.ordered = append(m.ordered, s)
}

// matchesNode reports whether a is the existing resource of n.
func (m *planner) matchesNode(a *ActualResource, n *graph.Node, want graph.Resource) bool {
	k := n.Resource.Kind()
	if a.Resource.Kind().Name != k.Name {
		return false
	}

	if len(k.KeyProperties) == 0 {
		return a.Addr == n.Addr
	}

	wanted, known := resourceKey(want)
	have, _ := resourceKey(a.Resource)

	return known && wanted == have
}

// lookupSymbol returns the value of a symbol that will not change while the plan is applied; false for
// others.
func (m *planner) lookupSymbol(s graph.Symbol) (string, bool) {
	a := m.claimed[s.Addr]
	step := m.stepAt(s.Addr)
	switch {
	case a == nil || step.Action == Replace:
		return "", false
	case s.Attribute == "":
		return a.ID, true
	case step.Action == Update && slices.Contains(a.Resource.Kind().VolatileAttributes, s.Attribute):
		return "", false
	}

	v, ok := a.Attributes[s.Attribute]

	return v, ok
}

func (m *planner) stepAt(a graph.Addr) Step {
	if i, ok := m.steps[a]; ok {
		return m.ordered[i]
	}

	return Step{}
}

func newDeletion(a *ActualResource) Step {
	s := Step{
		Action: Delete,
		Addr:   a.Addr,
		Kind:   a.Resource.Kind().Name,
		ID:     a.ID,
		actual: a,
	}

	s.Note = s.lifecycle().DeleteNote
	if a.Owner != "" {
		s.Owner = a.Owner
		s.Note = "leftover of " + a.Owner
		if s.lifecycle().HoldsData {
			s.Note += ": its data is lost"
		}
	}

	return s
}

// checkSteps returns error findings for the steps that the lifecycle of their kinds forbids. A step that would
// only have to replace its resource because of a forbidden replacement is not reported again.
func checkSteps(steps []Step, opt Options) diag.Findings {
	var fs diag.Findings
	forbidden := map[graph.Addr]bool{}

	for _, s := range steps {
		rules := s.lifecycle()
		if s.followsFrom(forbidden) {
			forbidden[s.Addr] = true
			continue
		}

		if s.Action == Replace && rules.Replacement == graph.ForbidReplacement {
			forbidden[s.Addr] = true
			fs = append(fs, replacementFindings(s, rules.ForbiddenHint)...)
			continue
		}

		fs = append(fs, shrinkFindings(s, rules.GrowOnlyProperty)...)
		if (s.Action == Delete || s.Action == Replace) && rules.HoldsData && !opt.DestroyData {
			fs.Errorf(
				string(s.Addr),
				s.ID,
				"restore it in the manifest, or add --destroy-data to delete its data",
				"would be destroyed with the data it holds",
			)
		}
	}

	return fs
}

// followsFrom reports whether s replaces its resource only because another resource is replaced, which is
// forbidden.
func (s Step) followsFrom(forbidden map[graph.Addr]bool) bool {
	if s.Action != Replace || s.desired == nil {
		return false
	}

	for _, c := range s.Changes {
		if c.ForcesReplacement && c.New != Unknown {
			return false
		}
	}

	return slices.ContainsFunc(s.desired.Deps, func(d graph.Addr) bool { return forbidden[d] })
}

// replacementFindings reports each change of s that needs a replacement, which its kind forbids.
func replacementFindings(s Step, hint string) diag.Findings {
	var fs diag.Findings
	for _, c := range s.Changes {
		if c.ForcesReplacement {
			fs.Errorf(
				string(s.Addr),
				formatValue(c.New),
				hint,
				"%s cannot be changed from %s",
				c.Property,
				formatValue(c.Old),
			)
		}
	}

	return fs
}

// shrinkFindings reports a change that decreases property, which AWS can only increase.
func shrinkFindings(s Step, property string) diag.Findings {
	var fs diag.Findings
	for _, c := range s.Changes {
		if c.Property != property || !isShrink(c) {
			continue
		}

		fs.Errorf(
			string(s.Addr),
			formatValue(c.New),
			growHint(s.Kind, c),
			"%s cannot shrink from %s",
			c.Property,
			formatValue(c.Old),
		)
	}

	return fs
}

// growHint returns the hint of a change that decreases a property which AWS can only increase.
func growHint(kind string, c Change) string {
	return fmt.Sprintf(
		"set %s to %s or more: AWS cannot shrink a %s",
		strings.ToLower(c.Property),
		formatValue(c.Old),
		kind,
	)
}

func isShrink(c Change) bool {
	old, isNumber := c.Old.(int64)
	size, known := c.New.(int64)
	return isNumber && known && size < old
}

// changeCost ranks the existing resources that match one desired resource: the cheapest to change is kept.
func changeCost(cs []Change) int {
	n := len(cs)
	for _, c := range cs {
		if c.ForcesReplacement {
			n += 1000
		}
	}

	return n
}
