// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// liveTable returns the table of machines that a terminal shows below the messages.
func (a roller) liveTable() liveTable {
	s, ok := a.Stderr.(*screen)
	if !ok || a.quiet || a.format == formatJSON || !a.showsLiveProgress() {
		return liveTable{}
	}

	return liveTable{screen: s}
}

// The table shows the machines in progress and the reasons to wait, at most so many of each.
const (
	maxLiveMachines = 15
	maxLiveReasons  = 3
)

// liveTable shows the machines in progress on a terminal. The zero table shows nothing.
type liveTable struct{ screen *screen }

// clear removes the table.
func (t liveTable) clear() {
	if t.screen != nil {
		t.screen.setLive(nil)
	}
}

// show draws the table.
func (t liveTable) show(p rollingupdate.Progress) {
	if t.screen != nil {
		t.screen.setLive(liveLines(p))
	}
}

// liveLines returns the lines of the table: a summary, the machines that the update works on, each with its step, the time
// since the step began and what it waits for, and why no further machine is replaced now.
func liveLines(p rollingupdate.Progress) []string {
	lines := []string{fmt.Sprintf(
		"replaced %d of %d machines in %s, about %s left",
		p.Replaced,
		p.Total,
		p.Elapsed.Round(time.Second),
		p.Remaining.Round(time.Second),
	)}
	rows := [][]string{}
	pending := 0
	inProgress := 0
	for _, m := range p.Machines {
		switch m.Step {
		case rollout.StepPending:
			pending++
			continue
		case rollout.StepUpdated:
			continue
		default:
			inProgress++
		}

		if len(rows) < maxLiveMachines {
			rows = append(rows, liveRow(p.At, m))
		}
	}

	lines = append(lines, alignRows(rows, columnWidths(rows))...)
	if left := inProgress - len(rows); left > 0 {
		lines = append(lines, "  "+strconv.Itoa(left)+" more are in progress")
	}

	if pending > 0 {
		lines = append(lines, "  "+strconv.Itoa(pending)+" more are pending")
	}

	for _, reason := range p.Waiting[:min(len(p.Waiting), maxLiveReasons)] {
		lines = append(lines, "  waiting: "+reason)
	}

	return lines
}

// liveRow returns the row of one machine.
func liveRow(now time.Time, m rollingupdate.MachineProgress) []string {
	elapsed := "-"
	if !m.Since.IsZero() {
		elapsed = now.Sub(m.Since).Round(time.Second).String()
	}

	return []string{
		"  " + m.Machine.ID,
		formatGroup(m.Machine.Group, m.Machine.Slot),
		m.Machine.Zone,
		string(m.Step),
		elapsed,
		m.WaitingFor,
	}
}
