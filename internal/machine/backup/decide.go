// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"cmp"
	"slices"
	"time"
)

// ActionType is what to do next.
type ActionType string

// The action types.
const (
	// ActionNone does nothing.
	ActionNone ActionType = "none"
	// ActionTake takes a backup.
	ActionTake ActionType = "take"
	// ActionVerify tests the backup Action.IDs[0].
	ActionVerify ActionType = "verify"
	// ActionDelete deletes the backups Action.IDs.
	ActionDelete ActionType = "delete"
)

// Action is the next step, and the reason for it.
type Action struct {
	// Type of the step.
	Type ActionType
	// Reason of a backup to take; see [Metadata.Reason].
	Reason string
	// IDs of the backups to test or to delete, oldest first.
	IDs []string
}

// Facts is the complete input of a decision.
type Facts struct {
	// Now is the time by the clock of the machine that decides.
	Now time.Time
	// Policy of the cluster.
	Policy Policy
	// Starting is set until the API server of the machine has been ready. Before that etcd may be empty, and a first
	// backup of it would be useless.
	Starting bool
	// Backups are the complete ones.
	Backups []Backup
	// Generation of etcd's data on the machine that decides; 0 counts as 1. Backups of other generations are of data that is not
	// used any more.
	Generation int
	// Restored is the id of the backup that the newest generation was restored from; empty if etcd was never restored.
	Restored string
	// Restoring is set until all members have the data of Restored.
	Restoring bool
	// Incomplete are the ids of those without metadata: somebody writes or deletes them, or was killed while doing so.
	Incomplete []string
	// Failed are the steps that have failed a short time ago, as without space on a disk. What else there is to do does not wait for
	// them: a test that fails keeps no other backup from being tested, nor a deletion that fails another one.
	Failed []Step
}

// Step is what an action does with one backup.
type Step struct {
	// Type of the step.
	Type ActionType
	// ID of the backup; empty: every one, also one that is to be taken.
	ID string
}

const (
	// minKept is how many of the newest usable backups are kept whatever their age.
	minKept = 3
	// abandonedAfter is the age after which an incomplete backup is deleted. Taking one takes minutes.
	abandonedAfter = 6 * time.Hour
	// testedWithin is how long after a newer backup was taken a machine may still test the one before it: machines test
	// the newest one that they know, and a test takes minutes.
	testedWithin = time.Hour
	// maxMove is how long after its backup a move of etcd may still wait for the test.
	maxMove = time.Hour
	// maxFailedDeletions is how many deletions may fail before tests are due: if a machine may delete nothing, a look of it has no actions
	// left for them otherwise. Two, not one: a single backup that cannot be deleted changes nothing for the others.
	maxFailedDeletions = 2
)

// Decide returns the next step. It is a pure function. Only the machine of etcd's leader may act. If two machines
// act, because each takes itself for the leader, there is one backup too many, and no backup is lost.
//
// Backups from the future, which a machine with a wrong clock took, neither count nor are they deleted: it is not known how new
// their data is, so no other backup may go because of them, and they may be the only ones.
//
// Deletions come before tests, and before steps that have just failed: else a test that never ends, or a backup that cannot be taken,
// would keep all that has expired. After maxFailedDeletions a test comes first, and the other deletions after it.
func Decide(f Facts) Action {
	f = f.counted()
	if id := movedUntested(f); id != "" {
		return Action{Type: ActionVerify, IDs: []string{id}}
	}

	needsBackup := !f.Policy.Disabled && isDue(f) && (!f.Starting || len(f.Backups) > 0)
	if needsBackup && !f.hasFailed(ActionTake, "") {
		return Action{Type: ActionTake, Reason: ReasonSchedule}
	}

	verify := verification(f)
	if verify.Type == ActionVerify && f.failedDeletions() >= maxFailedDeletions {
		return verify
	}

	if ids := toDelete(f, needsBackup); len(ids) > 0 {
		return Action{Type: ActionDelete, IDs: ids}
	}

	return verify
}

