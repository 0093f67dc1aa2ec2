// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/moto"
)

// figure is one row of the table.
type figure struct {
	name     string
	measured float64
	goal     float64
	unit     string // calls, s, ...
	kops     float64
	shipped  string // kops' figure where it is not what the goal is about
	strict   bool   // it does not depend on the machine: above the goal is a failure
}

func (f figure) goalMark() string {
	switch {
	case f.goal == 0:
		return ""
	case f.measured <= f.goal:
		return "ok"
	default:
		return "ABOVE THE GOAL"
	}
}

func (f figure) formatValue(v float64) string {
	switch {
	case v == 0:
		return "-"
	case f.unit == "calls":
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g %s", v, f.unit)
}

// latency is the duration of a call in the rows that mention it.
const latency = 50 * time.Millisecond

// kopsFigures are the figures of kops 1.37.0-alpha.1, measured with moto and with the state in S3
// of the same moto.
func kopsFigures() map[string]float64 {
	return map[string]float64{
		"plan": 355, "plan s3": 96, "plan wall": 7.1, "apply": 582, "apply s3": 125, "apply wall": 8.8, "first": 2.6, "render": 0.5, "render wide": 1.0,
	}
}

// benchmark is one emulator and the figures that are measured with it.
type benchmark struct {
	t        *testing.T
	emulator string
	proxy    *proxy
	program  program
	image    string
	kops     map[string]float64
	figures  []figure
}

func (b *benchmark) addFigure(f figure) { b.figures = append(b.figures, f) }

// TestTable measures all rows of the table in docs/benchmarks.md except the critical path, which
// test/engine measures in a bubble's time. The numbers of calls do not depend on the machine, so
// the test fails if they exceed their goals. Times are only printed.
func TestTable(t *testing.T) {
	if os.Getenv("SLIPWAY_BENCH") == "" {
		t.Skip("SKIPPED: a benchmark: make bench")
	}
	for _, emulator := range []string{"moto", "region"} {
		t.Run(emulator, func(t *testing.T) {
			b := startBenchmark(t, emulator)
			b.kops = kopsFigures()
			b.runKops(os.Getenv("KOPS"))
			b.measureCluster("demo", sevenGroups, "")
			b.measureCluster("wide", fiftyGroups, " with 50 groups")
			b.printTable(os.Stdout)
			for _, f := range b.figures {
				if f.strict && f.goalMark() != "ok" {
					t.Errorf("%s: %s, the goal is %s", f.name, f.formatValue(f.measured), f.formatValue(f.goal))
				}
			}
		})
	}
}

// The numbers of worker groups in addition to the three control-plane machines. The last group
// represents the bastion.
const (
	sevenGroups = 4
	fiftyGroups = 49
)

func startBenchmark(t *testing.T, emulator string) *benchmark {
	t.Helper()
	b := &benchmark{t: t, emulator: emulator}
	if emulator == "moto" {
		url := *moto.Start(t).BaseEndpoint
		b.proxy, b.image = newProxy(t, url), moto.FindImage(t, testConfig(url))
		b.program = newSlipway(t, b.proxy, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	} else {
		r := regiontest.Start(t)
		b.proxy, b.image = newProxy(t, r.URL), "ssm:"+regiontest.ImageParameter
		b.program = newSlipway(t, b.proxy, "AWS_ACCESS_KEY_ID="+regiontest.AccessKey, "AWS_SECRET_ACCESS_KEY="+regiontest.SecretKey)
	}
	b.program.mustRun(t, []int{0}, "state", "init", "--yes")
	return b
}

// measureCluster creates a cluster and measures its figures.
func (b *benchmark) measureCluster(name string, groups int, suffix string) {
	t, k := b.t, b.kops
	file := b.program.dir + "/" + name + ".yaml"
	if err := os.WriteFile(file, []byte(clusterManifest(name, b.image, groups)), 0o600); err != nil {
		t.Fatal(err)
	}
	b.program.mustRun(t, []int{0}, "create", "-f", file, "--yes")
	if suffix != "" {
		b.measureRender(name, figure{name: "processor time of rendering Terraform" + suffix + ", cold", goal: k["render wide"] / 10, kops: k["render wide"], shipped: "12.7 s as shipped"})
	} else {
		b.measureRender(name, figure{name: "processor time of rendering Terraform, cold", goal: k["render"] / 10, kops: k["render"], shipped: "2.4 s as shipped"})
	}

	b.proxy.reset(latency)
	r := b.applyCluster(name)
	all, s3 := b.proxy.callCounts()
	if suffix == "" {
		b.addFigure(figure{name: "calls of the first apply", measured: float64(all), goal: k["apply"] / 3, unit: "calls", kops: k["apply"], strict: true})
		b.addFigure(figure{name: "  of these to S3, for state and machines", measured: float64(s3), unit: "calls", kops: k["apply s3"]})
		b.addFigure(figure{name: "seconds of it, 50 ms a call", measured: r.wall.Seconds(), goal: k["apply wall"] / 3, unit: "s", kops: k["apply wall"]})
		b.addFigure(figure{name: "  before the first resource", measured: b.proxy.firstCreateAfter(r.start).Seconds(), goal: k["first"] / 3, unit: "s", kops: k["first"]})
	} else {
		b.addFigure(figure{name: "calls of the first apply" + suffix, measured: float64(all), unit: "calls"})
		b.addFigure(figure{name: "seconds of it, 50 ms a call", measured: r.wall.Seconds(), unit: "s"})
	}

	b.proxy.reset(latency)
	r = b.program.mustRun(t, []int{0, 2}, "plan", name) // moto's defects show as changes; they are only read
	all, s3 = b.proxy.callCounts()
	b.addFigure(figure{name: "calls of a plan without changes" + suffix, measured: float64(all), goal: 40, unit: "calls", kops: k["plan"], strict: true})
	b.addFigure(figure{name: "  of these to S3, for the state", measured: float64(s3), unit: "calls", kops: k["plan s3"]})
	b.addFigure(figure{name: "seconds of it, 50 ms a call", measured: r.wall.Seconds(), goal: k["plan wall"] / 3, unit: "s", kops: k["plan wall"]})
	b.proxy.reset(0)
	b.program.mustRun(t, []int{0}, "delete", "cluster", name, "--yes")
}

// applyCluster applies the cluster. moto has a race, after which it responds with an HTML page.
// Then applyCluster runs apply again, as an operator would, and adds both durations.
func (b *benchmark) applyCluster(name string) processResult {
	b.t.Helper()
	r := b.program.runProcess(b.t, "apply", name, "--yes")
	if r.code != 0 && b.emulator == "moto" && strings.Contains(r.errs, "error while deserializing xml error response") {
		b.t.Logf("moto failed, apply is run again: %s", clipTail(r.errs))
		again := b.program.mustRun(b.t, []int{0}, "apply", name, "--yes")
		again.start, again.wall = r.start, r.wall+again.wall
		return again
	}
	if r.code != 0 {
		b.t.Fatalf("slipway apply %s: exit status %d\n%s", name, r.code, clipTail(r.errs))
	}
	return r
}

// measureRender measures the shortest of several runs, since other load can only add time.
func (b *benchmark) measureRender(name string, f figure) {
	const runs = 7
	var took []time.Duration
	b.proxy.reset(0)
	for range runs {
		took = append(took, b.program.mustRun(b.t, []int{0}, "render", "terraform", name).cpu)
	}
	f.measured, f.unit = slices.Min(took).Seconds(), "s"
	b.addFigure(f)
}

func (b *benchmark) printTable(to *os.File) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nagainst %s\tslipway\tgoal\t\tkops\n", b.emulator)
	for _, f := range b.figures {
		kops := f.formatValue(f.kops)
		if f.shipped != "" {
			kops += " (" + f.shipped + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.name, f.formatValue(f.measured), f.formatValue(f.goal), f.goalMark(), kops)
	}
	if err := w.Flush(); err != nil {
		b.t.Error(err)
	}
}

// runKops replaces the figures of kops by those of the binary at path on this machine. Without a
// path, kopsFigures apply.
func (b *benchmark) runKops(path string) {
	if path == "" || b.emulator != "moto" {
		return
	}
	t := b.t
	hashes := hashServer(t)
	k := program{path: path, dir: t.TempDir(), env: append(b.proxy.env(),
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "S3_ACCESS_KEY_ID=test", "S3_SECRET_ACCESS_KEY=test", "S3_REGION=us-east-1",
		"KOPS_STATE_STORE=s3://kops-bench", "KOPS_FEATURE_FLAGS=-ImageDigest", "KOPS_BASE_URL="+hashes, "KOPS_RUN_TOO_NEW_VERSION=1")}
	makeBucket(t, b.proxy.url, "kops-bench")
	name := "demo.k8s.local"
	k.mustRun(t, []int{0}, "create", "cluster", name, "--zones", "us-east-1a,us-east-1b,us-east-1c", "--control-plane-count", "3", "--node-count", "3",
		"--topology", "private", "--bastion", "--networking", "calico", "--dns", "none", "--image", b.image, "--ssh-public-key", sshKey(t))
	first := k.mustRun(t, []int{0}, "update", "cluster", name, "--target", "terraform", "--out", k.dir+"/tf")
	for range 3 {
		if again := k.mustRun(t, []int{0}, "update", "cluster", name, "--target", "terraform", "--out", k.dir+"/tf"); again.cpu < first.cpu {
			first = again
		}
	}
	b.kops["render"] = first.cpu.Seconds()
	b.proxy.reset(latency)
	r := k.mustRun(t, []int{0}, "update", "cluster", name, "--yes", "--admin=false", "--create-kube-config=false")
	all, s3 := b.proxy.callCounts()
	b.kops["apply"], b.kops["apply s3"], b.kops["apply wall"] = float64(all), float64(s3), r.wall.Seconds()
	b.kops["first"] = b.proxy.firstCreateAfter(r.start).Seconds()
	b.proxy.reset(latency)
	r = k.mustRun(t, []int{0}, "update", "cluster", name, "--create-kube-config=false")
	all, s3 = b.proxy.callCounts()
	b.kops["plan"], b.kops["plan s3"], b.kops["plan wall"] = float64(all), float64(s3), r.wall.Seconds()
	b.proxy.reset(0)
	k.mustRun(t, []int{0}, "delete", "cluster", name, "--yes")
	fmt.Println("kops:", strings.TrimSpace(k.mustRun(t, []int{0}, "version").out))
}
