// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// backupsName is the name of the check of etcd's backups.
const backupsName = "backups"

const (
	// missedBackups is after how many intervals without a backup there is a warning.
	missedBackups = 3
	// firstBackup is how long after the start of a control plane the first backup may take.
	firstBackup = 10 * time.Minute
)

// Backups are the newest backups of etcd.
type Backups struct {
	// Policy of the cluster.
	Policy backup.Policy
	// Newest is the newest one; nil if there is none.
	Newest *backup.Backup
	// Tested is the newest one that was restored as a test; nil if there is none.
	Tested *backup.Backup
	// Future is the newest one that was taken in the future, which counts as neither; nil if there is none.
	Future *backup.Backup
	// Unreadable are those newer than Tested that cannot be read. They are not used.
	Unreadable []backup.Unreadable
}

// checkBackups checks the age of the newest backup, and the age and the result of the newest test. Its cause is set also if
// nothing is wrong.
func checkBackups(f Facts) []Check {
	if f.Backups == nil || f.Backups.Policy.Disabled && f.Backups.isEmpty() {
		return nil
	}

	c := Check{Kind: KindEtcd, Name: backupsName, Severity: Warning}
	b := *f.Backups
	if b.Newest == nil {
		if b.Future != nil {
			c.Cause = "etcd has no backup but " + describeFuture(*b.Future)
			c.Hint = futureHint(*b.Future)

			return []Check{c}
		}

		if len(b.Unreadable) > 0 {
			c.Cause = "etcd has no backup that can be read: " + describeUnreadable(b.Unreadable)
			c.Hint = unreadableHint()

			return []Check{c}
		}

		if controlPlaneUptime(f) < firstBackup {
			return nil
		}

		c.Cause = "etcd has no backup"
		c.Hint = "see whether an agent reports a failed task; machines of an earlier version take none: slipway rolling-update cluster"

		return []Check{c}
	}

	return []Check{judgeBackups(b, f.Now)}
}

// judgeBackups checks backups of which there is one at least.
func judgeBackups(b Backups, now time.Time) Check {
	c := Check{Kind: KindEtcd, Name: backupsName, Severity: Warning}
	age := now.Sub(b.Newest.TakenAt)
	testEvery := time.Duration(b.Policy.VerifyEvery) * b.Policy.Interval
	c.Cause = fmt.Sprintf("newest backup %s old, %s", formatAge(max(0, age)), describeTest(b.Tested, now, b.Policy))

	switch {
	case b.Tested != nil && !b.Tested.Verified():
		c.Hint = testHint(b.Tested)
	case b.Policy.Disabled:
		c.Severity = OK
	case age > missedBackups*b.Policy.Interval:
		c.Hint = fmt.Sprintf("one is due every %s: see whether an agent reports a failed task, and try: slipway etcd snapshot",
			b.Policy.Interval)
	case b.Tested == nil || now.Sub(b.Tested.TestedAt(now, b.Policy)) > missedBackups*testEvery:
		c.Hint = fmt.Sprintf("one is tested every %s: see whether an agent reports a failed task", testEvery)
		if b.Tested == nil && age < firstBackup {
			c.Severity = OK // the first one is being tested
			c.Hint = ""
		}
	default:
		c.Severity = OK
	}

	return b.addUnusable(c)
}

// addUnusable returns the check of the backups that count, with what is said of the others.
func (b Backups) addUnusable(c Check) Check {
	if b.Future != nil && c.Severity == OK {
		c.Severity = Warning
		c.Cause += "; " + describeFuture(*b.Future)
		c.Hint = futureHint(*b.Future)
	}

	if len(b.Unreadable) > 0 {
		c.Cause += "; " + describeUnreadable(b.Unreadable)
		if c.Severity == OK {
			c.Severity = Warning
			c.Hint = unreadableHint()
		}
	}

	return c
}

// isEmpty reports whether there is no backup of any kind.
func (b Backups) isEmpty() bool { return b.Newest == nil && b.Future == nil && len(b.Unreadable) == 0 }

// describeUnreadable names the newest backup that cannot be read, and says how many others there are.
func describeUnreadable(backups []backup.Unreadable) string {
	newest := backups[0]
	text := "backup " + newest.ID + " is not used: " + newest.Reason
	if others := len(backups) - 1; others > 0 {
		text += fmt.Sprintf(" (and %d others)", others)
	}

	return text
}

// unreadableHint says what to do about backups that cannot be read.
func unreadableHint() string {
	return "see all of them: slipway etcd snapshots; a later version of slipway may read them: no agent deletes them; restore a former " +
		"version of the object, or delete the backup in the machine store"
}

// testHint says what to do after a test that did not succeed.
func testHint(tested *backup.Backup) string {
	if tested.Untestable() {
		return "look at the memory and the disk of machine " + tested.Verification.Machine +
			": a test needs those of another etcd; the backup whose turn is next is tested"
	}

	return "take another backup: slipway etcd snapshot; if its test fails too, the disk of a member may be damaged"
}

// describeFuture describes a backup from the future.
func describeFuture(b backup.Backup) string {
	return fmt.Sprintf("backup %s was taken in the future (%s), by machine %s", b.ID, b.TakenAt.UTC().Format(time.RFC3339), b.Machine)
}

// futureHint says what to do about a backup from the future.
func futureHint(b backup.Backup) string {
	return "set the clock of machine " + b.Machine + " right (chronyc tracking); then delete " + backup.Prefix(b.Cluster) + b.ID +
		" in the machine store: it counts as no backup, and no agent deletes it until then"
}

// describeTest describes the newest test of a backup.
func describeTest(tested *backup.Backup, now time.Time, p backup.Policy) string {
	switch {
	case tested == nil:
		return "none was tested yet"
	case tested.Verified():
		text := "restored successfully in a test " + formatAge(max(0, now.Sub(tested.TestedAt(now, p)))) + " ago"
		if !tested.Verification.HashCompared {
			text += " (revision and number of keys compared, not the contents)"
		}

		return text

	case tested.Untestable():
		return "backup " + tested.ID + " could not be tested: " + tested.Verification.Error
	default:
		return "backup " + tested.ID + " cannot be restored: " + tested.Verification.Error
	}
}

// controlPlaneUptime returns for how long the agent of a member that works has been running.
func controlPlaneUptime(f Facts) time.Duration {
	var out time.Duration
	for _, i := range f.Instances {
		r, fresh := f.freshReport(i.ID)
		if fresh && r.Etcd != nil && r.Etcd.Quorum {
			out = max(out, time.Duration(r.ListeningSeconds)*time.Second)
		}
	}

	return out
}
