// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// virtualTerminal shows what a terminal shows: it wraps long lines, scrolls, and obeys the few control
// sequences that a screen writes. Any other sequence fails the test.
type virtualTerminal struct {
	t             *testing.T
	columns, rows int
	lines         [][]rune // all lines, also those that scrolled out
	row, column   int
}

func newTerminal(t *testing.T, columns, rows int) *virtualTerminal {
	t.Helper()
	return &virtualTerminal{t: t, columns: columns, rows: rows, lines: [][]rune{nil}}
}

func (v *virtualTerminal) Write(p []byte) (int, error) {
	text := []rune(string(p))
	for i := 0; i < len(text); i++ {
		switch r := text[i]; r {
		case '\n':
			v.newline()
		case '\r':
			v.column = 0
		case '\x1b':
			end := i + 2
			for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == ';') {
				end++
			}
			if text[i+1] != '[' || end >= len(text) {
				v.t.Fatalf("an unknown sequence in %q", p)
			}
			v.control(string(text[i+2:end]), text[end])
			i = end
		default:
			v.put(r)
		}
	}
	return len(p), nil
}

func (v *virtualTerminal) newline() {
	v.row++
	v.column = 0
	if v.row == len(v.lines) {
		v.lines = append(v.lines, nil)
	}
}

func (v *virtualTerminal) put(r rune) {
	if v.column == v.columns {
		v.newline()
	}
	line := v.lines[v.row]
	for len(line) <= v.column {
		line = append(line, ' ')
	}
	line[v.column] = r
	v.lines[v.row] = line
	v.column++
}

func (v *virtualTerminal) control(number string, command rune) {
	n, _ := strconv.Atoi(number)
	switch command {
	case 'A':
		top := max(len(v.lines)-v.rows, 0)
		v.row = max(v.row-max(n, 1), top) // a terminal cannot go above its first row
	case 'J':
		v.lines = v.lines[:v.row+1]
		v.lines[v.row] = v.lines[v.row][:min(v.column, len(v.lines[v.row]))]
	case 'm':
	default:
		v.t.Fatalf("an unknown control sequence %q %q", number, command)
	}
}

// resize makes the terminal narrower, and wraps its lines as terminals do.
func (v *virtualTerminal) resize(columns int) {
	var out [][]rune
	for _, line := range v.lines {
		for len(line) > columns {
			out = append(out, line[:columns])
			line = line[columns:]
		}
		out = append(out, line)
	}
	v.lines, v.columns, v.row, v.column = out, columns, len(out)-1, 0
}

func (v *virtualTerminal) String() string {
	var out []string
	for _, line := range v.lines {
		out = append(out, strings.TrimRight(string(line), " "))
	}
	return strings.Join(out, "\n")
}

// liveApp returns an app whose messages go to a terminal of this size.
func liveApp(t *testing.T, columns, rows int) (*app, *virtualTerminal, *time.Time) {
	t.Helper()
	term := newTerminal(t, columns, rows)
	s := &screen{out: term, size: func() (int, int) { return term.columns, term.rows }}
	now := time.Unix(0, 0)
	a := &app{Env: Env{Stderr: s, Now: func() time.Time { return now }, Getenv: func(string) string { return "" }}}
	return a, term, &now
}

// livePrinter returns the printer of a terminal that shows changes.
func livePrinter(t *testing.T, a *app) *progressPrinter {
	t.Helper()
	p := a.newProgressPrinter()
	s, ok := a.Stderr.(*screen)
	if !ok {
		t.Fatal("messages do not go to a screen")
	}
	p.show = s.setLive
	return p
}

func event(state plan.State, addr string, elapsed time.Duration, detail string) plan.Event {
	return plan.Event{
		Step: plan.Step{Addr: graph.Addr(addr), Action: plan.Create}, State: state,
		Elapsed: elapsed, Detail: detail, Index: 2, Total: 40,
	}
}

