// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// planOperation is one operation of Apply: a step, or one half of a replacement.
type planOperation struct {
	step      int  // index into Plan.Steps
	isDestroy bool // else create or update
	parent    int  // the operation that deletes the parent of a child, see Step.DeletedWith; -1: none
}

// operationIndex finds the operations of a plan by address.
type operationIndex struct {
	apply   map[graph.Addr]int // creations and updates
	destroy map[graph.Addr]int
}

// orderOperations sorts the deletions into a valid order and computes what each operation of p waits for.
func orderOperations(p *Plan, desired *graph.Graph) diag.Findings {
	sortDeletions(p)
	index := operationIndex{apply: map[graph.Addr]int{}, destroy: map[graph.Addr]int{}}
	p.operations = nil

	for i, s := range p.Steps {
		if s.Action != Delete {
			index.apply[s.Addr] = len(p.operations)
			p.operations = append(p.operations, planOperation{step: i, parent: -1})
		}

		if s.Action == Delete || s.Action == Replace {
			index.destroy[s.Addr] = len(p.operations)
			p.operations = append(p.operations, planOperation{step: i, isDestroy: true, parent: -1})
		}
	}

	setParents(p)
	users := p.usersByAddr(p.parentsByAddr())
	p.dependencies = make([][]int, len(p.operations))

	for i, op := range p.operations {
		if parent, ok := index.destroy[p.Steps[op.step].parent]; ok && op.isDestroy {
			p.operations[i].parent = parent
		}

		if op.isDestroy {
			p.dependencies[i] = index.destroyDependencies(p.Steps[op.step], users[p.Steps[op.step].Addr])
		} else {
			p.dependencies[i] = index.applyDependencies(p.Steps[op.step], desired)
		}
	}

	return p.findCycles()
}

// applyDependencies returns the operations that a creation or an update waits for: those of its dependencies,
// also of indirect ones. A direct dependency without a step exists, but may lack a dependency that is created
// by this plan.
func (x operationIndex) applyDependencies(s Step, desired *graph.Graph) []int {
	var out []int
	seen := map[graph.Addr]bool{}
	var visit func(deps []graph.Addr)
	visit = func(deps []graph.Addr) {
		for _, d := range deps {
			if seen[d] {
				continue
			}

			seen[d] = true
			if i, ok := x.apply[d]; ok {
				out = append(out, i)
			} else if n := desired.Node(d); n != nil {
				visit(n.Deps)
			}
		}
	}

	visit(s.desired.Deps)
	if i, ok := x.destroy[s.Addr]; ok && s.lifecycle().Replacement != graph.CreateFirst {
		out = append(out, i)
	}

	return out
}

// destroyDependencies returns the operations that the deletion of s's resource waits for: those after which
// none of its users refers to it.
func (x operationIndex) destroyDependencies(s Step, users []graph.Addr) []int {
	var out []int
	add := func(i int) {
		if !slices.Contains(out, i) {
			out = append(out, i)
		}
	}

	for _, u := range users {
		if i, ok := x.destroy[u]; ok {
			add(i)
		} else if i, ok := x.apply[u]; ok {
			add(i)
		}
	}

	if s.Action == Replace && s.lifecycle().Replacement == graph.CreateFirst {
		add(x.apply[s.Addr])
	}

	return out
}

// usersByAddr returns the users of each existing resource: those that refer to it, that it lists in UsedBy,
// or, if they are deleted, whose kind implicitly depends on its kind. A resource that is deleted with its parent
// has the parent as its user: it exists until the parent is deleted, and so do its references to resources that
// it blocks.
func (p Plan) usersByAddr(parents map[graph.Addr]graph.Addr) map[graph.Addr][]graph.Addr {
	index := newAddressIndex(p.actual)
	removed := p.removedAddrs()
	out := map[graph.Addr][]graph.Addr{}

	for _, a := range p.actual {
		for _, id := range a.UsedBy {
			if u, ok := index.byIDOnly[id]; ok && u != a.Addr {
				out[a.Addr] = append(out[a.Addr], u)
			}
		}

		for _, d := range index.addrsInUse(a, parents) {
			out[d] = append(out[d], a.Addr)
		}

		parent, isChild := parents[a.Addr]
		if isChild {
			out[a.Addr] = append(out[a.Addr], parent)
		}

		if isChild || !removed[a.Addr] {
			continue
		}

		for _, k := range a.Resource.Kind().ImplicitDependencies {
			for _, d := range index.byKind[k] {
				if !slices.Contains(out[a.Addr], d) { // it has to be deleted before a
					out[d] = append(out[d], a.Addr)
				}
			}
		}
	}

	return out
}

