// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// progress shows how a plan goes on: one line for each thing that is done and, on a terminal, a last line with what
// runs. Elsewhere what still waits gets a line of its own now and then.
type progress struct {
	out     io.Writer
	live    bool
	quiet   bool
	paint   func(color, text string) string
	beat    time.Duration
	running map[graph.Addr]plan.Event
	shown   bool // a live line stands on the terminal
}

// How often what runs is looked at: a person wants to see that it lives, a log wants few lines.
const (
	liveBeat = time.Second
	logBeat  = 10 * time.Second
)

func (a *app) newProgress() *progress {
	p := &progress{
		out: a.Stderr, live: isTerminal(a.Stderr) && a.Getenv("TERM") != "dumb", quiet: a.quiet, beat: logBeat, running: map[graph.Addr]plan.Event{},
		paint: func(color, text string) string { return a.paint(a.Stderr, color, text) },
	}
	if p.live {
		p.beat = liveBeat
	}
	return p
}

// event implements the Events of [plan.Walk]: it is called by one goroutine at a time.
func (p *progress) event(e plan.Event) {
	if p.quiet && e.State != plan.Failed {
		return
	}
	switch e.State {
	case plan.Started:
		p.running[e.Step.Addr] = e
	case plan.Waiting, plan.Retrying:
		p.running[e.Step.Addr] = e
		if !p.live && e.State == plan.Waiting {
			p.line(fmt.Sprintf("        %3s %s: still %s [%s]%s", e.Step.Action.Sign(), e.Step.Addr, doing(e.Step.Action), round(e.Elapsed), detail(e)))
		}
	case plan.Done:
		delete(p.running, e.Step.Addr)
		p.line(fmt.Sprintf("%7s %3s %s: %s [%s]", count(e), p.paint(green, e.Step.Action.Sign()), e.Step.Addr, done(e.Step.Action), round(e.Elapsed)))
	case plan.Failed:
		delete(p.running, e.Step.Addr)
		p.line(fmt.Sprintf("%7s %3s %s: %s [%s]%s", count(e), p.paint(red, e.Step.Action.Sign()), e.Step.Addr, p.paint(red, "failed"), round(e.Elapsed), detail(e)))
	case plan.Skipped:
		p.line(fmt.Sprintf("%7s %3s %s: %s", count(e), e.Step.Action.Sign(), e.Step.Addr, p.paint(yellow, "not tried, since something it needs failed")))
	}
	p.repaint(e)
}

// line prints a line that stays.
func (p *progress) line(s string) {
	p.clear()
	fmt.Fprintln(p.out, s)
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

// repaint shows what runs, the longest first, in one line of a terminal.
func (p *progress) repaint(e plan.Event) {
	if !p.live || p.quiet || len(p.running) == 0 {
		p.clear()
		return
	}
	list := slices.SortedFunc(maps.Values(p.running), func(a, b plan.Event) int {
		if a.Elapsed != b.Elapsed {
			return int(b.Elapsed - a.Elapsed)
		}
		return strings.Compare(string(a.Step.Addr), string(b.Step.Addr))
	})
	first := list[0]
	s := fmt.Sprintf("%7s … %s [%s]%s", count(e), first.Step.Addr, round(first.Elapsed), detail(first))
	const width = 100
	if r := []rune(s); len(r) > width {
		s = string(r[:width-1]) + "…"
	}
	if len(list) > 1 {
		s += fmt.Sprintf(" and %d more", len(list)-1)
	}
	p.clear()
	fmt.Fprint(p.out, s)
	p.shown = true
}

func (p *progress) end() { p.clear() }

func count(e plan.Event) string { return fmt.Sprintf("%d/%d", e.Index, e.Total) }

func round(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

func detail(e plan.Event) string {
	if e.Detail == "" {
		return ""
	}
	return ": " + e.Detail
}

func doing(a plan.Action) string {
	switch a {
	case plan.Create:
		return "being made"
	case plan.Update:
		return "being changed"
	case plan.Replace:
		return "being replaced"
	case plan.Delete:
		return "being destroyed"
	}
	return "going on"
}

func done(a plan.Action) string {
	switch a {
	case plan.Create:
		return "made"
	case plan.Update:
		return "changed"
	case plan.Replace:
		return "replaced"
	case plan.Delete:
		return "destroyed"
	}
	return "done"
}
