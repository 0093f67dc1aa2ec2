// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// field returns a field of a protobuf message with bytes.
func field(number uint64, data []byte) []byte {
	out := binary.AppendUvarint(nil, number<<3|2)
	out = binary.AppendUvarint(out, uint64(len(data)))
	return append(out, data...)
}

// numbers returns a protobuf message: a number for each field, from the first.
func numbers(values ...uint64) []byte {
	var out []byte
	for i, value := range values {
		out = binary.AppendUvarint(out, uint64(i+1)<<3)
		out = binary.AppendUvarint(out, value)
	}
	return out
}

// ownMember says which member the log is of.
func ownMember() walRecord { return walRecord{kind: 1, fields: []uint64{5, 99}} }

// change is an entry that changes the membership: 0 adds a voter, 1 removes a member, 3 adds a learner.
func change(index, kind, id uint64) walRecord {
	return walRecord{kind: 2, data: slices.Concat(numbers(1, 2, index), field(4, numbers(7, kind, id)))}
}

// snapshotOf is a snapshot with the ids of the voters and of the learners.
func snapshotOf(index uint64, voters, learners []uint64) walRecord {
	var members []byte
	for _, id := range voters {
		members = binary.AppendUvarint(append(members, 1<<3), id)
	}
	for _, id := range learners {
		members = binary.AppendUvarint(append(members, 2<<3), id)
	}
	return walRecord{kind: 5, data: slices.Concat(numbers(index, 2), field(3, members))}
}

// TestHasNoVote: only a log that is whole and never names its member as a voter proves that it has no vote.
func TestHasNoVote(t *testing.T) {
	const first, second = "0000000000000000-0000000000000000.wal", "0000000000000001-0000000000000009.wal"
	one := func(records ...walRecord) fstest.MapFS { return fstest.MapFS{first: logFile(records...)} }
	damaged := encode(ownMember(), entry(1, 1), change(2, 3, 5), entry(2, 3))
	damaged[len(damaged)-8-1]++
	packed := slices.Concat(numbers(30, 2), field(3, field(1, []byte{3, 5})))
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  bool
	}{
		"a learner":             {one(ownMember(), snapshot(0, 0), change(2, 0, 3), change(3, 3, 5), entry(2, 4)), true},
		"nothing was copied":    {one(ownMember(), snapshot(0, 0)), true},
		"a learner's snapshot":  {one(ownMember(), snapshot(0, 0), snapshotOf(30, []uint64{3}, []uint64{5}), entry(2, 31)), true},
		"promoted":              {one(ownMember(), change(3, 3, 5), change(4, 0, 5)), false},
		"promoted, in two":      {fstest.MapFS{first: logFile(ownMember(), change(3, 3, 5)), second: logFile(ownMember(), change(9, 0, 5))}, false},
		"a learner, in two":     {fstest.MapFS{first: logFile(ownMember(), change(3, 3, 5)), second: logFile(ownMember(), entry(2, 9))}, true},
		"promoted by snapshot":  {one(ownMember(), change(3, 3, 5), snapshotOf(30, []uint64{3, 5}, nil)), false},
		"packed":                {one(ownMember(), walRecord{kind: 5, data: packed}), false},
		"an unknown snapshot":   {one(ownMember(), snapshot(30, 2)), false},
		"a founder":             {one(ownMember(), change(1, 0, 5), change(2, 0, 3)), false},
		"several changes":       {one(ownMember(), walRecord{kind: 2, data: numbers(2, 2, 9)}), false},
		"another log":           {one(change(3, 3, 5)), false},
		"the beginning is gone": {fstest.MapFS{second: logFile(ownMember(), entry(2, 9))}, false},
		"damaged":               {fstest.MapFS{first: {Data: damaged}}, false},
		"none":                  {fstest.MapFS{}, false},
	} {
		if got := etcd.HasNoVote(c.files); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
