// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// TestPositions: a later term is newer; without terms, revisions decide, and the order of the list never does.
func TestPositions(t *testing.T) {
	at := func(generation int, term uint64, revision int64) etcd.Position {
		return etcd.Position{Generation: generation, Term: term, Revision: revision}
	}
	for _, c := range []struct {
		newer, older etcd.Position
	}{
		{at(1, 3, 10), at(1, 2, 20)},
		{at(1, 3, 11), at(1, 3, 10)},
		{at(2, 1, 5), at(1, 9, 50)},
		{at(0, 0, 11), at(1, 3, 10)},
		{at(1, 3, 11), at(0, 0, 10)},
		{at(2, 0, 5), at(1, 9, 50)},
		{at(1, 0, 11), at(0, 0, 10)},
	} {
		both := []etcd.Position{c.older, c.newer}
		if etcd.NewestPosition(both) != 1 {
			t.Errorf("%+v is not newer than %+v", c.newer, c.older)
		}
		slices.Reverse(both)
		if etcd.NewestPosition(both) != 0 {
			t.Errorf("%+v is not newer than %+v if it comes first", c.newer, c.older)
		}
	}
	if got := etcd.NewestPosition(nil); got != -1 {
		t.Errorf("of none: %d", got)
	}
}

// TestPositionsModel: three positions of which two have no common measure, and random ones, have one newest in any order. Those
// of stored data are prefixes of one history, so the newest has the greatest revision, whatever terms are known.
func TestPositionsModel(t *testing.T) {
	three := []etcd.Position{{Generation: 1, Term: 5, Revision: 200}, {Revision: 150}, {Generation: 1, Term: 6, Revision: 120}}
	for range 3 {
		three = append(three[1:], three[0])
		if got := three[etcd.NewestPosition(three)]; got.Revision != 150 {
			t.Errorf("%+v is the newest of %+v", got, three)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) etcd.Position {
			return etcd.Position{
				Generation: rapid.IntRange(0, 2).Draw(t, "generation"),
				Term:       rapid.Uint64Range(0, 3).Draw(t, "term"),
				Revision:   rapid.Int64Range(1, 9).Draw(t, "revision"),
			}
		}), 1, 6).Draw(t, "positions")
		want := list[etcd.NewestPosition(list)]
		for range list {
			list = append(list[1:], list[0])
			got := list[etcd.NewestPosition(list)]
			if got.Revision != want.Revision || max(got.Generation, 1) != max(want.Generation, 1) {
				t.Fatalf("%+v and %+v are the newest of %+v", want, got, list)
			}
		}
		stored := []etcd.Position{{Generation: 1, Term: 1, Revision: 1}}
		for range rapid.IntRange(1, 6).Draw(t, "stored") {
			next := stored[len(stored)-1]
			next.Term += rapid.Uint64Range(0, 2).Draw(t, "elections")
			next.Revision += rapid.Int64Range(1, 5).Draw(t, "writes")
			stored = append(stored, next)
		}
		for i := range stored {
			if rapid.Bool().Draw(t, "unknown") {
				stored[i].Term = 0
			}
		}
		if got := etcd.NewestPosition(stored); got != len(stored)-1 {
			t.Fatalf("position %d is the newest of %+v", got, stored)
		}
	})
}
