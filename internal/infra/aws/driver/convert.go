// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// refIDs returns the ids of resolved references.
func refIDs[T graph.Resource](refs []graph.Ref[T]) []string {
	var out []string
	for _, r := range refs {
		out = append(out, r.Literal())
	}

	return out
}

// sameRefs reports whether a and b have the same ids, in any order.
func sameRefs[T graph.Resource](a, b []graph.Ref[T]) bool {
	return slices.Equal(slices.Sorted(slices.Values(refIDs(a))), slices.Sorted(slices.Values(refIDs(b))))
}

// changedKeys returns the sorted keys of want whose value differs in have.
func changedKeys(want, have map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if have[k] != want[k] {
			out = append(out, k)
		}
	}

	return out
}

// stringOrNil returns nil for an empty string.
func stringOrNil(s string) *string {
	if s == "" {
		return nil
	}

	return &s
}

// int32OrNil returns nil for 0, so that AWS chooses its default.
func int32OrNil(n int) *int32 {
	if n == 0 {
		return nil
	}

	return aws.Int32(int32(n))
}

// diffLists returns the elements to add to have and those to remove from it, so that it becomes
// want.
func diffLists(want, have []string) (add, remove []string) {
	for _, w := range want {
		if !slices.Contains(have, w) {
			add = append(add, w)
		}
	}

	for _, h := range have {
		if !slices.Contains(want, h) {
			remove = append(remove, h)
		}
	}

	return add, remove
}

// refsTo returns references to existing resources by their ids.
func refsTo[T graph.Resource](ids []string) []graph.Ref[T] {
	var out []graph.Ref[T]
	for _, id := range ids {
		out = append(out, graph.UnmanagedRef[T](id))
	}

	return out
}
