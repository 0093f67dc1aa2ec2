// SPDX-License-Identifier: Apache-2.0

// Package plan compares a graph with what exists, says what would change, and carries it out in an order that works.
// It knows no cloud: what exists is given to it as data, and what is to be done goes through an interface.
package plan

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Action is what is to be done with one resource.
type Action string

// The actions.
const (
	Create  Action = "create"
	Update  Action = "update"
	Replace Action = "replace"
	Delete  Action = "delete"
)

// Unknown stands for a value that AWS makes up while the plan is applied.
const Unknown = "(known after apply)"

// FormatVersion of a plan's JSON form.
const FormatVersion = 1

// ActualResource is one resource that exists.
type ActualResource struct {
	// Addr from its tag; empty for a kind with a key, which the planner recognises by its parent.
	Addr graph.Addr
	// ID is its identity in AWS.
	ID string
	// Resource as read, all literal.
	Resource graph.Resource
	// Attributes that AWS made up, by CloudFormation's name.
	Attributes map[string]string
	// Owner says who made it where that was not us, such as "service default/web": it is what a program in the cluster
	// left over. Empty for what is ours.
	Owner string
	// UsedBy are the identities of what uses it beside those that its resource or theirs refers to. They go before it.
	UsedBy []string
}

// Change is one property that differs.
type Change struct {
	Property string `json:"property"` // with a path below it, such as LaunchTemplateData.ImageId or Tags[Name]
	Old      any    `json:"old"`      // null: not set
	New      any    `json:"new"`      // [Unknown]: known after apply
	// ForcesReplacement says that AWS cannot change it in place.
	ForcesReplacement bool `json:"forcesReplacement,omitempty"`
}

// Step is one action on one resource.
type Step struct {
	Action  Action     `json:"action"`
	Addr    graph.Addr `json:"address"`
	Kind    string     `json:"kind"`
	ID      string     `json:"id,omitempty"` // of what exists
	Changes []Change   `json:"changes,omitempty"`
	Note    string     `json:"note,omitempty"` // what the reader should know
	// Owner is who made it, if not we: see [ActualResource].
	Owner string `json:"owner,omitempty"`

	desired *graph.Node     // desired; nil for Delete
	actual  *ActualResource // existing; nil for Create
}

// Desired returns what is to be, with references still symbolic; nil for a deletion.
func (s Step) Desired() graph.Resource {
	if s.desired == nil {
		return nil
	}

	return s.desired.Resource
}

// Actual returns what exists; nil for a creation.
func (s Step) Actual() graph.Resource {
	if s.actual == nil {
		return nil
	}

	return s.actual.Resource
}

// Plan is what is to be done, in an order that works. The zero Plan does nothing.
type Plan struct {
	Steps []Step

	actual       []ActualResource // recognised and addressed
	desired      []DesiredResource
	dependencies [][]int // by operation: operations to wait for
	operations   []planOperation
}

// Options say how a plan is made.
type Options struct {
	// DestroyData allows to delete what holds data that cannot be made again; else that is a finding.
	DestroyData bool
}

// Compute returns the plan that brings actual to desired. It is pure: the same arguments give the same plan.
// Findings of severity error mean that the plan must not be applied.
func Compute(desired *graph.Graph, actual []ActualResource, opt Options) (Plan, diag.Findings) {
	m := &planner{desired: desired, claimed: map[graph.Addr]*ActualResource{}, steps: map[graph.Addr]int{}}
	rest := m.sortActual(actual)
	for _, n := range desired.Nodes() {
		rest = m.planNode(n, rest)
	}

	p := Plan{Steps: m.ordered, desired: m.desiredResources}
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
	fs = append(fs, m.checkStepPolicies(p.Steps, opt)...)
	fs = append(fs, orderOperations(&p, desired)...)

	return p, fs
}

// IsEmpty says whether there is nothing to do.
func (p Plan) IsEmpty() bool { return len(p.Steps) == 0 }