func TestLiveTree(t *testing.T) {
	a, term, now := liveApp(t, 80, 24)
	p := livePrinter(t, a)
	check := func(want string) {
		t.Helper()
		if diff := cmp.Diff(want, term.String()); diff != "" {
			t.Error(diff)
		}
	}
	send := func(e plan.Event) {
		*now = now.Add(time.Second)
		p.handleEvent(e)
	}

	send(event(plan.Started, "vpc/main", 0, ""))
	send(event(plan.Started, "natgateway/a", 0, ""))
	send(event(plan.Waiting, "natgateway/a", 70*time.Second, "state is pending"))
	send(event(plan.Started, "natgateway/b", 0, ""))
	check(`2 of 40 done, 3 in progress [3s]
├─ creating 2 × natgateway
│  ├─ a [1m10s]: state is pending
│  └─ b [0s]
└─ creating vpc/main [0s]
`)

	// A finished step, a message and a finding are written above the tree.
	send(event(plan.Done, "vpc/main", 1200*time.Millisecond, ""))
	a.printMessage("the lock was renewed")
	a.printError(errors.New("one call failed"))
	check(`   2/40   + vpc/main: created [1.2s]
the lock was renewed
error: one call failed
2 of 40 done, 2 in progress [4s]
└─ creating 2 × natgateway
   ├─ a [1m10s]: state is pending
   └─ b [0s]
`)

	// A question removes the tree until it is answered.
	fmt.Fprint(a.Stderr, "Go on? ")
	send(event(plan.Waiting, "natgateway/b", 5*time.Second, ""))
	check("   2/40   + vpc/main: created [1.2s]\nthe lock was renewed\nerror: one call failed\nGo on?")
	fmt.Fprint(term, "yes\n") // the terminal's echo
	a.endQuestion()
	send(event(plan.Waiting, "natgateway/b", 6*time.Second, ""))
	check(`   2/40   + vpc/main: created [1.2s]
the lock was renewed
error: one call failed
Go on? yes
2 of 40 done, 2 in progress [6s]
└─ creating 2 × natgateway
   ├─ a [1m10s]: state is pending
   └─ b [6s]
`)

	// The end leaves nothing of the tree.
	send(event(plan.Failed, "natgateway/a", 80*time.Second, "NatGatewayLimitExceeded"))
	send(event(plan.Done, "natgateway/b", 80*time.Second, ""))
	p.clearTree()
	check(`   2/40   + vpc/main: created [1.2s]
the lock was renewed
error: one call failed
Go on? yes
   2/40   + natgateway/a: failed [1m20s]: NatGatewayLimitExceeded
   2/40   + natgateway/b: created [1m20s]
`)
}

// TestLiveTreeFitsTheTerminal: long lines are cut, many lines are left out, and after a resize nothing remains of
// the former tree.
func TestLiveTreeFitsTheTerminal(t *testing.T) {
	a, term, now := liveApp(t, 60, 8)
	p := livePrinter(t, a)
	for i := range 30 {
		*now = now.Add(time.Second)
		addr := fmt.Sprintf("kind%d/%s", i, strings.Repeat("x", 50))
		p.handleEvent(event(plan.Started, addr, time.Duration(i)*time.Second, strings.Repeat("wait ", 20)))
	}
	for line := range strings.SplitSeq(term.String(), "\n") {
		if len([]rune(line)) >= 60 {
			t.Errorf("the line is as wide as the terminal: %q", line)
		}
	}
	if n := len(term.lines); n != 8 {
		t.Errorf("the tree has %d rows in a terminal of 8:\n%s", n, term)
	}

	term.rows = 40
	term.resize(25)
	a.printMessage("done")
	p.clearTree()
	if got := term.String(); got != "done\n" {
		t.Errorf("after the resize the terminal shows\n%s", got)
	}
}

// TestLiveTreeHasTheLongestSteps: of many steps, the ones that take longest are shown.
func TestLiveTreeHasTheLongestSteps(t *testing.T) {
	tree := progressTree{Total: 100}
	for i := range 30 {
		tree.Running = append(tree.Running, event(plan.Waiting, fmt.Sprintf("subnet/%02d", i), time.Duration(i)*time.Second, ""))
	}
	got := strings.Join(tree.lines(), "\n")
	if !strings.Contains(got, "├─ creating 12 × subnet\n│  ├─ 29 [29s]") || !strings.HasSuffix(got, "└─ and 18 more") {
		t.Error(got)
	}
}

// TestPlainProgress: without a terminal that shows changes there are lines only.
func TestPlainProgress(t *testing.T) {
	var out bytes.Buffer
	a := &app{Env: Env{Stderr: newScreen(&out), Now: func() time.Time { return time.Unix(0, 0) }, Getenv: func(string) string { return "" }}}
	p := a.newProgressPrinter()
	p.handleEvent(event(plan.Started, "vpc/main", 0, ""))
	p.handleEvent(event(plan.Waiting, "vpc/main", 10*time.Second, "state is pending"))
	p.handleEvent(event(plan.Done, "vpc/main", 11*time.Second, ""))
	p.clearTree()
	want := "          + vpc/main: still creating [10s]: state is pending\n   2/40   + vpc/main: created [11s]\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
