// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// Position returns the place of a backup in the history of its cluster's etcd.
func (m Metadata) Position() etcd.Position {
	return etcd.Position{Generation: m.Generation, Term: m.RaftTerm, Revision: m.Revision}
}

// generation returns the generation of the data. Backups of earlier versions do not name it: theirs is the first.
func (m Metadata) generation() int { return max(m.Generation, 1) }

// NewestOfGeneration returns the newest backup that was taken of a generation and whose test did not fail; nil if there is none. g is
// the newest generation, nil for the first one. A machine of the cluster must have signed the backup: whoever may write to the machine
// store could make an old backup the newest one. Without such a backup it is the one that the generation was restored from: later
// ones of before it are what an operator discarded.
//
// Only an archive with Records tells which backups are signed. Clocks are not compared.
func NewestOfGeneration(backups []Backup, g *etcd.Generation) *Backup {
	usable := slices.DeleteFunc(slices.Clone(backups), Backup.Broken)
	number := 1
	if g != nil {
		number = g.Number
	}

	var candidates []Backup
	var positions []etcd.Position
	for _, b := range usable {
		if b.Origin == nil && b.IsSigned && b.generation() == number {
			candidates = append(candidates, b)
			positions = append(positions, b.Position())
		}
	}

	if newest := etcd.NewestPosition(positions); newest >= 0 {
		return &candidates[newest]
	}

	if g == nil {
		return nil
	}

	if found, ok := (Listing{Backups: usable}).Find(g.Backup); ok {
		return &found
	}

	return nil
}

// IgnoreUnsignedTests removes verifications that no machine of the cluster has signed: whoever may write to the machine store could
// make the newest backups look broken, so that an older one is restored.
func IgnoreUnsignedTests(backups []Backup) {
	for i := range backups {
		if !backups[i].IsTestSigned {
			backups[i].Verification = nil
		}
	}
}

// Newest are the newest backups of a cluster; each is nil if there is none.
type Newest struct {
	// Taken is the newest one, and Tested the newest one that was tested.
	Taken, Tested *Backup
	// Future is the newest one from the future, which counts as neither; see [Backup.FromFuture].
	Future *Backup
	// Unreadable are those that were left out because they cannot be read, of those that are newer than Tested. The newest is first.
	Unreadable []Unreadable
}

// ReadNewest reads the newest backups. It reads few objects.
func (c *Catalog) ReadNewest(ctx context.Context, now time.Time, p Policy) (Newest, error) {
	keys, err := c.Archive.Store.List(ctx, Prefix(c.Archive.Cluster))
	if err != nil {
		return Newest{}, err
	}

	objects := groupByID(keys, Prefix(c.Archive.Cluster))
	var unreadable []Unreadable
	for {
		found, others, err := c.read(ctx, newestIDs(objects, now, p), objects)
		if err != nil {
			return Newest{}, err
		}

		if len(others) == 0 {
			out := chooseNewest(found, now, p)
			slices.SortFunc(unreadable, func(a, b Unreadable) int { return cmp.Compare(b.ID, a.ID) })
			out.Unreadable = unreadable

			return out, nil
		}

		unreadable = append(unreadable, others...)
		for _, u := range others {
			delete(objects, u.ID)
		}
	}
}

// chooseNewest returns which of the backups that were read are the newest ones. They are in the order of [newestIDs].
func chooseNewest(found []Backup, now time.Time, p Policy) Newest {
	var out Newest
	for i := range found {
		b := &found[i]

		switch {
		case idFromFuture(b.ID, now, p):
			out.Future = b
			continue

		case out.Taken == nil:
			out.Taken = b
		}

		if b.Verification != nil {
			out.Tested = b
		}
	}

	return out
}

// newestIDs returns the ids of the complete backups that [Catalog.ReadNewest] reads, newest first.
func newestIDs(objects map[string]map[string]bool, now time.Time, p Policy) []string {
	var out []string
	hasFuture := false
	hasTaken := false
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(objects))) {
		if !objects[id][metadataObject] {
			continue
		}

		if idFromFuture(id, now, p) {
			if !hasFuture {
				out = append(out, id)
			}

			hasFuture = true

			continue
		}

		isTested := objects[id][verificationObject]
		if !hasTaken || isTested {
			out = append(out, id)
		}

		hasTaken = true
		if isTested {
			break
		}
	}

	return out
}
