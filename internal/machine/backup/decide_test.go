// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func defaultPolicy(t *testing.T) backup.Policy {
	t.Helper()
	p, err := backup.NewPolicy(v1alpha1.EtcdBackup{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// taken returns a backup that was taken so long before noon. state is verified, failed, inconclusive or empty.
func taken(ago time.Duration, state string) backup.Backup {
	at := noon.Add(-ago)
	b := backup.Backup{Metadata: backup.Metadata{ID: backup.NewID(at, "x"), TakenAt: at, Reason: backup.ReasonSchedule}}
	if state != "" {
		b.Verification = &backup.Verification{
			ID: b.ID, OK: state == "verified" || state == "unhashed", HashCompared: state == "verified", Inconclusive: state == "inconclusive",
		}
	}
	return b
}

func TestDecide(t *testing.T) {
	const h = time.Hour
	asked := taken(3*24*h, "")
	asked.Reason = backup.ReasonRequest
	moved := taken(time.Minute, "")
	moved.Reason = backup.ReasonMove
	lateMoved := taken(59*time.Minute, "")
	lateMoved.Reason = backup.ReasonMove
	oldMoved := taken(3*h, "")
	oldMoved.Reason = backup.ReasonMove
	disabled := defaultPolicy(t)
	disabled.Disabled = true
	rarelyTested := disabled
	rarelyTested.VerifyEvery = 1_000_000
	hourly := func(n int, first string) []backup.Backup {
		var out []backup.Backup
		for i := range n {
			state := ""
			if i == n-1 {
				state = first
			}
			out = append(out, taken(time.Duration(i)*h+time.Minute, state))
		}
		return out
	}
	old := []backup.Backup{taken(time.Minute, "verified"), taken(h, ""), taken(2*h, ""), taken(3*h, "")}
	for name, c := range map[string]struct {
		policy     backup.Policy
		backups    []backup.Backup
		restoring  string
		incomplete []string
		starting   bool
		failed     []backup.Step
		want       backup.Action
	}{
		"no backup":         {want: backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule}},
		"etcd is empty yet": {starting: true, want: backup.Action{Type: backup.ActionNone}},
		"an agent that restarts does not wait": {
			starting: true,
			backups:  []backup.Backup{taken(h, "verified")},
			want:     backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"the newest is too old": {
			backups: []backup.Backup{taken(h, "verified")},
			want:    backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"one from the future does not count": {
			backups: []backup.Backup{taken(-5*h, "verified"), taken(2*h, "verified")},
			want:    backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"one from the future is not the newest": {
			backups: []backup.Backup{taken(-5*h, "verified"), taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"one from the future is not tested": {
			backups: []backup.Backup{taken(-5*h, ""), taken(time.Minute, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"one before a move is tested whatever the clock": {
			backups: []backup.Backup{taken(-5*h, "verified"), taken(2*time.Minute, "verified"), moved},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{moved.ID}},
		},
		"those from the future are kept besides": {
			policy:  rarelyTested,
			backups: append([]backup.Backup{taken(900*24*h, "verified"), taken(-5*h, "verified"), taken(-6*h, "")}, old[1:]...),
			want:    backup.Action{Type: backup.ActionNone},
		},
		"a clock that is a little ahead": {
			backups: []backup.Backup{taken(-time.Minute, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"a quarter after a failed test": {
			backups: []backup.Backup{taken(15*time.Minute, "failed"), taken(h, "verified")},
			want:    backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"disabled": {policy: disabled, want: backup.Action{Type: backup.ActionNone}},
		"the first is tested": {
			backups: []backup.Backup{taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"after a test without a result, not sooner": {
			backups: []backup.Backup{taken(15*time.Minute, "inconclusive"), taken(h, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"the next one after a test without a result": {
			backups: []backup.Backup{taken(h, "inconclusive"), taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"the sixth after a test without a result": {
			backups: hourly(7, "inconclusive"),
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"the only ones could not be tested, and are kept": {
			backups: []backup.Backup{taken(900*24*h, "inconclusive"), taken(800*24*h, "inconclusive"), taken(time.Minute, "inconclusive")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"five after a test": {backups: hourly(6, "verified"), want: backup.Action{Type: backup.ActionNone}},
		"six after a test": {
			backups: hourly(7, "verified"),
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"six hours after a test, of which few are kept": {
			backups: []backup.Backup{taken(6*h+time.Minute, "verified"), taken(2*h, ""), taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"one before a move": {
			backups: []backup.Backup{taken(2*time.Minute, "verified"), moved},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{moved.ID}},
		},
		"a scheduled backup was taken after that of a move": {
			backups: []backup.Backup{taken(2*time.Minute, "verified"), moved, taken(time.Second, "")},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{moved.ID}},
		},
		"a backup is due, and that of a move is not tested": {
			backups: []backup.Backup{taken(9*h, "verified"), lateMoved},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{lateMoved.ID}},
		},
		"nobody waits for the test of an old move": {
			backups: []backup.Backup{oldMoved, taken(2*h, "verified"), taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"one after a failed test": {
			backups: hourly(2, "failed"),
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"one after a test without a hash": {
			backups: hourly(2, "unhashed"),
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"the next one is not due sooner after a test without a hash": {
			backups: []backup.Backup{taken(15*time.Minute, "unhashed"), taken(h, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"a failed one is kept while it is young": {
			backups: append([]backup.Backup{taken(23*h, "failed")}, old...),
			want:    backup.Action{Type: backup.ActionNone},
		},
		"a failed one is deleted when it is old": {
			backups: append([]backup.Backup{taken(25*h, "failed")}, old...),
			want:    backup.Action{Type: backup.ActionDelete, IDs: []string{taken(25*h, "").ID}},
		},
		"the last of a day is kept": {
			backups: append([]backup.Backup{taken(36*h+time.Minute, ""), taken(37*h, ""), taken(60*h+time.Minute, "")}, old...),
			want:    backup.Action{Type: backup.ActionDelete, IDs: []string{taken(37*h, "").ID}},
		},
		"one that was asked for is kept": {
			backups: append([]backup.Backup{taken(3*24*h-time.Minute, ""), asked}, old...),
			want:    backup.Action{Type: backup.ActionNone},
		},
		"one that is being restored is kept": {
			backups:   append([]backup.Backup{taken(14*24*h, ""), taken(15*24*h, "")}, old...),
			restoring: taken(14*24*h, "").ID,
			want:      backup.Action{Type: backup.ActionDelete, IDs: []string{taken(15*24*h, "").ID}},
		},
		"no day is kept forever": {
			backups: append([]backup.Backup{taken(14*24*h, "")}, old...),
			want:    backup.Action{Type: backup.ActionDelete, IDs: []string{taken(14*24*h, "").ID}},
		},
		"the last ones are kept forever": {
			policy:  disabled,
			backups: []backup.Backup{taken(900*24*h, ""), taken(800*24*h, ""), taken(700*24*h, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"the last verified one is kept forever": {
			policy: rarelyTested,
			backups: []backup.Backup{
				taken(900*24*h, "verified"), taken(800*24*h, "verified"), taken(3*h, ""), taken(2*h, ""), taken(h, ""),
			},
			want: backup.Action{Type: backup.ActionDelete, IDs: []string{taken(900*24*h, "").ID}},
		},
		"those that may be in a test do not count as usable": {
			policy: backup.Policy{Interval: 5 * time.Minute, KeepAll: 5 * time.Minute, KeepDaily: 1, VerifyEvery: 1000},
			backups: []backup.Backup{
				taken(10*h, ""), taken(9*h, ""), taken(8*h, ""), taken(7*h, "verified"), taken(6*h, ""), taken(30*time.Minute, ""), taken(time.Minute, ""),
			},
			want: backup.Action{Type: backup.ActionDelete, IDs: []string{taken(10*h, "").ID}},
		},
		"an upload that was abandoned": {
			backups:    old,
			incomplete: []string{backup.NewID(noon.Add(-7*h), "x"), backup.NewID(noon.Add(-5*h), "x"), "x"},
			want:       backup.Action{Type: backup.ActionDelete, IDs: []string{backup.NewID(noon.Add(-7*h), "x")}},
		},
		"deletions do not wait for a test": {
			backups: append([]backup.Backup{taken(25*h, "failed"), taken(time.Second, "")}, hourly(7, "verified")...),
			want:    backup.Action{Type: backup.ActionDelete, IDs: []string{taken(25*h, "").ID}},
		},
		"a test does not wait for a deletion that fails": {
			backups: append([]backup.Backup{taken(25*h, "failed"), taken(time.Second, "")}, hourly(7, "verified")...),
			failed:  []backup.Step{{Type: backup.ActionDelete}},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Second, "").ID}},
		},
		"a test that failed is not repeated at once": {
			backups: []backup.Backup{taken(time.Minute, "")},
			failed:  []backup.Step{{Type: backup.ActionVerify, ID: taken(time.Minute, "").ID}},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"a backup does not wait for the test of a move that fails": {
			policy:  backup.Policy{Interval: h / 2, KeepAll: h, KeepDaily: 1, VerifyEvery: 6},
			backups: []backup.Backup{taken(9*h, "verified"), lateMoved},
			failed:  []backup.Step{{Type: backup.ActionVerify, ID: lateMoved.ID}},
			want:    backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"the newest backup does not wait for the test of a move that fails": {
			backups: []backup.Backup{taken(9*h, "verified"), lateMoved, taken(time.Second, "")},
			failed:  []backup.Step{{Type: backup.ActionVerify, ID: lateMoved.ID}},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Second, "").ID}},
		},
		"the backup of a move does not wait for the test of a later move that fails": {
			backups: []backup.Backup{taken(9*h, "verified"), lateMoved, moved},
			failed:  []backup.Step{{Type: backup.ActionVerify, ID: moved.ID}},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{lateMoved.ID}},
		},
		"a deletion does not wait for another one that fails": {
			backups:    append([]backup.Backup{taken(25*h, "failed")}, old...),
			incomplete: []string{backup.NewID(noon.Add(-7*h), "x")},
			failed:     []backup.Step{{Type: backup.ActionDelete, ID: taken(25*h, "").ID}},
			want:       backup.Action{Type: backup.ActionDelete, IDs: []string{backup.NewID(noon.Add(-7*h), "x")}},
		},
		"while no backup can be taken, abandoned uploads are deleted alone": {
			backups:    append([]backup.Backup{taken(25*h, "failed")}, old[1:]...),
			incomplete: []string{backup.NewID(noon.Add(-7*h), "x")},
			failed:     []backup.Step{{Type: backup.ActionTake}},
			want:       backup.Action{Type: backup.ActionDelete, IDs: []string{backup.NewID(noon.Add(-7*h), "x")}},
		},
		"while no backup can be taken, the newest one is tested": {
			backups: []backup.Backup{taken(2*h, "")},
			failed:  []backup.Step{{Type: backup.ActionTake}},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(2*h, "").ID}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.policy == (backup.Policy{}) {
				c.policy = defaultPolicy(t)
			}
			got := backup.Decide(backup.Facts{
				Now: noon, Policy: c.policy, Backups: c.backups, Incomplete: c.incomplete, Starting: c.starting,
				Restored: c.restoring, Restoring: c.restoring != "", Failed: c.failed,
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
