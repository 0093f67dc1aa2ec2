// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// walRecord is a record of etcd's log: its data, or numbers as the fields of its data.
type walRecord struct {
	kind   uint64
	fields []uint64
	data   []byte
}

func entry(term, index uint64) walRecord { return walRecord{kind: 2, fields: []uint64{0, term, index}} }

func state(term, vote uint64) walRecord { return walRecord{kind: 3, fields: []uint64{term, vote, 1}} }

func snapshot(index, term uint64) walRecord { return walRecord{kind: 5, fields: []uint64{index, term}} }

// state8 is the state of a member that knows that the entry 8 is stored.
func state8(term, vote uint64) walRecord { return walRecord{kind: 3, fields: []uint64{term, vote, 8}} }

// encode returns records as they are in a file, the first of which seeds the checksum.
func encode(records ...walRecord) []byte {
	sum := uint32(77)
	out := frame(4, sum, nil)
	for _, r := range records {
		data := append(numbers(r.fields...), r.data...)
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), data)
		out = append(out, frame(r.kind, sum, data)...)
	}
	return out
}

func frame(kind uint64, sum uint32, data []byte) []byte {
	var record []byte
	record = append(record, 1<<3)
	record = binary.AppendUvarint(record, kind)
	record = append(record, 2<<3)
	record = binary.AppendUvarint(record, uint64(sum))
	if data != nil {
		record = append(record, 3<<3|2)
		record = binary.AppendUvarint(record, uint64(len(data)))
		record = append(record, data...)
	}
	padding := (8 - len(record)%8) % 8
	length := uint64(len(record))
	if padding > 0 {
		length |= uint64(0x80|padding) << 56
	}
	out := binary.LittleEndian.AppendUint64(nil, length)
	out = append(out, record...)
	return append(out, make([]byte, padding)...)
}

func logFile(records ...walRecord) *fstest.MapFile {
	return &fstest.MapFile{Data: append(encode(records...), make([]byte, 4096)...)} // allocated, not written
}

func TestReadLogEnd(t *testing.T) {
	whole := encode(entry(1, 1), entry(9, 100))
	damaged := encode(entry(1, 1), entry(9, 100))
	damaged[len(damaged)-8-1]++
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  etcd.LogEnd
		fails bool
	}{
		"the last entry": {fstest.MapFS{"0-0.wal": logFile(entry(1, 1), entry(2, 2), state(7, 1))}, etcd.LogEnd{Term: 2, Index: 2}, false},
		"an entry replaces later ones of an earlier leader": {
			fstest.MapFS{"0-0.wal": logFile(entry(2, 8), entry(2, 9), entry(3, 8))}, etcd.LogEnd{Term: 3, Index: 8}, false,
		},
		"the newest file is new": {
			fstest.MapFS{"0-0.wal": logFile(entry(1, 1)), "1-2.wal": logFile(state(7, 1))}, etcd.LogEnd{Term: 1, Index: 1}, false,
		},
		"several files": {
			fstest.MapFS{"0-0.wal": logFile(entry(1, 1)), "1-2.wal": logFile(entry(4, 2)), "1.tmp": logFile(entry(5, 3))},
			etcd.LogEnd{Term: 4, Index: 2},
			false,
		},
		"a snapshot alone":           {fstest.MapFS{"0-0.wal": logFile(snapshot(30, 6), state(7, 1))}, etcd.LogEnd{Term: 6, Index: 30}, false},
		"a snapshot of before":       {fstest.MapFS{"0-0.wal": logFile(entry(6, 31), snapshot(30, 6))}, etcd.LogEnd{Term: 6, Index: 31}, false},
		"an entry that was cut":      {fstest.MapFS{"0-0.wal": {Data: whole[:len(whole)-9]}}, etcd.LogEnd{Term: 1, Index: 1}, false},
		"an entry that was not all":  {fstest.MapFS{"0-0.wal": {Data: damaged}}, etcd.LogEnd{Term: 1, Index: 1}, false},
		"the first snapshot of none": {fstest.MapFS{"0-0.wal": logFile(snapshot(0, 0))}, etcd.LogEnd{}, true},
		"no file":                    {fstest.MapFS{}, etcd.LogEnd{}, true},
		"not a log":                  {fstest.MapFS{"0-0.wal": {Data: []byte("abc")}}, etcd.LogEnd{}, true},
	} {
		got, err := etcd.ReadLogEnd(c.files)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestCommitMark: the record says that the last entry is stored, follows the last complete record of the newest file, and continues
// its checksum.
func TestCommitMark(t *testing.T) {
	before := encode(entry(3, 7), state(4, 2), entry(4, 8))
	torn := append(append([]byte{}, before...), encode(entry(9, 9))[24:40]...)
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  []byte
		file  string
	}{
		"one file": {fstest.MapFS{"0-0.wal": {Data: before}}, encode(entry(3, 7), state(4, 2), entry(4, 8), state8(4, 2)), "0-0.wal"},
		"a record was cut": {
			fstest.MapFS{"0-0.wal": {Data: torn}}, encode(entry(3, 7), state(4, 2), entry(4, 8), state8(4, 2)), "0-0.wal",
		},
		"the newest file has no entry": {
			fstest.MapFS{"0-0.wal": {Data: before}, "1-9.wal": logFile(state(5, 1))}, encode(state(5, 1), state8(5, 1)), "1-9.wal",
		},
	} {
		got, err := etcd.NewCommitMark(c.files)
		if err != nil || got.File != c.file {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		whole := slices.Concat(c.files[got.File].Data[:got.Offset], got.Record)
		if string(whole) != string(c.want) {
			t.Errorf("%s: %x, want %x", name, whole, c.want)
		}
	}
	if _, err := etcd.NewCommitMark(fstest.MapFS{}); err == nil {
		t.Error("a mark without a log")
	}
}

func FuzzReadLogEnd(f *testing.F) {
	f.Add(encode(entry(1, 1), snapshot(30, 6)))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		whole := append(encode(entry(3, 7)), body...)
		dir := fstest.MapFS{"0-0.wal": {Data: whole}}
		if _, err := etcd.ReadLogEnd(dir); err != nil {
			t.Errorf("an entry is there: %v", err)
		}
		mark, err := etcd.NewCommitMark(dir)
		if err != nil || mark.Offset > int64(len(whole)) {
			t.Errorf("%+v, %v", mark, err)
		}
	})
}

// TestLogEndCompare: the term comes first.
func TestLogEndCompare(t *testing.T) {
	older := etcd.LogEnd{Term: 2, Index: 100}
	newer := etcd.LogEnd{Term: 3, Index: 50}
	same := older
	if newer.Compare(older) != 1 || older.Compare(newer) != -1 || older.Compare(same) != 0 {
		t.Error("the index decides")
	}
}
