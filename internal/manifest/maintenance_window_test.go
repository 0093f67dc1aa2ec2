// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func TestMaintenanceWindow(t *testing.T) {
	weekend := v1alpha1.MaintenanceWindow{Days: []string{"Saturday", "sunday"}, Start: "23:00", Duration: "4h"}
	daily := v1alpha1.MaintenanceWindow{Start: "02:30", Duration: "24h"}
	for _, tc := range []struct {
		name      string
		settings  v1alpha1.MaintenanceWindow
		now       string // 2026-11-21 is a Saturday
		end, next string
	}{
		{"before it", weekend, "2026-11-21T22:59:59Z", "", "2026-11-21T23:00:00Z"},
		{"at its first second", weekend, "2026-11-21T23:00:00Z", "2026-11-22T03:00:00Z", "2026-11-22T23:00:00Z"},
		{"after midnight", weekend, "2026-11-22T02:59:59Z", "2026-11-22T03:00:00Z", "2026-11-22T23:00:00Z"},
		{"at its end", weekend, "2026-11-22T03:00:00Z", "", "2026-11-22T23:00:00Z"},
		{"after the last day, which is past midnight", weekend, "2026-11-23T01:00:00Z", "2026-11-23T03:00:00Z", "2026-11-28T23:00:00Z"},
		{"on a weekday", weekend, "2026-11-25T23:30:00Z", "", "2026-11-28T23:00:00Z"},
		{"in another time zone", weekend, "2026-11-21T18:30:00-05:00", "2026-11-22T03:00:00Z", "2026-11-22T23:00:00Z"},
		{"all day", daily, "2026-11-25T02:29:00Z", "2026-11-25T02:30:00Z", "2026-11-25T02:30:00Z"},
		{"never", v1alpha1.MaintenanceWindow{Days: []string{"Caturday"}, Start: "02:00", Duration: "1h"}, "2026-11-25T02:29:00Z", "", "0001-01-01T00:00:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}

			w := manifest.NewMaintenanceWindow(tc.settings)
			end, open := w.End(now)
			if open != (tc.end != "") || open && end.UTC().Format(time.RFC3339) != tc.end {
				t.Errorf("open: %v until %s, want %q", open, end, tc.end)
			}

			if next := w.Next(now); next.Format(time.RFC3339) != tc.next {
				t.Errorf("next: %s, want %s", next, tc.next)
			}
		})
	}
}

// A window that begins next is open then, for its whole length, and is not open just before.
func TestMaintenanceWindowBeginsNext(t *testing.T) {
	days := []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.IntRange(30, 12*60).Draw(t, "length")) * time.Minute
		start := time.Duration(rapid.IntRange(0, 24*60-1).Draw(t, "start")) * time.Minute
		w := manifest.NewMaintenanceWindow(v1alpha1.MaintenanceWindow{
			Days:     rapid.SliceOfNDistinct(rapid.SampledFrom(days), 1, 3, rapid.ID).Draw(t, "days"),
			Start:    time.Time{}.Add(start).Format("15:04"),
			Duration: length.String(),
		})
		now := time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "now"), 0)
		next := w.Next(now)
		end, open := w.End(next)
		if !next.After(now) || next.Sub(now) > 7*24*time.Hour || !open || end.Sub(next) != length {
			t.Fatalf("after %s: %s to %s, open: %v", now.UTC(), next, end, open)
		}

		if _, open := w.End(next.Add(-time.Second)); open && length < 12*time.Hour {
			t.Fatalf("open before %s", next)
		}
	})
}

func TestUpgradeFields(t *testing.T) {
	for _, tc := range []struct{ fields, want string }{
		{"{}", ""},
		{"{automaticPatches: true, maintenanceWindow: {days: [Saturday], start: '02:00', duration: 4h}}", ""},
		{"{automaticPatches: false, maintenanceWindow: {start: '02:00', duration: 4h}}", ""},
		{"{automaticPatches: true}", "spec.upgrade.maintenanceWindow.start: is not a time of day"},
		{"{maintenanceWindow: {start: '25:00', duration: 4h}}", "spec.upgrade.maintenanceWindow.start 25:00: is not a time of day"},
		{"{maintenanceWindow: {start: '02:00', duration: 5m}}", "spec.upgrade.maintenanceWindow.duration 5m: is not a duration from 30m to 24h"},
		{"{maintenanceWindow: {start: '02:00', duration: 1h, days: [Sat]}}", "spec.upgrade.maintenanceWindow.days Sat: is not a day of the week"},
	} {
		text := "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec: {upgrade: " + tc.fields + "}\n"
		set, parsed := manifest.Parse([]byte(text))
		var found []string
		for _, f := range manifest.Check(set, parsed) {
			if strings.Contains(f.Path, "spec.upgrade") {
				found = append(found, strings.ReplaceAll(f.String(), `"`, ""))
			}
		}

		if got := strings.Join(found, "\n"); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s:\n got %s\nwant %s", tc.fields, got, tc.want)
		}
	}
}
