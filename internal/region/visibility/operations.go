// SPDX-License-Identifier: Apache-2.0

package visibility

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Rules are how the operations of one service treat resources that calls do not see yet.
type Rules struct {
	// Named returns the ids of the resources that a request needs to see, as [Tracker.Track] got them. A request that
	// creates a resource does not need to see another one of the same name to be refused.
	Named func(operation string, in any) []string
	// NotFound returns the service's error about a resource of an id that does not exist.
	NotFound func(operation, id string) error
	// Listed returns the id of an entry of a list in an answer, by the name of the member with the list. Answers do not
	// contain the entries that are hidden.
	Listed map[string]func(entry any) string
}

// Wrap returns operations that refuse requests for resources that are not visible yet, and do not list them.
func (t *Tracker) Wrap(rules Rules, operations []wire.Operation) []wire.Operation {
	out := make([]wire.Operation, 0, len(operations))
	for _, op := range operations {
		handle := op.Handle
		op.Handle = func(ctx context.Context, in any) (any, error) {
			if t.HidesNothing() {
				return handle(ctx, in)
			}

			for _, id := range rules.Named(op.Name, in) {
				if t.Hides(id) {
					return nil, rules.NotFound(op.Name, id)
				}
			}

			answer, err := handle(ctx, in)
			if err == nil && isList(op.Name) {
				t.removeHidden(rules, answer)
			}

			return answer, err
		}
		out = append(out, op)
	}

	return out
}

// isList reports whether an operation lists what exists. The answer of one that creates something contains it.
func isList(operation string) bool {
	return strings.HasPrefix(operation, "Describe") || strings.HasPrefix(operation, "List")
}

// removeHidden removes the entries of an answer's lists that are not visible yet.
func (t *Tracker) removeHidden(rules Rules, answer any) {
	for name, idOf := range rules.Listed {
		wire.FilterList(answer, name, func(entry any) bool { return !t.Hides(idOf(entry)) })
	}
}

// IDsByMember returns a function for [Rules.Listed]: the id of an entry is one of its members, after a prefix.
func IDsByMember(prefix, member string) func(entry any) string {
	return func(entry any) string { return prefix + wire.StringMember(entry, member) }
}
