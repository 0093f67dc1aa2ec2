// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

var update = flag.Bool("update", false, "rewrite docs/operations/faults.md")

const faultsDoc = "../../../docs/operations/faults.md"

// machineOf returns the facts of machine number n: three of the control plane, then two workers.
func machineOf(n int) health.Instance {
	i := health.Instance{ID: fmt.Sprintf("i-0c4e%d", n+1), Group: "workers", State: "running", NodeName: fmt.Sprintf("ip-10-80-0-%d", n+1)}
	if n < 3 {
		i.Group = "control-plane"
		i.Slot = string(rune('a' + n))
	}
	return i
}

// healthyCluster is a highly available cluster in which everything works.
func healthyCluster() health.Facts {
	f := health.Facts{Now: now, Reports: map[string]health.MachineReport{}}
	for n := range 5 {
		i := machineOf(n)
		f.Instances = append(f.Instances, i)
		f.Nodes = append(f.Nodes, health.Node{Name: i.NodeName, Instance: i.ID, Ready: true, LeaseRenewed: now.Add(-4 * time.Second)})
		r := report.Report{
			Time: now.Add(-2 * time.Second), Machine: i.ID, Node: i.NodeName, Group: i.Group, Slot: i.Slot, NextSeconds: 300,
			Kubelet: report.Service{Unit: "active"}, Containerd: report.Service{Unit: "active"},
			Disks:        []report.Disk{{Path: "/", UsedBytes: 6 << 30, SizeBytes: 20 << 30}},
			Certificates: []report.Certificate{{Name: "kubelet", RenewAt: now.Add(48 * time.Hour), NotAfter: now.Add(104 * time.Hour)}, {Name: "kubernetes-ca", CA: true, NotAfter: now.AddDate(9, 0, 0)}},
		}
		f.Pods = append(f.Pods, health.Pod{Namespace: "kube-system", Name: "kube-proxy-" + i.NodeName, Node: i.NodeName, Running: true})
		if i.Slot != "" {
			f.Groups = append(f.Groups, health.Group{Name: i.Group, Slot: i.Slot, Size: 1})
			r.NextSeconds = 5
			r.Disks = append(r.Disks, report.Disk{Path: "/var/lib/slipway/etcd", UsedBytes: 1 << 30, SizeBytes: 20 << 30})
			r.APIServer = &report.APIServer{Ready: true}
			r.Etcd = &report.Etcd{Quorum: true, MemberID: strconv.Itoa(n + 1), LeaderID: "1", Quota: 8 << 30, DBSize: 60 << 20}
			for peer := range 3 {
				if peer != n {
					r.Etcd.Peers = append(r.Etcd.Peers, report.Peer{Slot: machineOf(peer).Slot})
				}
			}
			f.Targets = append(f.Targets, health.Target{Group: "demo-api", Instance: i.ID, State: "healthy"})
			for _, component := range []string{"kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"} {
				f.Pods = append(f.Pods, health.Pod{Namespace: "kube-system", Name: component + i.NodeName, Node: i.NodeName, Running: true})
			}
		}
		setReport(&f, n, r)
	}
	f.Groups = append(f.Groups, health.Group{Name: "workers", Size: 2})
	f.Pods = append(f.Pods, health.Pod{Namespace: "kube-system", Name: "coredns-7c9f", Node: f.Nodes[3].Name, Running: true})
	return f
}

// setReport publishes r as the report of machine n, with the conditions that follow from it and those that it
// already has of other components.
func setReport(f *health.Facts, n int, r report.Report) {
	var b report.Board
	for _, c := range r.Conditions {
		b.Set(c, now.Add(-8*time.Second))
	}
	for _, c := range report.Evaluate(r) {
		b.Set(c, now.Add(-8*time.Second))
	}
	r.Conditions = b.Conditions()
	f.Reports[f.Instances[n].ID] = health.MachineReport{Report: r, PublishedAt: r.Time}
}

// measured changes what machine n measures.
func measured(f *health.Facts, n int, change func(*report.Report)) {
	r := f.Reports[f.Instances[n].ID].Report
	if r.Etcd != nil { // other copies of the facts share nothing
		member := *r.Etcd
		r.Etcd = &member
	}
	change(&r)
	setReport(f, n, r)
}

// addCondition adds a condition that a task of the agent of machine n sets.
func addCondition(f *health.Facts, n int, c report.Condition) {
	measured(f, n, func(r *report.Report) { r.Conditions = append(r.Conditions, c) })
}

// silent makes machine n silent for d: neither its agent nor its kubelet is heard of.
func silent(f *health.Facts, n int, d time.Duration) {
	id := f.Instances[n].ID
	r := f.Reports[id]
	r.PublishedAt = now.Add(-d)
	f.Reports[id] = r
	f.Nodes[n].LeaseRenewed = now.Add(-d)
}

// heartbeats makes machine n a worker that sends heartbeats. The control plane heard the last one some seconds ago; its
// agents have listened for a time.
func heartbeats(f *health.Facts, n, seconds, listening int) {
	measured(f, n, func(r *report.Report) {
		r.Time = now.Add(-4 * time.Minute) // nothing has changed since
		r.Heartbeats = true
	})
	for member := range 3 {
		measured(f, member, func(r *report.Report) {
			r.ListeningSeconds = listening
			r.Heard = map[string]int{f.Instances[n].NodeName: seconds + 100*member} // it sends them to one of them
		})
	}
}

