// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// reloadSystemd runs systemctl daemon-reload if systemd has read a unit before its file changed. A unit that it has not read
// yet needs none, as all are on a new machine: systemd reads a unit when it starts it. A reload runs every generator of the
// operating system and reads all units again, which takes 0.15 s of a processor on Debian 12.
func (a *Agent) reloadSystemd(ctx context.Context, changed map[string]bool) error {
	units, ok := changedUnits(changed)
	if ok && (len(units) == 0 || unitsAreCurrent(ctx, a.Run, units)) {
		return nil
	}

	if _, err := a.Run.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return fmt.Errorf("reload systemd units: %w", err)
	}

	return nil
}

// changedUnits returns the names of the units whose files are among the changed ones, in order. It reports false if a file in
// a folder of a unit is: a link by which one unit wants another, or settings, of which systemd may not notice that they are new.
func changedUnits(changed map[string]bool) ([]string, bool) {
	var units []string
	for path := range changed {
		unit, found := strings.CutPrefix(path, "/etc/systemd/system/")
		if !found {
			continue
		}

		if strings.Contains(unit, "/") {
			return nil, false
		}

		units = append(units, unit)
	}

	slices.Sort(units)

	return units, true
}

// unitsAreCurrent reports whether systemd says of each unit that it knows the present files. It reads those units for that
// which it does not have in memory.
func unitsAreCurrent(ctx context.Context, run Runner, units []string) bool {
	args := append([]string{"show", "--property=LoadState,NeedDaemonReload"}, units...)
	out, err := run.Run(ctx, "systemctl", args...)

	return err == nil &&
		strings.Count(out, "LoadState=loaded") == len(units) &&
		strings.Count(out, "NeedDaemonReload=no") == len(units)
}
