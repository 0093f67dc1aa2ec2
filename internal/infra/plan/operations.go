// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// planOperation is one thing that Apply does: a step, or one half of a replacement.
type planOperation struct {
	step      int
	isDestroy bool // else create or update
}

// orderOperations finds what each operation waits for, and puts the deletions into an order that works.
func orderOperations(p *Plan, desired *graph.Graph) diag.Findings {
	sortDeletions(p)
	make_ := map[graph.Addr]int{}
	end := map[graph.Addr]int{}
	p.operations = nil

	for i, s := range p.Steps {
		if s.Action != Delete {
			make_[s.Addr] = len(p.operations)
			p.operations = append(p.operations, planOperation{step: i})
		}

		if s.Action == Delete || s.Action == Replace {
			end[s.Addr] = len(p.operations)
			p.operations = append(p.operations, planOperation{step: i, isDestroy: true})
		}
	}

	users := p.usersByAddr()
	p.dependencies = make([][]int, len(p.operations))

	for i, op := range p.operations {
		if op.isDestroy {
			p.dependencies[i] = p.destroyDependencies(op, users, make_, end)
		} else {
			p.dependencies[i] = p.createDependencies(op, desired, make_, end)
		}
	}

	return p.findCycles()
}

// createDependencies says what a creation or an update waits for: what it needs, also through what needs nothing done itself.
// That is there, but may have lost what it needs in turn.
func (p Plan) createDependencies(
	op planOperation,
	desired *graph.Graph,
	make_, end map[graph.Addr]int,
) []int {
	s := p.Steps[op.step]
	var out []int
	seen := map[graph.Addr]bool{}
	var need func(deps []graph.Addr)
	need = func(deps []graph.Addr) {
		for _, d := range deps {
			if seen[d] {
				continue
			}

			seen[d] = true
			if i, ok := make_[d]; ok {
				out = append(out, i)
			} else if n := desired.Node(d); n != nil {
				need(n.Deps)
			}
		}
	}

	need(s.desired.Deps)
	if i, ok := end[s.Addr]; ok && policyOf(s.Kind).replacement != createFirst {
		out = append(out, i)
	}

	return out
}

// destroyDependencies says what the end of something waits for: that nobody uses it any more.
func (p Plan) destroyDependencies(
	op planOperation,
	users map[graph.Addr][]graph.Addr,
	make_, end map[graph.Addr]int,
) []int {
	s := p.Steps[op.step]
	var out []int
	add := func(i int, ok bool) {
		if ok && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}

	at := func(m map[graph.Addr]int, a graph.Addr) (int, bool) { i, ok := m[a]; return i, ok }

	for _, u := range users[s.Addr] {
		if i, ok := end[u]; ok {
			add(i, true)
		} else {
			add(at(make_, u))
		}
	}

	if s.Action == Replace && policyOf(s.Kind).replacement == createFirst {
		add(at(make_, s.Addr))
	}

	return out
}

// usersByAddr says, of what exists, what uses what: by reference, or because its kind needs the other's.
func (p Plan) usersByAddr() map[graph.Addr][]graph.Addr {
	look := newAddressIndex(p.actual)
	ends := p.removedAddrs()
	out := map[graph.Addr][]graph.Addr{}

	for _, a := range p.actual {
		for _, id := range a.UsedBy {
			if u, ok := look.byIDOnly[id]; ok && u != a.Addr {
				out[a.Addr] = append(out[a.Addr], u)
			}
		}

		for _, ptr := range graph.References(a.Resource) {
			if d, ok := look.byID[resourceID{ptr.KindName(), ptr.Literal()}]; ok && d != a.Addr {
				out[d] = append(out[d], a.Addr)
			}
		}

		if !ends[a.Addr] {
			continue
		}

		for _, k := range a.Resource.Kind().ImplicitDependencies {
			for _, d := range look.byKind[k] {
				out[d] = append(out[d], a.Addr)
			}
		}
	}

	return out
}

// removedAddrs are the addresses whose things go, to be made again or not.
func (p Plan) removedAddrs() map[graph.Addr]bool {
	out := map[graph.Addr]bool{}
	for _, s := range p.Steps {
		out[s.Addr] = s.Action == Delete || s.Action == Replace
	}

	return out
}

// resourceID is what AWS knows a thing by.
type resourceID struct{ kind, id string }

// addressIndex finds the addresses of what exists.
type addressIndex struct {
	byID     map[resourceID]graph.Addr
	byKind   map[string][]graph.Addr
	byIDOnly map[string]graph.Addr // by the id alone
}

func newAddressIndex(actual []ActualResource) addressIndex {
	d := addressIndex{map[resourceID]graph.Addr{}, map[string][]graph.Addr{}, map[string]graph.Addr{}}
	for _, a := range actual {
		k := a.Resource.Kind().Name
		d.byID[resourceID{k, a.ID}] = a.Addr
		d.byIDOnly[a.ID] = a.Addr
		d.byKind[k] = append(d.byKind[k], a.Addr)
	}

	return d
}

// sortDeletions puts deletions last, each before what it uses.
func sortDeletions(p *Plan) {
	first := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Action == Delete })
	if first < 0 {
		return
	}

	gone := slices.Clone(p.Steps[first:])
	slices.SortFunc(gone, func(a, b Step) int { return strings.Compare(string(a.Addr), string(b.Addr)) })
	at := map[graph.Addr]Step{}
	for _, s := range gone {
		at[s.Addr] = s
	}

	users := p.usersByAddr()
	done := map[graph.Addr]bool{}
	out := p.Steps[:first:first]
	var visit func(Step)
	visit = func(s Step) {
		if done[s.Addr] {
			return
		}

		done[s.Addr] = true
		for _, u := range users[s.Addr] {
			if other, ok := at[u]; ok {
				visit(other)
			}
		}

		out = append(out, s)
	}

	for _, s := range gone {
		visit(s)
	}

	p.Steps = out
}

// findCycles finds replacements that wait for themselves: something in use that must go before its successor can come.
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
				"make the change in two applies: first move its users away",
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
