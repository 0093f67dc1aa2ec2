// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// progressPrinter prints the progress of a plan: a line for each finished step and, on a terminal, a last
// line with the running ones. Without a terminal a waiting step gets a line at each heartbeat.
type progressPrinter struct {
	out       io.Writer
	live      bool
	quiet     bool
	colorText func(color, text string) string
	heartbeat time.Duration
	running   map[graph.Addr]plan.Event
	lineShown bool // the terminal shows a line with running steps
}

// The heartbeats: a person wants to see progress, a log wants few lines.
const (
	liveHeartbeat = time.Second
	logHeartbeat  = 10 * time.Second
)

// startProgress implements [cluster.Hooks].
func (a *app) startProgress() cluster.Progress {
	p := a.newProgressPrinter()

	return cluster.Progress{OnEvent: p.handleEvent, End: p.clearLine, Interval: p.heartbeat}
}

func (a *app) newProgressPrinter() *progressPrinter {
	p := &progressPrinter{
		out:       lockedWriter{lock: &a.messageLock, w: a.Stderr},
		live:      isTerminal(a.Stderr) && a.Getenv("TERM") != "dumb",
		quiet:     a.quiet,
		heartbeat: logHeartbeat,
		running:   map[graph.Addr]plan.Event{},
		colorText: func(color, text string) string { return a.colorText(a.Stderr, color, text) },
	}
	if p.live {
		p.heartbeat = liveHeartbeat
	}

	return p
}

// handleEvent prints an event. It is called by one goroutine at a time.
func (p *progressPrinter) handleEvent(e plan.Event) {
	if p.quiet && e.State != plan.Failed {
		return
	}

	switch e.State {
	case plan.Started:
		p.running[e.Step.Addr] = e
	case plan.Waiting, plan.Retrying:
		p.running[e.Step.Addr] = e
		if !p.live && e.State == plan.Waiting {
			p.printLine(
				fmt.Sprintf(
					"        %3s %s: still %s [%s]%s",
					e.Step.Action.Sign(),
					e.Step.Addr,
					actionInProgress(e.Step.Action),
					roundDuration(e.Elapsed),
					detailSuffix(e),
				),
			)
		}

	case plan.Done:
		delete(p.running, e.Step.Addr)
		p.printDone(e)
	case plan.Failed:
		delete(p.running, e.Step.Addr)
		p.printFailed(e)
	case plan.Skipped:
		p.printLine(
			fmt.Sprintf(
				"%7s %3s %s: %s",
				stepCount(e),
				e.Step.Action.Sign(),
				e.Step.Addr,
				p.colorText(yellow, "skipped: a step that it depends on failed"),
			),
		)
	}

	p.repaintLine(e)
}

// printDone prints a step that succeeded.
func (p *progressPrinter) printDone(e plan.Event) {
	p.printLine(
		fmt.Sprintf(
			"%7s %3s %s: %s [%s]",
			stepCount(e),
			p.colorText(green, e.Step.Action.Sign()),
			e.Step.Addr,
			actionDone(e.Step.Action),
			roundDuration(e.Elapsed),
		),
	)
}

// printFailed prints a step that failed, with its error.
func (p *progressPrinter) printFailed(e plan.Event) {
	p.printLine(
		fmt.Sprintf(
			"%7s %3s %s: %s [%s]%s",
			stepCount(e),
			p.colorText(red, e.Step.Action.Sign()),
			e.Step.Addr,
			p.colorText(red, "failed"),
			roundDuration(e.Elapsed),
			detailSuffix(e),
		),
	)
}

// printLine prints a line that remains on the terminal.
func (p *progressPrinter) printLine(s string) {
	p.clearLine()
	fmt.Fprintln(p.out, s)
}

func (p *progressPrinter) clearLine() {
	if p.lineShown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.lineShown = false
	}
}

// repaintLine shows the longest running step, and how many others run, in the last line of a terminal.
func (p *progressPrinter) repaintLine(e plan.Event) {
	if !p.live || p.quiet || len(p.running) == 0 {
		p.clearLine()
		return
	}

	list := slices.SortedFunc(maps.Values(p.running), func(a, b plan.Event) int {
		if a.Elapsed != b.Elapsed {
			return int(b.Elapsed - a.Elapsed)
		}

		return strings.Compare(string(a.Step.Addr), string(b.Step.Addr))
	})

	first := list[0]
	s := fmt.Sprintf(
		"%7s … %s [%s]%s",
		stepCount(e),
		first.Step.Addr,
		roundDuration(first.Elapsed),
		detailSuffix(first),
	)

	const width = 100
	if r := []rune(s); len(r) > width {
		s = string(r[:width-1]) + "…"
	}

	if len(list) > 1 {
		s += fmt.Sprintf(" and %d more", len(list)-1)
	}

	p.clearLine()
	fmt.Fprint(p.out, s)
	p.lineShown = true
}

func stepCount(e plan.Event) string { return fmt.Sprintf("%d/%d", e.Index, e.Total) }

func roundDuration(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

func detailSuffix(e plan.Event) string {
	if e.Detail == "" {
		return ""
	}

	return ": " + e.Detail
}

func actionInProgress(a plan.Action) string {
	switch a {
	case plan.Create:
		return "creating"
	case plan.Update:
		return "changing"
	case plan.Replace:
		return "replacing"
	case plan.Delete:
		return "deleting"
	}

	return "in progress"
}

func actionDone(a plan.Action) string {
	switch a {
	case plan.Create:
		return "created"
	case plan.Update:
		return "changed"
	case plan.Replace:
		return "replaced"
	case plan.Delete:
		return "deleted"
	}

	return "done"
}