// verification returns the test that is due, if it has not failed; else [ActionNone].
func verification(f Facts) Action {
	if id := nextToVerify(f); id != "" && !f.hasFailed(ActionVerify, id) {
		return Action{Type: ActionVerify, IDs: []string{id}}
	}

	return Action{Type: ActionNone}
}

// failedDeletions returns how many deletions have failed a short time ago.
func (f Facts) failedDeletions() int {
	n := 0
	for _, s := range f.Failed {
		if s.Type == ActionDelete {
			n++
		}
	}

	return n
}

// hasFailed reports whether a step of this type has failed a short time ago, for a backup.
func (f Facts) hasFailed(step ActionType, id string) bool {
	return slices.ContainsFunc(f.Failed, func(s Step) bool { return s.Type == step && (s.ID == id || s.ID == "") })
}

// sortByTime returns the backups, oldest first.
func sortByTime(backups []Backup) []Backup {
	out := slices.Clone(backups)
	slices.SortFunc(out, func(a, b Backup) int {
		return cmp.Or(a.TakenAt.Compare(b.TakenAt), cmp.Compare(a.ID, b.ID))
	})

	return out
}

// isDue reports whether a backup is due. After a restoration, one is due at once: others are of data that is not used any more. After
// a failed test the next one is due in a quarter of the time.
func isDue(f Facts) bool {
	newest, hasAny := newestOwn(f)
	if !hasAny {
		return true
	}

	age := f.Now.Sub(newest.TakenAt)
	if newest.Broken() {
		return age >= f.Policy.Interval/4
	}

	return age >= f.Policy.Interval
}

// newestOwn returns the last backup that was taken of the present generation, and whether there is one.
func newestOwn(f Facts) (Backup, bool) {
	for _, b := range slices.Backward(f.Backups) {
		if b.isOf(f) {
			return b, true
		}
	}

	return Backup{}, false
}

// isOf reports whether a backup was taken of the present generation of this cluster.
func (b Backup) isOf(f Facts) bool {
	return b.Origin == nil && b.generation() == max(f.Generation, 1)
}

// movedUntested returns the newest backup of a move that was not tested. Somebody waits for it, and nothing else is left of the data. So
// its turn is first, also if a scheduled backup is due by now.
func movedUntested(f Facts) string {
	for _, b := range slices.Backward(f.Backups) {
		isWaitedFor := b.Reason == ReasonMove && b.Verification == nil && f.Now.Sub(b.TakenAt) < maxMove
		if isWaitedFor && !f.hasFailed(ActionVerify, b.ID) {
			return b.ID
		}
	}

	return ""
}

// nextToVerify returns the backup to test: the newest one, if none of the last VerifyEvery was tested, or none for as long as those
// take: fewer may be kept. A backup after one whose test failed, or compared no hash, is tested in any case.
func nextToVerify(f Facts) string {
	if len(f.Backups) == 0 {
		return ""
	}

	newest := f.Backups[len(f.Backups)-1]
	if newest.Verification != nil {
		return ""
	}

	for i, b := range slices.Backward(f.Backups) {
		if b.Verification == nil {
			continue
		}

		untested := len(f.Backups) - 1 - i
		span := newest.TakenAt.Sub(b.TakenAt)
		if b.leavesDoubt() || untested >= f.Policy.VerifyEvery || span >= time.Duration(f.Policy.VerifyEvery)*f.Policy.Interval {
			return newest.ID
		}

		return ""
	}

	return newest.ID // none was ever tested
}

// leavesDoubt reports whether the test of a backup failed, or succeeded without a hash: wrong values may have gone unnoticed.
func (b Backup) leavesDoubt() bool {
	return b.Broken() || b.Verified() && !b.Verification.HashCompared
}

// NeedsTest reports whether a backup that is taken now, for a reason, will be tested next.
func NeedsTest(f Facts, reason string) bool {
	const last = "zzzzzz" // as a suffix, behind those of the same time
	next := Backup{Metadata: Metadata{ID: NewID(f.Now, last), TakenAt: f.Now, Reason: reason}}
	f.Backups = append(slices.Clone(f.Backups), next)

	return nextToVerify(f.counted()) == next.ID
}

