// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// counts returns metrics with so many writes in each of three buckets.
func counts(t *testing.T, fast, slow, rest int) etcd.SyncCounts {
	t.Helper()
	var text strings.Builder
	text.WriteString("# TYPE etcd_disk_wal_fsync_duration_seconds histogram\netcd_disk_wal_fsync_duration_seconds_count 7\n")
	for bound, n := range map[string]int{"0.008": fast, "0.512": fast + slow, "+Inf": fast + slow + rest} {
		fmt.Fprintf(&text, "etcd_disk_wal_fsync_duration_seconds_bucket{le=%q} %d\n", bound, n)
	}
	out, err := etcd.ParseSyncCounts(strings.NewReader(text.String()))
	if err != nil || len(out) != 3 {
		t.Fatalf("%+v, %v", out, err)
	}
	return out
}

func TestSlowestPercent(t *testing.T) {
	before := counts(t, 1000, 1000, 0)
	for name, c := range map[string]struct {
		later etcd.SyncCounts
		want  time.Duration
	}{
		"fast":                 {counts(t, 2000, 1005, 0), 8 * time.Millisecond},
		"2% are slow":          {counts(t, 1980, 1020, 0), 512 * time.Millisecond},
		"too few":              {counts(t, 1000, 1090, 0), 0},
		"the member restarted": {counts(t, 10, 0, 0), 0},
		"other numbers":        {counts(t, 900, 3000, 0), 0},
		"nothing was read":     {nil, 0},
	} {
		if got := c.later.SlowestPercent(before); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := counts(t, 1000, 1000, 500).SlowestPercent(before); got < time.Hour {
		t.Errorf("slower than each bound: %s", got)
	}
	if _, err := etcd.ParseSyncCounts(strings.NewReader(`etcd_disk_wal_fsync_duration_seconds_bucket{le="x"} 1`)); err == nil {
		t.Error("a damaged metric was read")
	}
}

func FuzzParseSyncCounts(f *testing.F) {
	f.Add("etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"} 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		out, err := etcd.ParseSyncCounts(strings.NewReader(text))
		if err == nil && len(out) > 0 && out.SlowestPercent(out) != 0 {
			t.Errorf("no writes took %s", out.SlowestPercent(out))
		}
	})
}
