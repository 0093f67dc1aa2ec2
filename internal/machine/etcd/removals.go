// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"io/fs"
	"maps"
	"slices"
)

// Removals is what a member's write-ahead log says about members that were removed.
type Removals struct {
	// Member is the id of the log's own member; 0 if it is not known.
	Member uint64
	// Removed are the ids of members whose removal is known to be stored by a majority. Such a member has no vote, and its id is
	// never used again.
	Removed []uint64
	// End is the last entry of the files that were read; zero if they have none.
	End LogEnd
}

// removalFiles is so many files of a log are read: a removal matters until it is recorded in the machine store, seconds later.
// A file has up to 64 MiB.
const removalFiles = 2

// ReadRemovals reads the last files of a member's write-ahead log, which may be in use. dir is the directory member/wal. A
// removal that is not known to be stored by a majority does not count, and neither does what comes before damage.
func ReadRemovals(dir fs.FS) (Removals, error) {
	names, err := listLog(dir)
	if err != nil {
		return Removals{}, err
	}

	var end LogEnd
	seen := removalLog{pending: map[uint64]uint64{}}
	for _, name := range names[max(0, len(names)-removalFiles):] {
		if seen.damaged {
			seen = removalLog{pending: map[uint64]uint64{}}
		}

		scan, err := scanLog(dir, name, seen.note)
		if err != nil {
			return Removals{}, err
		}

		seen.damaged = scan.damaged
		if scan.end.Index > 0 {
			end = scan.end
		}
	}

	out := seen.removals()
	out.End = end

	return out, nil
}

// removalLog is what a log says about removals.
type removalLog struct {
	member uint64
	// pending are the ids of the removed members by the index of the entry.
	pending map[uint64]uint64
	// committed is up to which index the entries are stored by a majority.
	committed uint64
	// damaged is set if records are missing: an entry may have been replaced by one of them.
	damaged bool
}

// note takes note of a record.
func (l *removalLog) note(kind uint64, data []byte) {
	switch kind {
	case walMember:
		l.member, _ = protoField(data, 1)
	case walState:
		l.committed, _ = protoField(data, 3)
	case walEntry:
		l.noteEntry(data)
	}
}

// noteEntry takes note of an entry, which replaces those from its index on.
func (l *removalLog) noteEntry(data []byte) {
	index, _ := protoField(data, 3)
	maps.DeleteFunc(l.pending, func(i, _ uint64) bool { return i >= index })

	if kind, _ := protoField(data, 1); kind != entryChange {
		return
	}

	_, change := protoField(data, 4)
	if what, _ := protoField(change, 2); what == changeRemove {
		l.pending[index], _ = protoField(change, 3)
	}
}

// removals returns those that are stored by a majority.
func (l *removalLog) removals() Removals {
	out := Removals{Member: l.member}
	for _, index := range slices.Sorted(maps.Keys(l.pending)) {
		if index <= l.committed {
			out.Removed = append(out.Removed, l.pending[index])
		}
	}

	return out
}