// counted returns facts with the backups that count only, oldest first.
func (f Facts) counted() Facts {
	f.Backups = slices.DeleteFunc(sortByTime(f.Backups), func(b Backup) bool { return b.FromFuture(f.Now, f.Policy) })

	return f
}

// toDelete returns the ids of backups that need not be kept, and of those that were abandoned, oldest first, without those whose
// deletion has just failed. While a backup is due that cannot be taken, all complete ones are kept: no other is added to them.
func toDelete(f Facts, needsBackup bool) []string {
	out := abandonedIDs(f)
	if !needsBackup {
		out = append(out, expiredIDs(f)...)
	}

	slices.Sort(out)

	return slices.DeleteFunc(out, func(id string) bool { return f.hasFailed(ActionDelete, id) })
}

// expiredIDs returns the ids of complete backups that need not be kept.
func expiredIDs(f Facts) []string {
	keep := keptIDs(f)
	var out []string
	for _, b := range f.Backups {
		if !keep[b.ID] {
			out = append(out, b.ID)
		}
	}

	return out
}

// abandonedIDs returns the ids of backups whose upload or deletion has not ended for a long time, oldest first.
func abandonedIDs(f Facts) []string {
	var out []string
	for _, id := range f.Incomplete {
		at, valid := timeOf(id)
		if valid && f.Now.Sub(at) > abandonedAfter {
			out = append(out, id)
		}
	}

	slices.Sort(out)

	return out
}

// keptIDs returns the backups that are kept: the young ones, the newest usable ones, the newest that was restored in a
// test, the last one of each day, those that somebody asked for, and the one that was restored, while it is needed. Backups whose
// test failed are kept only while they are young. Those that another machine may be testing at this moment do not count as usable yet.
func keptIDs(f Facts) map[string]bool {
	keep := map[string]bool{}
	if f.needsRestored() {
		keep[f.Restored] = true
	}

	usable := 0
	verified := false
	days := map[string]bool{}
	daily := time.Duration(f.Policy.KeepDaily) * 24 * time.Hour
	for i, b := range slices.Backward(f.Backups) {
		age := f.Now.Sub(b.TakenAt)
		if b.isNeeded(f) {
			keep[b.ID] = true
		}

		if b.Broken() {
			continue
		}

		if !mayBeInTest(f, i) {
			usable++
		}

		day := b.TakenAt.UTC().Format(time.DateOnly)
		lastOfDay := !days[day]
		days[day] = true

		switch {
		case usable <= minKept, b.Verified() && !verified:
			keep[b.ID] = true
		case age < daily && (lastOfDay || b.Reason != ReasonSchedule):
			keep[b.ID] = true
		}

		verified = verified || b.Verified()
	}

	return keep
}

// needsRestored reports whether the backup that was restored is kept: a member may have to restore it yet, or after a loss of all
// data it is the one to restore, as no other of the present data can be. See [NewestOfGeneration].
func (f Facts) needsRestored() bool {
	if f.Restoring {
		return true
	}

	for i, b := range f.Backups {
		if b.isOf(f) && b.IsSigned && !b.Broken() && !mayBeInTest(f, i) {
			return false
		}
	}

	return true
}

// isNeeded reports whether a backup is kept whatever others there are: it is young, or it was copied a short time ago.
func (b Backup) isNeeded(f Facts) bool {
	return f.Now.Sub(b.TakenAt) < f.Policy.KeepAll || b.isFreshCopy(f)
}

// mayBeInTest reports whether a machine may be testing backup i: no test of it is recorded, and it is the newest one, or was
// until a short time ago.
func mayBeInTest(f Facts, i int) bool {
	if f.Backups[i].Verification != nil {
		return false
	}

	return i == len(f.Backups)-1 || f.Now.Sub(f.Backups[i+1].TakenAt) < testedWithin
}
