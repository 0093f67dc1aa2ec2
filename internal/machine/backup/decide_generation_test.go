// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// TestDecideAfterRestoration: after a restoration no backup was taken for up to an interval, because those of the discarded data
// counted, and the backup that was restored could be deleted although no other of the present data existed.
func TestDecideAfterRestoration(t *testing.T) {
	const day = 24 * time.Hour
	restored := taken(900*day, "verified")
	discarded := []backup.Backup{
		taken(4*time.Minute, "verified"),
		taken(3*time.Minute, "verified"),
		taken(2*time.Minute, "verified"),
	}
	own := func(ago time.Duration, state string) backup.Backup {
		out := taken(ago, state)
		out.Generation = 2
		out.IsSigned = true

		return out
	}
	unsigned := own(time.Minute, "verified")
	unsigned.IsSigned = false
	copied := own(time.Minute, "verified")
	copied.Origin = &backup.Origin{Cluster: "other"}
	older := taken(800*day, "verified")
	manual := defaultPolicy(t)
	manual.Disabled = true
	takeOne := backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule}
	none := backup.Action{Type: backup.ActionNone}
	deleteRestored := backup.Action{Type: backup.ActionDelete, IDs: []string{restored.ID}}
	for name, c := range map[string]struct {
		policy  backup.Policy
		backups []backup.Backup
		want    backup.Action
	}{
		"none of the present data":              {defaultPolicy(t), nil, takeOne},
		"a copy from another cluster":           {defaultPolicy(t), []backup.Backup{copied}, takeOne},
		"one is young":                          {defaultPolicy(t), []backup.Backup{own(time.Minute, "verified")}, deleteRestored},
		"one failed its test":                   {defaultPolicy(t), []backup.Backup{own(time.Minute, "failed")}, none},
		"one failed its test a while ago":       {defaultPolicy(t), []backup.Backup{own(15*time.Minute, "failed")}, takeOne},
		"one may be in a test":                  {defaultPolicy(t), []backup.Backup{own(time.Minute, "")}, none},
		"one is not signed":                     {defaultPolicy(t), []backup.Backup{unsigned}, none},
		"none is taken, the restored one stays": {manual, nil, none},
		"the restored one alone is needed": {
			manual, []backup.Backup{older}, backup.Action{Type: backup.ActionDelete, IDs: []string{older.ID}},
		},
	} {
		backups := append([]backup.Backup{restored}, discarded...)
		got := backup.Decide(backup.Facts{
			Now:        noon,
			Policy:     c.policy,
			Backups:    append(backups, c.backups...),
			Generation: 2,
			Restored:   restored.ID,
		})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
