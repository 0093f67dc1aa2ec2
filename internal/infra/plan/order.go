// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// operation is one thing that Apply does: a step, or one half of a replacement.
type operation struct {
	step    int
	destroy bool // else create or update
}

// arrange finds what each operation waits for, and puts the deletions into an order that works.
func arrange(p *Plan, desired *graph.Graph) diag.Findings {
	sortDeletions(p)
	make_, end := map[graph.Addr]int{}, map[graph.Addr]int{}
	p.ops = nil
	for i, s := range p.Steps {
		if s.Action != Delete {
			make_[s.Addr] = len(p.ops)
			p.ops = append(p.ops, operation{step: i})
		}
		if s.Action == Delete || s.Action == Replace {
			end[s.Addr] = len(p.ops)
			p.ops = append(p.ops, operation{step: i, destroy: true})
		}
	}
	users := p.users()
	p.order = make([][]int, len(p.ops))
	for i, op := range p.ops {
		if op.destroy {
			p.order[i] = p.destroyWaits(op, users, make_, end)
		} else {
			p.order[i] = p.makeWaits(op, desired, make_, end)
		}
	}
	return p.cycles()
}

// makeWaits says what a creation or an update waits for: what it needs, also through what needs nothing done itself.
// That is there, but may have lost what it needs in turn.
func (p Plan) makeWaits(op operation, desired *graph.Graph, make_, end map[graph.Addr]int) []int {
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
	need(s.node.Deps)
	if i, ok := end[s.Addr]; ok && policyOf(s.Kind).replace != createFirst {
		out = append(out, i)
	}
	return out
}

// destroyWaits says what the end of something waits for: that nobody uses it any more.
func (p Plan) destroyWaits(op operation, users map[graph.Addr][]graph.Addr, make_, end map[graph.Addr]int) []int {
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
	if s.Action == Replace && policyOf(s.Kind).replace == createFirst {
		add(at(make_, s.Addr))
	}
	return out
}

// users says, of what exists, what uses what: by reference, or because its kind needs the other's.
func (p Plan) users() map[graph.Addr][]graph.Addr {
	look := newDirectory(p.actual)
	ends := p.ends()
	out := map[graph.Addr][]graph.Addr{}
	for _, a := range p.actual {
		for _, id := range a.UsedBy {
			if u, ok := look.anyKind[id]; ok && u != a.Addr {
				out[a.Addr] = append(out[a.Addr], u)
			}
		}
		for _, ptr := range graph.Pointers(a.Resource) {
			if d, ok := look.byID[identity{ptr.TargetKind(), ptr.Literal()}]; ok && d != a.Addr {
				out[d] = append(out[d], a.Addr)
			}
		}
		if !ends[a.Addr] {
			continue
		}
		for _, k := range a.Resource.Kind().Needs {
			for _, d := range look.byKind[k] {
				out[d] = append(out[d], a.Addr)
			}
		}
	}
	return out
}

// ends are the addresses whose things go, to be made again or not.
func (p Plan) ends() map[graph.Addr]bool {
	out := map[graph.Addr]bool{}
	for _, s := range p.Steps {
		out[s.Addr] = s.Action == Delete || s.Action == Replace
	}
	return out
}

// identity is what AWS knows a thing by.
type identity struct{ kind, id string }

// directory finds the addresses of what exists.
type directory struct {
	byID    map[identity]graph.Addr
	byKind  map[string][]graph.Addr
	anyKind map[string]graph.Addr // by the id alone
}

func newDirectory(actual []Actual) directory {
	d := directory{map[identity]graph.Addr{}, map[string][]graph.Addr{}, map[string]graph.Addr{}}
	for _, a := range actual {
		k := a.Resource.Kind().Name
		d.byID[identity{k, a.ID}] = a.Addr
		d.anyKind[a.ID] = a.Addr
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
	users := p.users()
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

// cycles finds replacements that wait for themselves: something in use that must go before its successor can come.
func (p Plan) cycles() diag.Findings {
	const visiting, visited = 1, 2
	state := make([]int, len(p.ops))
	var fs diag.Findings
	var visit func(i int, path []int)
	visit = func(i int, path []int) {
		if state[i] == visited {
			return
		}
		if state[i] == visiting {
			var names []string
			for _, j := range path[slices.Index(path, i):] {
				if a := string(p.Steps[p.ops[j].step].Addr); !slices.Contains(names, a) {
					names = append(names, a)
				}
			}
			fs.Errorf(names[0], "", "make the change in two applies: first move its users away", "cannot be replaced while in use by %s", strings.Join(names[1:], ", "))
			return
		}
		state[i] = visiting
		for _, w := range p.order[i] {
			visit(w, append(path, i))
		}
		state[i] = visited
	}
	for i := range p.ops {
		visit(i, nil)
	}
	return fs
}
