// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// RecoveryName is the name of the check of recoveries of etcd.
const RecoveryName = "recovery"

const (
	// freshQuorumReport is how old a machine's report on a missing quorum may be. Machines repeat it every 10 s.
	freshQuorumReport = 2 * time.Minute
	// recoveryShown is for how long a recovery is shown.
	recoveryShown = 24 * time.Hour
)

// Recovery is what the machines report on a missing quorum of etcd, and the last recovery.
type Recovery struct {
	// Waiting are the newest reports of machines.
	Waiting []QuorumLoss
	// Last is the newest generation that machines began themselves; nil if an operator began it, or if there is none.
	Last *Recovered
}

// QuorumLoss is a machine's report that etcd has no quorum.
type QuorumLoss struct {
	// Slot that reports.
	Slot string
	// LostData is set if the machine found that the data of a majority is lost.
	LostData bool
	// Manual is set if the machine waits for an operator.
	Manual bool
	// Reason of the machine's last decision.
	Reason string
	// LostAt is since when it has had no quorum, DueAt when it recovers etcd (zero if that does not depend on the time), and ReportedAt
	// when it reported, all by its clock.
	LostAt, DueAt, ReportedAt time.Time
}

// Recovered is a recovery of etcd.
type Recovered struct {
	// At is when it began.
	At time.Time
	// Backup that was restored, and Survivor whether it was of a member whose data had survived.
	Backup   string
	Survivor bool
	// Slot that restored it.
	Slot string
	// Loss says what was lost.
	Loss string
}

// checkRecovery says what the machines do about a missing quorum, or what the last recovery lost.
func checkRecovery(f Facts) []Check {
	if f.Recovery == nil {
		return nil
	}

	if loss, ok := chooseQuorumLoss(f); ok && !someoneHasQuorum(f) {
		return []Check{describeQuorumLoss(loss, f.Now)}
	}

	last := f.Recovery.Last
	if last == nil || f.Now.Sub(last.At) > recoveryShown {
		return nil
	}

	source := "backup " + last.Backup
	if last.Survivor {
		source = "the data of " + memberName(last.Slot) + ", backup " + last.Backup
	}

	return []Check{{
		Kind:     KindEtcd,
		Name:     RecoveryName,
		Severity: Warning,
		Cause: fmt.Sprintf("etcd was recovered %s ago from %s; lost: %s", formatAge(max(0, f.Now.Sub(last.At))), source,
			last.Loss),
		Hint: "machines create the volumes of lost members, unless the manifest says Never; at once: " +
			"slipway apply --recreate-lost-volumes; this warning stays for a day",
	}}
}

// chooseQuorumLoss returns the report that says most, and whether there is one: machines whose data is not lost say nothing that
// the check of the quorum does not say.
func chooseQuorumLoss(f Facts) (QuorumLoss, bool) {
	if f.Recovery == nil {
		return QuorumLoss{}, false
	}

	fresh := slices.DeleteFunc(slices.Clone(f.Recovery.Waiting), func(l QuorumLoss) bool {
		return !l.LostData || f.Now.Sub(l.ReportedAt) > freshQuorumReport
	})
	if len(fresh) == 0 {
		return QuorumLoss{}, false
	}

	slices.SortStableFunc(fresh, func(a, b QuorumLoss) int {
		if a.Manual != b.Manual {
			if a.Manual {
				return 1 // another one acts
			}

			return -1
		}

		return cmp.Or(a.LostAt.Compare(b.LostAt), cmp.Compare(a.Slot, b.Slot))
	})

	return fresh[0], true
}

// describeQuorumLoss returns the check of a loss.
func describeQuorumLoss(l QuorumLoss, now time.Time) Check {
	c := Check{
		Kind:     KindEtcd,
		Name:     RecoveryName,
		Severity: Critical,
		Cause:    fmt.Sprintf("no quorum for %s: %s", formatAge(max(0, now.Sub(l.LostAt))), l.Reason),
	}

	switch {
	case l.Manual:
		c.Hint = "create the volumes: slipway apply --recreate-lost-volumes; then restore a backup: slipway etcd restore"
	case !l.DueAt.IsZero():
		c.Hint = "wait: the machines recover etcd in " + formatAge(max(0, l.DueAt.Sub(now)))
	default:
		c.Hint = "wait: the machines recover etcd, and create the volumes of lost members unless the manifest says Never"
	}

	return c
}
