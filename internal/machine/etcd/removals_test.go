// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// TestReadRemovals: only the removal of a member that the log proves to be stored by a majority counts.
func TestReadRemovals(t *testing.T) {
	const first, second = "0000000000000000-0000000000000000.wal", "0000000000000001-0000000000000009.wal"
	const third = "0000000000000002-0000000000000020.wal"
	one := func(records ...walRecord) fstest.MapFS { return fstest.MapFS{first: logFile(records...)} }
	damaged := encode(ownMember(), change(2, 1, 3), entry(2, 3), state8(2, 0))
	damaged[len(damaged)-8-1]++
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  []uint64
	}{
		"stored":                         {one(ownMember(), change(3, 1, 3), state8(2, 0)), []uint64{3}},
		"stored, as a later file says":   {fstest.MapFS{first: logFile(ownMember(), change(3, 1, 3)), second: logFile(ownMember(), state8(2, 0))}, []uint64{3}},
		"two":                            {one(ownMember(), change(3, 1, 9), change(4, 1, 3), state8(2, 0)), []uint64{9, 3}},
		"its own":                        {one(ownMember(), change(3, 1, 5), state8(2, 0)), []uint64{5}},
		"not stored":                     {one(ownMember(), entry(2, 1), change(9, 1, 3), state8(2, 0)), nil},
		"no state":                       {one(ownMember(), change(3, 1, 3)), nil},
		"replaced":                       {one(ownMember(), change(3, 1, 3), entry(3, 3), state8(3, 0)), nil},
		"replaced by one before it":      {one(ownMember(), change(3, 1, 3), entry(3, 2), entry(3, 3), state8(3, 0)), nil},
		"added":                          {one(ownMember(), change(3, 0, 3), change(4, 3, 7), state8(2, 0)), nil},
		"damaged afterwards":             {fstest.MapFS{first: {Data: damaged}}, nil},
		"damaged before the newest file": {fstest.MapFS{first: {Data: damaged}, second: logFile(ownMember(), state8(2, 0))}, nil},
		"in an old file": {fstest.MapFS{
			first: logFile(ownMember(), change(2, 1, 3), state8(2, 0)), second: logFile(ownMember(), entry(2, 9)), third: logFile(ownMember(), state8(2, 0)),
		}, nil},
	} {
		got, err := etcd.ReadRemovals(c.files)
		if err != nil || got.Member != 5 || !slices.Equal(got.Removed, c.want) {
			t.Errorf("%s: %+v, %v, want %v", name, got, err, c.want)
		}
	}
	if got, err := etcd.ReadRemovals(fstest.MapFS{}); err != nil || got.Member != 0 || got.Removed != nil {
		t.Errorf("without a log: %+v, %v", got, err)
	}
}
