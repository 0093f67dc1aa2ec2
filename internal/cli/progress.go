// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// progressPrinter prints the progress of a plan: a line for each finished step and, on a terminal, a live
// tree of the running ones. Without a terminal a waiting step gets a line at each heartbeat.
type progressPrinter struct {
	out       io.Writer
	show      func(lines []string) // the live area; nil: lines only
	now       func() time.Time
	quiet     bool
	colorText func(color, text string) string
	heartbeat time.Duration
	running   map[graph.Addr]plan.Event
	started   time.Time // zero before the first event
	painted   time.Time // when the tree was drawn
}

// The heartbeats: a person wants to see progress, a log wants few lines.
const (
	liveHeartbeat = time.Second
	logHeartbeat  = 10 * time.Second
)

// paintInterval is the least time between two drawings of the tree.
const paintInterval = 100 * time.Millisecond

// startProgress implements [cluster.Hooks].
func (a *app) startProgress() cluster.Progress {
	p := a.newProgressPrinter()

	return cluster.Progress{OnEvent: p.handleEvent, End: p.clearTree, Interval: p.heartbeat}
}

func (a *app) newProgressPrinter() *progressPrinter {
	p := &progressPrinter{
		out:       a.Stderr,
		now:       a.Now,
		quiet:     a.quiet,
		heartbeat: logHeartbeat,
		running:   map[graph.Addr]plan.Event{},
		colorText: func(color, text string) string { return a.colorText(a.Stderr, color, text) },
	}
	if s, ok := a.Stderr.(*screen); ok && a.showsLiveProgress() {
		p.heartbeat = liveHeartbeat
		p.show = s.setLive
	}

	return p
}

// showsLiveProgress reports whether the terminal can show lines that change. NO_COLOR, TERM=dumb and CI ask
// for plain lines.
func (a *app) showsLiveProgress() bool {
	return isTerminal(a.Stderr) && a.Getenv("TERM") != "dumb" && a.Getenv("TERM") != "" &&
		a.Getenv("NO_COLOR") == "" && a.Getenv("CI") == "" && !a.noColor
}

// handleEvent prints an event. It is called by one goroutine at a time.
func (p *progressPrinter) handleEvent(e plan.Event) {
	// Much of it is written by others: reasons of CloudFormation have the texts with which machines signal their failures.
	e.Detail = plainerror.Printable(e.Detail)
	e.Step.Addr = graph.Addr(plainerror.Printable(string(e.Step.Addr)))
	if p.quiet && e.State != plan.Failed {
		return
	}

	if p.started.IsZero() {
		p.started = p.now()
	}

	switch e.State {
	case plan.Started:
		p.running[e.Step.Addr] = e
	case plan.Waiting, plan.Retrying:
		p.running[e.Step.Addr] = e
		if p.show == nil && e.State == plan.Waiting {
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

	p.paintTree(e)
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
func (p *progressPrinter) printLine(s string) { fmt.Fprintln(p.out, s) }

// clearTree removes the tree from the terminal.
func (p *progressPrinter) clearTree() {
	if p.show != nil {
		p.show(nil)
	}
}

// paintTree draws the tree after e. Events that come in quick succession share a drawing.
func (p *progressPrinter) paintTree(e plan.Event) {
	now := p.now()

	switch {
	case p.show == nil || p.quiet:
		return
	case len(p.running) == 0:
		p.clearTree()
		return
	case e.State != plan.Done && now.Sub(p.painted) < paintInterval:
		return
	}

	p.painted = now
	tree := progressTree{
		Finished: e.Index,
		Total:    e.Total,
		Elapsed:  now.Sub(p.started),
		Running:  slices.Collect(maps.Values(p.running)),
	}
	p.show(tree.lines())
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