// ResourceID returns the identity of what exists at addr; empty if nothing does.
func (p Plan) ResourceID(addr graph.Addr) string {
	for _, a := range p.actual {
		if a.Addr == addr {
			return a.ID
		}
	}

	return ""
}

// planner holds what is known while a plan is made.
type planner struct {
	desired          *graph.Graph
	claimed          map[graph.Addr]*ActualResource // what exists, by the desired node it serves
	steps            map[graph.Addr]int             // index into ordered
	ordered          []Step
	desiredResources []DesiredResource
}

// sortActual returns a copy of actual in an order that depends on nothing but its content.
func (m *planner) sortActual(actual []ActualResource) []ActualResource {
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

// planNode plans n, and returns what of rest it does not claim.
func (m *planner) planNode(n *graph.Node, rest []ActualResource) []ActualResource {
	want := graph.Resolve(n.Resource, m.lookupSymbol)
	m.desiredResources = append(m.desiredResources, DesiredResource{Addr: n.Addr, Resource: want})
	best := -1
	changes := []Change(nil)

	for i := range rest {
		if !m.matchesNode(&rest[i], n, want) {
			continue
		}

		cs := Diff(want, rest[i].Resource)
		if best < 0 || changeCost(cs) < changeCost(changes) {
			best = i
			changes = cs
		}
	}

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
			desired: n,
			actual:  &have,
		}
		if slices.ContainsFunc(changes, func(c Change) bool { return c.ForcesReplacement }) {
			s.Action = Replace
		}

		s.Note = policyOf(s.Kind).notes[s.Action]
		m.addStep(s)
	}

	return slices.Delete(rest, best, best+1)
}

func (m *planner) addStep(s Step) {
	m.steps[s.Addr] = len(m.ordered)
	m.ordered = append(m.ordered, s)
}

// matchesNode says whether a is what n stands for.
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

// lookupSymbol gives the values of symbols that will not change while the plan is applied.
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

	s.Note = policyOf(s.Kind).notes[Delete]
	if a.Owner != "" {
		s.Owner = a.Owner
		s.Note = "leftover of " + a.Owner
		if policyOf(s.Kind).holdsData {
			s.Note += ": its data is lost"
		}
	}

	return s
}

// checkStepPolicies says which steps must not be taken (D4, deletion protection).
func (m *planner) checkStepPolicies(steps []Step, opt Options) diag.Findings {
	var fs diag.Findings
	for _, s := range steps {
		pol := policyOf(s.Kind)
		if s.Action == Replace && pol.replacement == refuseReplacement {
			for _, c := range s.Changes {
				if c.ForcesReplacement {
					fs.Errorf(
						string(s.Addr),
						formatValue(c.New),
						pol.refusalHint,
						"%s cannot be changed from %s",
						c.Property,
						formatValue(c.Old),
					)
				}
			}
		}

		fs = append(fs, checkShrinking(s, pol.growOnly)...)
		if (s.Action == Delete || s.Action == Replace) && pol.holdsData && !opt.DestroyData {
			fs.Errorf(
				string(s.Addr),
				s.ID,
				"put it back into the manifest, or say --destroy-data if its data may go",
				"would be destroyed with the data it holds",
			)
		}
	}

	return fs
}

// checkShrinking refuses to make smaller what AWS makes larger only.
func checkShrinking(s Step, grows string) diag.Findings {
	var fs diag.Findings
	for _, c := range s.Changes {
		if c.Property == grows && isShrink(c) {
			fs.Errorf(
				string(s.Addr),
				formatValue(c.New),
				"say "+formatValue(c.Old)+" in the manifest: AWS makes nothing of this kind smaller",
				"%s cannot shrink from %s",
				c.Property,
				formatValue(c.Old),
			)
		}
	}

	return fs
}

func isShrink(c Change) bool {
	was, ok := c.Old.(int64)
	is, known := c.New.(int64)
	return ok && known && is < was
}

func changeCost(cs []Change) int {
	n := len(cs)
	for _, c := range cs {
		if c.ForcesReplacement {
			n += 1000
		}
	}

	return n
}
