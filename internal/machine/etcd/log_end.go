// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
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

// ReadLogEnd reads the last entry of a member's write-ahead log, which may be in use. dir is the directory member/wal. What
// follows a record that was not written completely does not count: the member has not confirmed it.
func ReadLogEnd(dir fs.FS) (LogEnd, error) {
	names, err := listLog(dir)
	if err != nil {
		return LogEnd{}, err
	}

	for _, name := range slices.Backward(names) {
		scan, err := scanLog(dir, name, func(uint64, []byte) {})
		if err != nil {
			return LogEnd{}, err
		}

		if scan.end.Index > 0 {
			return scan.end, nil
		}
	}

	return LogEnd{}, errors.New("read etcd's log: no file of " + strings.Join(names, ", ") + " has an entry")
}

// listLog returns the files of a log, the newest last.
func listLog(dir fs.FS) ([]string, error) {
	names, err := fs.Glob(dir, "*.wal")
	if err != nil {
		return nil, fmt.Errorf("list etcd's log: %w", err)
	}

	slices.Sort(names) // they begin with a number

	return names, nil
}

// CommitMark is a record that makes all entries of a log count as stored by a majority.
type CommitMark struct {
	// File of the log that the record belongs to, and Offset its place there. What follows is to be cut off.
	File   string
	Offset int64
	// Record with its frame.
	Record []byte
}

// NewCommitMark returns the record for a log that is not in use. etcd --force-new-cluster drops the entries of which the member
// did not learn that a majority has stored them: it learns that with the next message of the leader, and writes it to the disk with
// the next entry. A client may have been told so before.
func NewCommitMark(dir fs.FS) (CommitMark, error) {
	end, err := ReadLogEnd(dir)
	if err != nil {
		return CommitMark{}, err
	}

	names, err := listLog(dir)
	if err != nil {
		return CommitMark{}, err
	}

	last := names[len(names)-1]
	scan, err := scanLog(dir, last, func(uint64, []byte) {})
	if err != nil {
		return CommitMark{}, err
	}

	state := appendVarintField(nil, 1, max(scan.term, end.Term))
	state = appendVarintField(state, 2, scan.vote)
	state = appendVarintField(state, 3, end.Index)

	return CommitMark{File: last, Offset: int64(scan.size), Record: frameRecord(walState, scan.sum, state)}, nil
}

// Types of the records in a file of etcd's write-ahead log.
const (
	walMember   = 1
	walEntry    = 2
	walState    = 3
	walChecksum = 4
	walSnapshot = 5
)

// logScan is what the complete records of a file say.
type logScan struct {
	// end is the last entry, or the snapshot in its place; zero if there is none. A later entry with a lower index replaces
	// those from there on.
	end LogEnd
	// term and vote of the last state.
	term, vote uint64
	// sum is the checksum after the last record, which each record continues.
	sum uint32
	// size of the records, in bytes.
	size int
	// damaged is set if something other than zeros follows the records: it cannot be read.
	damaged bool
}

// scanLog reads the records of a file up to the first that is not complete, and calls visit with the type and the data of each.
func scanLog(dir fs.FS, name string, visit func(kind uint64, data []byte)) (logScan, error) {
	r, err := openLog(dir, name)
	if err != nil {
		return logScan{}, fmt.Errorf("open etcd's log %s: %w", name, err)
	}

	defer r.close()
	var out logScan
	for {
		record, err := r.next()
		if errors.Is(err, io.EOF) {
			out.damaged, err = r.hasMore()
		}

		if err != nil {
			return out, fmt.Errorf("read etcd's log %s: %w", name, err)
		}

		if record == nil {
			return out, nil
		}

		kind, _ := protoField(record, 1)
		sum, _ := protoField(record, 2)
		_, data := protoField(record, 3)
		if kind != walChecksum { // which begins a file
			out.sum = crc32.Update(out.sum, crc32.MakeTable(crc32.Castagnoli), data)
			if uint32(sum) != out.sum {
				out.damaged = true

				return out, nil
			}
		}

		out.sum = uint32(sum)
		out.size = r.size
		out.note(kind, data)
		visit(kind, data)
	}
}

// note takes note of a record.
func (s *logScan) note(kind uint64, data []byte) {
	switch kind {
	case walEntry:
		term, _ := protoField(data, 2)
		if index, _ := protoField(data, 3); index > 0 { // the first entry has 1
			s.end = LogEnd{Term: term, Index: index}
		}

	case walState:
		s.term, _ = protoField(data, 1)
		s.vote, _ = protoField(data, 2)

	case walSnapshot:
		index, _ := protoField(data, 1)
		term, _ := protoField(data, 2)
		if at := (LogEnd{Term: term, Index: index}); at.Compare(s.end) > 0 {
			s.end = at
		}
	}
}

// frameRecord returns a record that follows one with a checksum, with its frame.
func frameRecord(kind uint64, sum uint32, data []byte) []byte {
	record := appendVarintField(nil, 1, kind)
	record = appendVarintField(record, 2, uint64(crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), data)))
	record = binary.AppendUvarint(record, 3<<3|2)
	record = binary.AppendUvarint(record, uint64(len(data)))
	record = append(record, data...)
	padding := (frameLength - len(record)%frameLength) % frameLength
	length := uint64(len(record))
	if padding > 0 {
		length |= uint64(0x80|padding) << 56
	}

	out := binary.LittleEndian.AppendUint64(nil, length)
	out = append(out, record...)

	return append(out, make([]byte, padding)...)
}

// appendVarintField appends a number to a protobuf message.
func appendVarintField(message []byte, number, value uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(message, number<<3), value)
}

// protoField returns the value of the last field with this number in a protobuf message: the number, or the bytes. A message
// that is not valid ends where it is not.
func protoField(message []byte, number uint64) (value uint64, data []byte) {
	for field := range protoFields(message) {
		if field.number == number {
			value = field.value
			data = field.data
		}
	}

	return value, data
}

// protoValue is a field of a protobuf message: a number, or bytes.
type protoValue struct {
	number, value uint64
	data          []byte
}

// protoFields returns the fields of a message, up to where it is not valid.
func protoFields(message []byte) iter.Seq[protoValue] {
	return func(yield func(protoValue) bool) {
		for len(message) > 0 {
			key, n := binary.Uvarint(message)
			if n <= 0 {
				return
			}

			message = message[n:]
			got, n := binary.Uvarint(message)
			if n <= 0 || key&7 != 0 && key&7 != 2 {
				return // etcd's log has numbers and bytes only
			}

			message = message[n:]
			field := protoValue{number: key >> 3, value: got}
			if key&7 == 2 {
				if got > uint64(len(message)) {
					return
				}

				field.value = 0
				field.data = message[:got]
				message = message[got:]
			}

			if !yield(field) {
				return
			}
		}
	}
}
