// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/moto"
)

// latency is the duration of each call in the table.
const latency = 50 * time.Millisecond

// The numbers of worker groups in addition to the three control-plane machines and the bastion.
const (
	fewGroups  = 3
	manyGroups = 50
)

// command is what is measured of each tool.
type command string

// The commands, in the order in which they run.
const (
	createCommand command = "create"
	renderCommand command = "Terraform"
	applyCommand  command = "first apply"
	planCommand   command = "plan without changes"
	deleteCommand command = "delete"
)

func allCommands() []command {
	return []command{createCommand, renderCommand, applyCommand, planCommand, deleteCommand}
}

// figure is the result of one command. For rendering, seconds are processor time.
type figure struct {
	calls, s3 int
	seconds   float64
	// before is the time until the call that creates the first resource, in seconds.
	before float64
}

// figures are the results of a tool by command; a command that failed has none.
type figures map[command]figure

// goal is the upper limit of Slipway's figure; zero: none.
type goal struct {
	calls   int
	seconds float64
}

// goals returns the goals by the number of worker groups. The number of calls does not depend on the
// machine, so that too many calls are a failure. Seconds are only printed.
func goals(groups int) map[command]goal {
	if groups == fewGroups {
		return map[command]goal{
			createCommand: {40, 2},
			applyCommand:  {170, 0},
			planCommand:   {40, 0},
			deleteCommand: {120, 4},
		}
	}
	return map[command]goal{
		createCommand: {0, 4},
		planCommand:   {40, 0},
		deleteCommand: {0, 6},
	}
}

// tool is a program under comparison.
type tool interface {
	// prepare writes the input of a cluster.
	prepare(t *testing.T, name string, groups int)
	// run runs a command on the cluster and returns the result of the process.
	run(t *testing.T, c command, name string) processResult
}

// TestTable measures the table of docs/benchmarks.md: the same highly available private cluster with a bastion and
// an SSH key, by Slipway and, if KOPS names a binary, by kops. A failure of one tool does not end the table of the
// other.
func TestTable(t *testing.T) {
	if os.Getenv("SLIPWAY_BENCH") == "" {
		t.Skip("SKIPPED: a benchmark: make bench")
	}
	for _, emulator := range []string{"moto", "region"} {
		for _, groups := range []int{fewGroups, manyGroups} {
			t.Run(fmt.Sprintf("%s/%d", emulator, groups), func(t *testing.T) {
				measured := map[string]figures{}
				t.Run("slipway", func(t *testing.T) {
					measured["slipway"] = figures{}
					p, image, credentials := startEmulator(t, emulator)
					x := newSlipwayTool(t, p, image, credentials)
					if emulator == "moto" {
						deleteBucketPolicies(t, p.url)
					}
					measureTool(t, p, x, groups, measured["slipway"])
					checkGoals(t, groups, measured["slipway"])
				})
				if path := os.Getenv("KOPS"); path != "" && emulator == "moto" {
					t.Run("kops", func(t *testing.T) {
						measured["kops"] = figures{}
						p, image, credentials := startEmulator(t, emulator)
						measureTool(t, p, newKopsTool(t, p, path, image, credentials), groups, measured["kops"])
					})
				}
				if err := printTable(os.Stdout, emulator, groups, measured); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// startEmulator returns a proxy to a new emulator, an image in it, and credentials for it.
func startEmulator(t *testing.T, emulator string) (p *proxy, image string, credentials []string) {
	t.Helper()
	if emulator == "moto" {
		url := *moto.Start(t).BaseEndpoint
		return newProxy(t, url), moto.FindImage(t, testConfig(url)),
			[]string{"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test"}
	}
	r := regiontest.Start(t)
	return newProxy(t, r.URL), "ssm:" + regiontest.ImageParameter,
		[]string{"AWS_ACCESS_KEY_ID=" + regiontest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + regiontest.SecretKey}
}

// measureTool runs all commands on one cluster, and adds each figure to into.
func measureTool(t *testing.T, p *proxy, x tool, groups int, into figures) {
	t.Helper()
	name := "demo"
	x.prepare(t, name, groups)
	for _, c := range allCommands() {
		p.reset(latency)
		r := x.run(t, c, name)
		all, s3 := p.callCounts()
		f := figure{calls: all, s3: s3, seconds: r.wall.Seconds()}
		if c == renderCommand {
			f.seconds = r.cpu.Seconds()
		}
		if c == applyCommand {
			f.before = p.firstCreateAfter(r.start).Seconds()
		}
		into[c] = f
		if os.Getenv("SLIPWAY_BENCH") == "calls" {
			t.Logf("%s: %s", c, strings.Join(p.callNames(), ", "))
		}
	}
}

// checkGoals reports too many calls.
func checkGoals(t *testing.T, groups int, measured figures) {
	t.Helper()
	for c, g := range goals(groups) {
		if got := measured[c].calls; g.calls > 0 && got > g.calls {
			t.Errorf("%s with %d groups: %d calls, the goal is %d", c, groups, got, g.calls)
		}
	}
}

// printTable prints the figures of all tools side by side.
func printTable(to io.Writer, emulator string, groups int, measured map[string]figures) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%d worker groups, against %s\tslipway: calls\tto S3\tseconds\tgoal: calls\tseconds\tkops: calls\tto S3\tseconds\n", groups, emulator)
	limits := goals(groups)
	for _, c := range allCommands() {
		name := string(c)
		if c == renderCommand {
			name += ", processor time"
		}
		own, other := formatFigure(measured["slipway"], c), formatFigure(measured["kops"], c)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, own, formatLimit(limits[c].calls), formatSeconds(limits[c].seconds), other)
	}
	fmt.Fprintf(w, "  before the first resource\t\t\t%s\t\t\t\t\t%s\n",
		formatSeconds(measured["slipway"][applyCommand].before), formatSeconds(measured["kops"][applyCommand].before))
	return w.Flush()
}

// formatFigure returns the calls, those to S3 and the seconds of a command as three cells.
func formatFigure(all figures, c command) string {
	f, ok := all[c]
	if !ok {
		return "-\t-\t-"
	}
	return fmt.Sprintf("%d\t%d\t%s", f.calls, f.s3, formatSeconds(f.seconds))
}

func formatLimit(calls int) string {
	if calls == 0 {
		return ""
	}
	return strconv.Itoa(calls)
}

func formatSeconds(s float64) string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", s)
}
