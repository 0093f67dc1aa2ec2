// SPDX-License-Identifier: Apache-2.0

package etcd

import "cmp"

// Position is a place in the history of a cluster's etcd, by which its backups are compared.
type Position struct {
	// Generation of the data; 0 of an earlier version, which is 1.
	Generation int
	// Term of the leader that wrote the last entry; 0 if it is not known.
	Term uint64
	// Revision of the newest change.
	Revision int64
}

// Compare returns -1, 0 or 1. A leader has everything that was stored in earlier terms, so a later term is newer whatever the
// revisions are: those of a member that was cut off count writes that were never stored. An unknown term is the oldest:
// see [NewestPosition].
func (p Position) Compare(other Position) int {
	return cmp.Or(
		cmp.Compare(max(p.Generation, 1), max(other.Generation, 1)),
		cmp.Compare(p.Term, other.Term),
		cmp.Compare(p.Revision, other.Revision),
	)
}

// NewestPosition returns the index of the newest position, or -1 if there is none. It does not depend on their order, except among
// equal ones, of which it is the last.
//
// An unknown term is replaced by the greatest one of the positions with the same generation and no greater revision, which it
// cannot be below: only what was stored is in a backup whose term is not known, and a leader has everything that was stored in
// earlier terms. If the other backup is of a later term than that, it has at least the same revisions.
func NewestPosition(positions []Position) int {
	newest := -1
	var at Position
	for i, p := range positions {
		p.Term = leastTerm(p, positions)
		if newest < 0 || p.Compare(at) >= 0 {
			newest = i
			at = p
		}
	}

	return newest
}

// leastTerm returns the term of a position, or the least one that it can have if it is not known.
func leastTerm(p Position, all []Position) uint64 {
	if p.Term > 0 {
		return p.Term
	}

	least := uint64(0)
	for _, other := range all {
		if max(other.Generation, 1) == max(p.Generation, 1) && other.Revision <= p.Revision {
			least = max(least, other.Term)
		}
	}

	return least
}
