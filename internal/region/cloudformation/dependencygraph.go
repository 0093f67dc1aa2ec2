// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"slices"
)

// errCancelled is the cause of a cancelled operation: another resource failed, or the user cancelled.
var errCancelled = errors.New("Resource creation cancelled")

// nodeResult is the result of one node of a walk.
type nodeResult struct {
	name string
	err  error
}

// dependencyGraph is a set of nodes and their dependencies.
type dependencyGraph struct {
	dependencies map[string][]string
	// stopOnFailure cancels the walk at the first failure. Without it, only the nodes that depend on a failed
	// node are skipped.
	stopOnFailure bool
}

// walk calls do for each node as soon as its dependencies are done, with as many nodes at once as possible.
// It returns the failures by node, without the nodes that were only cancelled.
func (o dependencyGraph) walk(
	ctx context.Context,
	do func(ctx context.Context, name string) error,
) map[string]error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make(chan nodeResult)
	begun := map[string]bool{}
	done := map[string]bool{}
	failures := map[string]error{}
	active := 0

	for {
		if ctx.Err() == nil && (!o.stopOnFailure || len(failures) == 0) {
			for _, name := range o.readyNodes(begun, done) {
				begun[name] = true
				active++
				go func() { results <- nodeResult{name, do(inner, name)} }()
			}
		}

		if active == 0 {
			return failures
		}

		r := <-results
		active--

		switch {
		case r.err == nil:
			done[r.name] = true
		case errors.Is(r.err, errCancelled) && len(failures) > 0:
		default:
			failures[r.name] = r.err
			if o.stopOnFailure {
				cancel(errCancelled)
			}
		}
	}
}

// readyNodes are the nodes that wait for nothing any more and have not begun.
func (o dependencyGraph) readyNodes(begun, done map[string]bool) []string {
	var out []string
	for name, after := range o.dependencies {
		waits := func(d string) bool { _, known := o.dependencies[d]; return known && !done[d] }
		if !begun[name] && !slices.ContainsFunc(after, waits) {
			out = append(out, name)
		}
	}

	return out
}

// reverseEdges returns the graph for a deletion: a resource waits for those that depend on it.
func reverseEdges(after map[string][]string) map[string][]string {
	out := map[string][]string{}
	for name := range after {
		out[name] = nil
	}

	for name, list := range after {
		for _, d := range list {
			if _, known := after[d]; known {
				out[d] = append(out[d], name)
			}
		}
	}

	return out
}
