// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// setParents sets the parents of the deletions that AWS includes in the deletion of another resource of the
// plan. A child keeps the resources that it blocks in use until its parent is deleted. Where that would be a
// cycle, as with two security groups that refer to each other, some children get no parent: they are deleted
// before.
func setParents(p *Plan) {
	parents := p.possibleParents()
	for {
		cycle := findUseCycle(p.usersByAddr(parents))
		batch := p.largestBatch(cycle, parents)
		if len(batch) == 0 {
			break
		}

		for _, child := range batch {
			delete(parents, child)
		}
	}

	for i, s := range p.Steps {
		p.Steps[i].parent = parents[s.Addr]
	}
}

// parentsByAddr returns the parent of each deletion that has one.
func (p Plan) parentsByAddr() map[graph.Addr]graph.Addr {
	out := map[graph.Addr]graph.Addr{}
	for _, s := range p.Steps {
		if s.parent != "" {
			out[s.Addr] = s.parent
		}
	}

	return out
}

// possibleParents returns, for each deletion, the deleted resource that AWS deletes it with.
func (p Plan) possibleParents() map[graph.Addr]graph.Addr {
	index := newAddressIndex(p.actual)
	deleted := map[graph.Addr]bool{}
	for _, s := range p.Steps {
		deleted[s.Addr] = s.Action == Delete
	}

	out := map[graph.Addr]graph.Addr{}

	for _, s := range p.Steps {
		if s.Action != Delete || s.actual == nil {
			continue
		}

		kind := s.actual.Resource.Kind().DeletedWith.Kind
		for _, ptr := range graph.References(s.actual.Resource) {
			if kind == "" || ptr.KindName() != kind {
				continue
			}

			if d, ok := index.byID[resourceID{kind, ptr.Literal()}]; ok && deleted[d] {
				out[s.Addr] = d
			}

			break // the first reference of the kind is the parent
		}
	}

	return out
}

// blocksDeletion reports whether AWS refuses to delete d, to which ptr of the child r refers, as long as the
// child's parent exists.
func blocksDeletion(r graph.Resource, ptr graph.Reference, d, parent graph.Addr) bool {
	return d != parent && slices.Contains(r.Kind().DeletedWith.Blocks, ptr.KindName())
}

// batchOf names the children that one call can delete: those of one kind and parent.
type batchOf struct {
	parent graph.Addr
	kind   string
}

// largestBatch returns the batch with the most children in a cycle; none if the cycle has no child.
func (p Plan) largestBatch(cycle []graph.Addr, parents map[graph.Addr]graph.Addr) []graph.Addr {
	kinds := map[graph.Addr]string{}
	for _, s := range p.Steps {
		kinds[s.Addr] = s.Kind
	}

	batches := map[batchOf][]graph.Addr{}

	for _, addr := range cycle {
		if parent, ok := parents[addr]; ok {
			b := batchOf{parent, kinds[addr]}
			batches[b] = append(batches[b], addr)
		}
	}

	if len(batches) == 0 {
		return nil
	}

	largest := slices.MinFunc(slices.Collect(maps.Keys(batches)), func(a, b batchOf) int {
		return cmp.Or(
			cmp.Compare(len(batches[b]), len(batches[a])),
			cmp.Compare(a.parent, b.parent),
			cmp.Compare(a.kind, b.kind),
		)
	})

	return batches[largest]
}

// findUseCycle returns the addresses of resources that use each other, directly or not: the first such set in
// the order of addresses; none if there is no cycle. It is Tarjan's algorithm.
func findUseCycle(users map[graph.Addr][]graph.Addr) []graph.Addr {
	search := cycleSearch{users: users, index: map[graph.Addr]int{}, low: map[graph.Addr]int{}}
	for _, addr := range slices.Sorted(maps.Keys(users)) {
		if search.index[addr] == 0 {
			search.visit(addr)
		}
	}

	return search.found
}

// cycleSearch is the state of findUseCycle.
type cycleSearch struct {
	users map[graph.Addr][]graph.Addr
	index map[graph.Addr]int // the order of visits, from 1
	low   map[graph.Addr]int // the lowest index that is reachable
	stack []graph.Addr
	found []graph.Addr
}

func (c *cycleSearch) visit(addr graph.Addr) {
	c.index[addr] = len(c.index) + 1
	c.low[addr] = c.index[addr]
	c.stack = append(c.stack, addr)

	for _, u := range c.users[addr] {
		if c.index[u] == 0 {
			c.visit(u)
			c.low[addr] = min(c.low[addr], c.low[u])
		} else if slices.Contains(c.stack, u) {
			c.low[addr] = min(c.low[addr], c.index[u])
		}
	}

	if c.low[addr] != c.index[addr] {
		return
	}

	at := slices.Index(c.stack, addr)
	members := slices.Clone(c.stack[at:])
	c.stack = c.stack[:at]
	if len(members) > 1 && c.found == nil {
		c.found = members
	}
}