// addrsInUse returns the addresses of the resources that a refers to. A child uses only those that it blocks.
func (x addressIndex) addrsInUse(a ActualResource, parents map[graph.Addr]graph.Addr) []graph.Addr {
	var out []graph.Addr
	parent, isChild := parents[a.Addr]

	for _, ptr := range graph.References(a.Resource) {
		d, ok := x.byID[resourceID{ptr.KindName(), ptr.Literal()}]
		if ok && d != a.Addr && (!isChild || blocksDeletion(a.Resource, ptr, d, parent)) {
			out = append(out, d)
		}
	}

	return out
}

// removedAddrs returns the addresses whose existing resources are deleted or replaced.
func (p Plan) removedAddrs() map[graph.Addr]bool {
	out := map[graph.Addr]bool{}
	for _, s := range p.Steps {
		out[s.Addr] = s.Action == Delete || s.Action == Replace
	}

	return out
}

// resourceID is a resource's kind and identity in AWS.
type resourceID struct{ kind, id string }

// addressIndex finds the addresses of existing resources.
type addressIndex struct {
	byID     map[resourceID]graph.Addr
	byKind   map[string][]graph.Addr
	byIDOnly map[string]graph.Addr // by the id, whatever the kind
}

func newAddressIndex(actual []ActualResource) addressIndex {
	x := addressIndex{
		byID:     map[resourceID]graph.Addr{},
		byKind:   map[string][]graph.Addr{},
		byIDOnly: map[string]graph.Addr{},
	}
	for _, a := range actual {
		k := a.Resource.Kind().Name
		x.byID[resourceID{k, a.ID}] = a.Addr
		x.byIDOnly[a.ID] = a.Addr
		x.byKind[k] = append(x.byKind[k], a.Addr)
	}

	return x
}

// sortDeletions sorts the deletions, which are the last steps: each before the resources that it uses.
func sortDeletions(p *Plan) {
	first := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Action == Delete })
	if first < 0 {
		return
	}

	deletions := slices.Clone(p.Steps[first:])
	slices.SortFunc(deletions, func(a, b Step) int { return strings.Compare(string(a.Addr), string(b.Addr)) })
	byAddr := map[graph.Addr]Step{}
	for _, s := range deletions {
		byAddr[s.Addr] = s
	}

	users := p.usersByAddr(nil)
	done := map[graph.Addr]bool{}
	out := p.Steps[:first:first]
	var visit func(Step)
	visit = func(s Step) {
		if done[s.Addr] {
			return
		}

		done[s.Addr] = true
		for _, u := range users[s.Addr] {
			if other, ok := byAddr[u]; ok {
				visit(other)
			}
		}

		out = append(out, s)
	}

	for _, s := range deletions {
		visit(s)
	}

	p.Steps = out
}

// findCycles reports replacements that wait for themselves: a resource in use that must be deleted before its
// successor can be created.
func (p Plan) findCycles() diag.Findings {
	const visiting, visited = 1, 2
	state := make([]int, len(p.operations))
	var fs diag.Findings
	var visit func(i int, path []int)
	visit = func(i int, path []int) {
		if state[i] == visited {
			return
		}

		if state[i] == visiting {
			var names []string
			for _, j := range path[slices.Index(path, i):] {
				if a := string(p.Steps[p.operations[j].step].Addr); !slices.Contains(names, a) {
					names = append(names, a)
				}
			}

			fs.Errorf(
				names[0],
				"",
				"make the change in two applies: first move its users to another resource",
				"cannot be replaced while in use by %s",
				strings.Join(names[1:], ", "),
			)

			return
		}

		state[i] = visiting
		for _, w := range p.dependencies[i] {
			visit(w, append(path, i))
		}

		state[i] = visited
	}

	for i := range p.operations {
		visit(i, nil)
	}

	return fs
}
