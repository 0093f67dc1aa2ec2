// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"encoding/binary"
	"testing"
	"testing/fstest"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// walRecord returns a record of etcd's log with its frame.
func walRecord(kind uint64, fields ...uint64) []byte {
	var data []byte
	for i, value := range fields {
		data = binary.AppendUvarint(data, uint64(i+1)<<3)
		data = binary.AppendUvarint(data, value)
	}
	var record []byte
	record = append(record, 1<<3)
	record = binary.AppendUvarint(record, kind)
	record = append(record, 2<<3)
	record = binary.AppendUvarint(record, 0xdeadbeef)
	record = append(record, 3<<3|2)
	record = binary.AppendUvarint(record, uint64(len(data)))
	record = append(record, data...)
	padding := (8 - len(record)%8) % 8
	length := uint64(len(record))
	if padding > 0 {
		length |= uint64(0x80|padding) << 56
	}
	out := binary.LittleEndian.AppendUint64(nil, length)
	out = append(out, record...)
	return append(out, make([]byte, padding)...)
}

func entry(term, index uint64) []byte { return walRecord(2, 0, term, index) }

func logFile(records ...[]byte) *fstest.MapFile {
	var body []byte
	for _, r := range records {
		body = append(body, r...)
	}
	return &fstest.MapFile{Data: append(body, make([]byte, 4096)...)} // allocated, not written
}

func TestReadLogEnd(t *testing.T) {
	state := walRecord(3, 7, 1, 5) // a term alone is not an entry
	torn := entry(9, 100)
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  etcd.LogEnd
		fails bool
	}{
		"the last entry": {fstest.MapFS{"0-0.wal": logFile(entry(1, 1), entry(2, 2), state)}, etcd.LogEnd{Term: 2, Index: 2}, false},
		"an entry replaces later ones of an earlier leader": {
			fstest.MapFS{"0-0.wal": logFile(entry(2, 8), entry(2, 9), entry(3, 8))}, etcd.LogEnd{Term: 3, Index: 8}, false,
		},
		"the newest file is new": {
			fstest.MapFS{"0-0.wal": logFile(entry(1, 1)), "1-2.wal": logFile(walRecord(4), state)}, etcd.LogEnd{Term: 1, Index: 1}, false,
		},
		"several files": {
			fstest.MapFS{"0-0.wal": logFile(entry(1, 1)), "1-2.wal": logFile(entry(4, 2)), "1.tmp": logFile(entry(5, 3))},
			etcd.LogEnd{Term: 4, Index: 2}, false,
		},
		"a snapshot alone":           {fstest.MapFS{"0-0.wal": logFile(walRecord(5, 30, 6), state)}, etcd.LogEnd{Term: 6, Index: 30}, false},
		"a snapshot of before":       {fstest.MapFS{"0-0.wal": logFile(entry(6, 31), walRecord(5, 30, 6))}, etcd.LogEnd{Term: 6, Index: 31}, false},
		"an entry that was cut":      {fstest.MapFS{"0-0.wal": {Data: append(entry(1, 1), torn[:len(torn)-9]...)}}, etcd.LogEnd{Term: 1, Index: 1}, false},
		"the first snapshot of none": {fstest.MapFS{"0-0.wal": logFile(walRecord(5, 0, 0))}, etcd.LogEnd{}, true},
		"no file":                    {fstest.MapFS{}, etcd.LogEnd{}, true},
		"not a log":                  {fstest.MapFS{"0-0.wal": {Data: []byte("abc")}}, etcd.LogEnd{}, true},
	} {
		got, err := etcd.ReadLogEnd(c.files)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzReadLogEnd(f *testing.F) {
	f.Add(append(entry(1, 1), walRecord(5, 30, 6)...))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		whole := append(append([]byte{}, entry(3, 7)...), body...)
		if _, err := etcd.ReadLogEnd(fstest.MapFS{"0-0.wal": {Data: whole}}); err != nil {
			t.Errorf("an entry is there: %v", err)
		}
	})
}

// TestLogEndCompare: the term comes first.
func TestLogEndCompare(t *testing.T) {
	older := etcd.LogEnd{Term: 2, Index: 100}
	newer := etcd.LogEnd{Term: 3, Index: 50}
	if newer.Compare(older) != 1 || older.Compare(newer) != -1 || older.Compare(older) != 0 {
		t.Error("the index decides")
	}
}
