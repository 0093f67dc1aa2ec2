// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// hostile is what root on a machine, or who names a pod, would have a terminal do: clear the screen, set the title, write over the
// line before, change colours, and turn the direction of text.
const hostile = "hostile\x1b[2J\x1b[1;1H\x1b]0;title\x07\rgood\u009b31m\u202eend"

// checkHarmless fails if a terminal obeys something in a text, or if the text of others is not in it.
func checkHarmless(t *testing.T, what, text string) {
	t.Helper()
	if !strings.Contains(text, "hostile") {
		t.Errorf("%s: the text is missing in %q", what, text)
	}

	for _, r := range text {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			t.Errorf("%s: %q reaches the terminal: %q", what, r, text)

			return
		}
	}
}

// TestHostileTextInProgress: a machine signals its failure to CloudFormation with text that controls terminals. Seen to fail: the
// lines of 'slipway apply', and the tree of a terminal, had it.
func TestHostileTextInProgress(t *testing.T) {
	for _, state := range []plan.State{plan.Waiting, plan.Done, plan.Failed, plan.Skipped} {
		var out bytes.Buffer
		a := &app{Env: Env{Stderr: &out, Now: time.Now, Getenv: func(string) string { return "" }}}
		a.newProgressPrinter().handleEvent(event(state, "instance/"+hostile, time.Second, hostile))
		checkHarmless(t, "a line of progress", out.String())
	}

	a, term, _ := liveApp(t, 200, 24)
	p := livePrinter(t, a)
	p.handleEvent(event(plan.Waiting, "instance/x", time.Second, hostile+"\nsecond line"))
	checkHarmless(t, "the tree", term.String())
}

// TestHostileTextOfRollingUpdates: the reason to wait names a pod or quotes a machine's report. Seen to fail: the table of a
// terminal had it.
func TestHostileTextOfRollingUpdates(t *testing.T) {
	a, term, _ := liveApp(t, 200, 24)
	s, _ := a.Stderr.(*screen)
	progress := progressOf(machineIn("i-1", rollout.StepDraining, time.Minute, hostile))
	progress.Waiting = []string{hostile}
	liveTable{screen: s}.show(progress)
	roller{app: a, format: formatTable}.printEvent(rollingupdate.Event{Message: "failed: " + hostile})
	checkHarmless(t, "the table of machines", term.String())
}

// TestHostileTextInValidate: what a machine reports about its boot controls no terminal, neither in the report nor in its
// changes.
func TestHostileTextInValidate(t *testing.T) {
	now := time.Now()
	failed := health.Evaluate(health.Facts{
		Now:    now,
		Groups: []health.Group{{Name: "workers", Size: 1}},
		Instances: []health.Instance{{
			ID: "i-1", Group: "workers", State: "running", NodeName: "ip-1",
			Reports: []health.StageReport{{Stage: hostile, State: "failed", Error: hostile, Hint: hostile}},
		}},
	})

	var stdout, stderr bytes.Buffer
	a := healthPrinter{&app{Env: Env{Stdout: &stdout, Stderr: &stderr, Now: time.Now, Getenv: func(string) string { return "" }}}}
	if err := a.printHealth("demo", formatTable, failed); err != nil {
		t.Fatal(err)
	}

	a.printChanges("demo", health.Report{Valid: true}, failed)
	a.printChanges("demo", failed, health.Report{Valid: true})
	checkHarmless(t, "validate", stdout.String()+stderr.String())
}
