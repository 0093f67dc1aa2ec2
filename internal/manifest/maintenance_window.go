// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// MaintenanceWindow is a time of the week, in UTC. The zero value is never open.
type MaintenanceWindow struct {
	days   [7]bool       // by [time.Weekday]
	start  time.Duration // since midnight
	length time.Duration
}

// Limits of the length of a window. One shorter than the replacement of a machine would never get anywhere.
const (
	minWindow = 30 * time.Minute
	maxWindow = 24 * time.Hour
)

// hoursAndMinutes is the layout of a time of day.
const hoursAndMinutes = "15:04"

// NewMaintenanceWindow returns the window of valid settings; wrong parts are those of the zero value.
func NewMaintenanceWindow(settings v1alpha1.MaintenanceWindow) MaintenanceWindow {
	var w MaintenanceWindow
	for _, name := range settings.Days {
		if day, known := parseWeekday(name); known {
			w.days[day] = true
		}
	}

	if len(settings.Days) == 0 {
		w.days = [7]bool{true, true, true, true, true, true, true}
	}

	if at, err := time.Parse(hoursAndMinutes, settings.Start); err == nil {
		w.start = time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
	}

	if length, err := time.ParseDuration(settings.Duration); err == nil {
		w.length = length
	}

	return w
}

// End returns the time at which the window ends that is open at now, and whether one is.
func (w MaintenanceWindow) End(now time.Time) (end time.Time, open bool) {
	today := now.UTC().Truncate(24 * time.Hour)
	for _, midnight := range []time.Time{today, today.AddDate(0, 0, -1)} {
		begin := midnight.Add(w.start)
		if end = begin.Add(w.length); w.days[midnight.Weekday()] && !now.Before(begin) && now.Before(end) {
			return end, true
		}
	}

	return time.Time{}, false
}

// Next returns the time after now at which the next window begins; the zero time if none ever does.
func (w MaintenanceWindow) Next(now time.Time) time.Time {
	today := now.UTC().Truncate(24 * time.Hour)
	for days := range 8 {
		midnight := today.AddDate(0, 0, days)
		if begin := midnight.Add(w.start); w.days[midnight.Weekday()] && begin.After(now) {
			return begin
		}
	}

	return time.Time{}
}

// parseWeekday returns the day with this English name, in upper or lower case.
func parseWeekday(name string) (day time.Weekday, known bool) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if strings.EqualFold(day.String(), name) {
			return day, true
		}
	}

	return 0, false
}

// checkUpgrade checks the settings of automatic upgrades.
func (v validator) checkUpgrade(u v1alpha1.Upgrade) {
	const at = "spec.upgrade.maintenanceWindow"
	window := u.MaintenanceWindow
	isUnset := len(window.Days) == 0 && window.Start == "" && window.Duration == ""
	if isUnset && !u.AutomaticPatches {
		return
	}

	for _, name := range window.Days {
		if _, known := parseWeekday(name); !known {
			v.errorf(at+".days", name, "write it as Saturday", "is not a day of the week")
		}
	}

	if _, err := time.Parse(hoursAndMinutes, window.Start); err != nil {
		v.errorf(at+".start", window.Start, "write it as 02:00, in UTC", "is not a time of day")
	}

	length, err := time.ParseDuration(window.Duration)
	if err != nil || length < minWindow || length > maxWindow {
		v.errorf(at+".duration", window.Duration, "write it as 4h", "is not a duration from 30m to 24h")
	}
}
