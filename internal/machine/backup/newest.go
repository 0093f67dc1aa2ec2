// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"

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