// peerMissed makes the other members report that member n does not answer them.
func peerMissed(f *health.Facts, n int, text string) {
	for other := range 3 {
		if other != n {
			measured(f, other, func(r *report.Report) {
				for p := range r.Etcd.Peers {
					if r.Etcd.Peers[p].Slot == f.Instances[n].Slot {
						r.Etcd.Peers[p].Error = text
					}
				}
			})
		}
	}
}

// onConsole makes the report of machine n one that was read from its console, through the real console line.
func onConsole(f *health.Facts, n int) {
	line, err := report.ConsoleLine(f.Reports[f.Instances[n].ID].Report)
	if err != nil {
		panic(err)
	}
	r, _ := report.ParseConsole(line)
	f.Reports[f.Instances[n].ID] = health.MachineReport{Report: r, PublishedAt: r.Time, FromConsole: true}
}

// withoutAPI removes what is read from the API, and moves all reports to the consoles.
func withoutAPI(f *health.Facts, text string) {
	f.APIError = text
	f.Nodes, f.Pods = nil, nil
	for n, i := range f.Instances {
		if i.State == "running" && i.Reports == nil {
			f.Instances[n].Reports = []health.StageReport{{Stage: "ready", State: "done"}}
		}
		if i.Slot == "" || i.State != "running" {
			delete(f.Reports, i.ID)
			continue
		}
		onConsole(f, n)
	}
}

// TestFaults: for each fault, the checks that are not OK, and no others. With -update it writes the page for
// operators from the same table.
func TestFaults(t *testing.T) {
	if r := health.Evaluate(healthyCluster()); !r.Valid || len(problems(r)) > 0 {
		t.Fatalf("a healthy cluster has problems: %v", problems(r))
	}
	names := map[string]bool{}
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			f := healthyCluster()
			fault.change(&f)
			got := problems(health.Evaluate(f))
			if diff := cmp.Diff(fault.want, got); diff != "" {
				t.Errorf("checks that are not OK (-want +got):\n%s", diff)
			}
			if fault.happens == "" || fault.todo == "" || names[fault.name] {
				t.Error("what happens, who has to do what, or an own name is missing")
			}
			names[fault.name] = true
		})
	}
	if len(names) < 20 {
		t.Errorf("%d faults, want at least 20", len(names))
	}
}

// TestFaultsPage: docs/operations/faults.md has the output of this code for each fault.
func TestFaultsPage(t *testing.T) {
	page := faultsPage()
	if *update {
		if err := os.WriteFile(faultsDoc, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(faultsDoc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), page); diff != "" {
		t.Errorf("run go test ./internal/cluster/health -run TestFaultsPage -update (-have +want):\n%s", diff)
	}
}

func faultsPage() string {
	var b strings.Builder
	b.WriteString(faultsHead)
	for _, fault := range faults() {
		fmt.Fprintf(&b, "- [%s](#%s)\n", fault.name, anchor(fault.name))
	}
	for _, fault := range faults() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", fault.name, strings.TrimSpace(fault.happens))
		seen, lines := recordedLines(fault.name)
		if seen == "" {
			lines = computedLines(fault)
		}
		b.WriteString("    $ slipway validate cluster demo\n")
		for _, line := range lines {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		if seen != "" {
			fmt.Fprintf(&b, "\n**Recorded** on real machines; first seen %s after the fault.\n", seen)
		}
		fmt.Fprintf(&b, "\n**Who does what.** %s\n", strings.TrimSpace(fault.todo))
	}
	return b.String()
}

// computedLines returns what validate prints for the facts of a fault.
func computedLines(fault fault) (lines []string) {
	f := healthyCluster()
	fault.change(&f)
	for _, line := range health.Evaluate(f).Lines("demo") {
		lines = append(lines, line.Text)
	}
	return lines
}

// recordedLines returns what validate printed for a fault of a real cluster, and after how long, if
// SLIPWAY_E2E_RECORD=1 E2E_RUN=TestFaultsAreSeen make e2e has recorded it.
func recordedLines(name string) (seen string, lines []string) {
	body, err := os.ReadFile(filepath.Join("../../../test/e2e/testdata/faults", strings.NewReplacer(" ", "-", "'", "").Replace(name)+".txt"))
	if err != nil {
		return "", nil
	}
	seen, printed, _ := strings.Cut(string(body), "\n")
	return seen, strings.Split(strings.TrimRight(printed, "\n"), "\n")
}

// anchor returns the link target of a heading, as GitHub makes it.
func anchor(heading string) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(heading))
}

const faultsHead = `# Faults

For operators: what happens when a part of a cluster fails, what ` + "`slipway validate cluster`" + ` prints, and who has to do what.
[Validate](validate.md) explains the command and how fast it sees a fault; [troubleshooting](../troubleshooting.md) is about
messages of the other commands.

The cluster ` + "`demo`" + ` has three control-plane machines and two workers. What is marked as **recorded** was printed for a fault of
a real cluster: ` + "`E2E_RUN=TestFaultsAreSeen SLIPWAY_E2E_RECORD=1 make e2e`" + ` breaks one and writes it down, without warnings about
the disk of the computer that its machines share. For the other faults, a test
(` + "`go test ./internal/cluster/health -run TestFaults`" + `) gives the facts of the fault to the code of ` + "`validate`" + `.

`
