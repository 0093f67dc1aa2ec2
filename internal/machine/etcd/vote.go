// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/binary"
	"io/fs"
	"slices"
	"strings"
)

// LearnerFile is in the data directory from before a member without data starts until it was seen to be a voter. It is set aside
// with the data. etcd ignores it. A file that is there still after the promotion does no harm: see [HasNoVote].
const LearnerFile = "slipway-learner"

// HasNoVote reports whether a member's write-ahead log proves that it has never been promoted. dir is the directory member/wal. A
// log that is damaged or that lacks its beginning proves nothing.
//
// A member without a vote has confirmed no write that a client was told is stored: the leader counts the voters. A member that was
// promoted, and does not have the promotion in its log yet, has not either: entries come in their order.
func HasNoVote(dir fs.FS) bool {
	names, err := listLog(dir)
	if err != nil || len(names) == 0 || !strings.HasPrefix(names[0], firstLogFile) {
		return false
	}

	var seen memberLog
	for _, name := range names {
		scan, err := scanLog(dir, name, seen.note)
		if err != nil || scan.damaged {
			return false
		}
	}

	return seen.id != 0 && !seen.mayVote
}

// firstLogFile is how the name of the first file of a log begins. Files are deleted when they are not needed any more.
const firstLogFile = "0000000000000000-"

// Types of the entries and of the changes of the membership in etcd's log.
const (
	entryChange    = 1
	entryChanges   = 2 // several at once; etcd does not write them
	changeAddVoter = 0
	changeRemove   = 1
)

// memberLog is what a log says about the vote of its own member.
type memberLog struct {
	// id of the member; 0 until it is known.
	id uint64
	// mayVote is set once a record makes the member a voter, or may do so.
	mayVote bool
}

// note takes note of a record.
func (m *memberLog) note(kind uint64, data []byte) {
	switch kind {
	case walMember:
		m.id, _ = protoField(data, 1)
	case walSnapshot:
		m.noteSnapshot(data)
	case walEntry:
		m.noteEntry(data)
	}
}

// noteSnapshot takes note of the members at the time of a snapshot. The first record of a log is one of nothing.
func (m *memberLog) noteSnapshot(data []byte) {
	index, _ := protoField(data, 1)
	_, members := protoField(data, 3)
	if index > 0 && (len(members) == 0 || slices.Contains(repeatedField(members, 1), m.id)) {
		m.mayVote = true
	}
}

// noteEntry takes note of a change of the membership.
func (m *memberLog) noteEntry(data []byte) {
	kind, _ := protoField(data, 1)
	_, change := protoField(data, 4)
	what, _ := protoField(change, 2)
	id, _ := protoField(change, 3)
	if kind == entryChanges || kind == entryChange && what == changeAddVoter && id == m.id {
		m.mayVote = true
	}
}

// repeatedField returns the numbers of a field that occurs several times, each by itself or all in one.
func repeatedField(message []byte, number uint64) []uint64 {
	var out []uint64
	for field := range protoFields(message) {
		if field.number != number {
			continue
		}

		if field.data == nil {
			out = append(out, field.value)
		}

		for packed := field.data; len(packed) > 0; {
			value, n := binary.Uvarint(packed)
			if n <= 0 {
				break
			}

			out = append(out, value)
			packed = packed[n:]
		}
	}

	return out
}
