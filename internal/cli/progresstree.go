// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// progressTree is the live view of a plan that is being applied: a line with the totals, and below it the
// running steps as a tree of actions and kinds, each with its time and what it waits for.
type progressTree struct {
	// Finished and Total are numbers of steps.
	Finished, Total int
	// Elapsed is the time since the first step began.
	Elapsed time.Duration
	// Running are the last events of the steps that run.
	Running []plan.Event
}

// maxTreeSteps is how many running steps are shown: the longest running ones.
const maxTreeSteps = 12

// lines returns the tree.
func (t progressTree) lines() []string {
	running := slices.Clone(t.Running)
	slices.SortFunc(running, func(a, b plan.Event) int {
		return cmp.Or(cmp.Compare(b.Elapsed, a.Elapsed), strings.Compare(string(a.Step.Addr), string(b.Step.Addr)))
	})
	hidden := max(len(running)-maxTreeSteps, 0)
	running = running[:len(running)-hidden]

	out := []string{fmt.Sprintf(
		"%d of %d done, %d in progress [%s]",
		t.Finished,
		t.Total,
		len(t.Running),
		formatElapsed(t.Elapsed),
	)}

	branches := groupByKind(running)
	for i, b := range branches {
		out = append(out, b.lines(i == len(branches)-1 && hidden == 0)...)
	}

	if hidden > 0 {
		out = append(out, fmt.Sprintf("└─ and %d more", hidden))
	}

	return out
}

// progressBranch are the running steps with one action on one kind of resource.
type progressBranch struct {
	action plan.Action
	kind   string
	steps  []plan.Event
}

// groupByKind returns the branches, the one with the longest running step first.
func groupByKind(running []plan.Event) []progressBranch {
	var out []progressBranch
	for _, e := range running {
		kind, _, _ := strings.Cut(string(e.Step.Addr), "/")
		i := slices.IndexFunc(out, func(b progressBranch) bool {
			return b.kind == kind && b.action == e.Step.Action
		})
		if i < 0 {
			out = append(out, progressBranch{action: e.Step.Action, kind: kind})
			i = len(out) - 1
		}

		out[i].steps = append(out[i].steps, e)
	}

	return out
}

// lines returns a branch: one line for a single step, else a line for the kind and one for each step.
func (b progressBranch) lines(last bool) []string {
	const fork, end, bar, gap = "├─ ", "└─ ", "│  ", "   "
	first, below := fork, bar
	if last {
		first = end
		below = gap
	}

	title := first + actionInProgress(b.action) + " "
	if len(b.steps) == 1 {
		return []string{title + string(b.steps[0].Step.Addr) + describeStep(b.steps[0])}
	}

	out := []string{fmt.Sprintf("%s%d × %s", title, len(b.steps), b.kind)}
	for i, e := range b.steps {
		mark := fork
		if i == len(b.steps)-1 {
			mark = end
		}

		_, name, _ := strings.Cut(string(e.Step.Addr), "/")
		out = append(out, below+mark+name+describeStep(e))
	}

	return out
}

// describeStep returns the time of a step and what it waits for.
func describeStep(e plan.Event) string {
	return " [" + formatElapsed(e.Elapsed) + "]" + detailSuffix(e)
}

// formatElapsed returns a time in whole seconds: a live view needs no fractions.
func formatElapsed(d time.Duration) string { return d.Truncate(time.Second).String() }
