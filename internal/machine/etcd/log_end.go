// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// LogEnd is the last entry of a member's Raft log. Of several members, the one whose LogEnd is the greatest has every write
// that any of them has and that a client was told is stored.
type LogEnd struct {
	// Term is the term of the leader that wrote the entry.
	Term uint64 `json:"term"`
	// Index of the entry.
	Index uint64 `json:"index"`
}

// Compare returns -1, 0 or 1, as Raft does when a member asks another one for its vote.
func (e LogEnd) Compare(other LogEnd) int {
	return cmp.Or(cmp.Compare(e.Term, other.Term), cmp.Compare(e.Index, other.Index))
}

// Types of the records in a file of etcd's write-ahead log.
const (
	walEntry    = 2
	walSnapshot = 5
)

// ReadLogEnd reads the last entry of a member's write-ahead log, which may be in use. dir is the directory member/wal. What
// follows a record that was not written completely does not count: no client was told that it is stored.
func ReadLogEnd(dir fs.FS) (LogEnd, error) {
	names, err := fs.Glob(dir, "*.wal")
	if err != nil {
		return LogEnd{}, fmt.Errorf("list etcd's log: %w", err)
	}

	slices.Sort(names) // they begin with a number
	for _, name := range slices.Backward(names) {
		body, err := fs.ReadFile(dir, name)
		if err != nil {
			return LogEnd{}, fmt.Errorf("read etcd's log %s: %w", name, err)
		}

		if end, found := findLogEnd(body); found {
			return end, nil
		}
	}

	return LogEnd{}, errors.New("read etcd's log: no file of " + strings.Join(names, ", ") + " has an entry")
}

// findLogEnd returns the last entry, or the snapshot in its place, of one file, and whether it has any. A later entry with a
// lower index replaces those from there on.
func findLogEnd(body []byte) (LogEnd, bool) {
	var end LogEnd
	found := false
	for {
		record, rest, ok := cutFrame(body)
		if !ok {
			return end, found
		}

		body = rest
		kind, _ := protoField(record, 1)
		_, data := protoField(record, 3)

		switch kind {
		case walEntry:
			end.Term, _ = protoField(data, 2)
			end.Index, _ = protoField(data, 3)
			found = true

		case walSnapshot:
			index, _ := protoField(data, 1)
			term, _ := protoField(data, 2)
			if at := (LogEnd{Term: term, Index: index}); index > 0 && at.Compare(end) > 0 {
				end = at
				found = true
			}
		}
	}
}

// cutFrame returns the first record of a log, and what follows it. A record has its length in the lower 56 bits of 8 bytes
// before it. If the highest bit is set, the three lowest ones of the last byte are the length of the padding after it. A file
// that is not full ends with zeros.
func cutFrame(body []byte) (record, rest []byte, ok bool) {
	if len(body) < 8 {
		return nil, nil, false
	}

	field := binary.LittleEndian.Uint64(body)
	length := field & (1<<56 - 1)
	padding := uint64(0)
	if field>>63 == 1 {
		padding = field >> 56 & 7
	}

	body = body[8:]
	if length == 0 || length+padding > uint64(len(body)) {
		return nil, nil, false
	}

	return body[:length], body[length+padding:], true
}

// protoField returns the value of the last field with this number in a protobuf message: the number, or the bytes. A message
// that is not valid ends where it is not.
func protoField(message []byte, number uint64) (value uint64, data []byte) {
	for len(message) > 0 {
		key, n := binary.Uvarint(message)
		if n <= 0 {
			break
		}

		message = message[n:]
		got, n := binary.Uvarint(message)
		if n <= 0 || key&7 != 0 && key&7 != 2 {
			break // etcd's log has numbers and bytes only
		}

		message = message[n:]
		var body []byte
		if key&7 == 2 {
			if got > uint64(len(message)) {
				break
			}

			body = message[:got]
			message = message[got:]
			got = 0
		}

		if key>>3 == number {
			value = got
			data = body
		}
	}

	return value, data
}
