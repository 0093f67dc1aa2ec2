// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestFaultsAreSeen breaks parts of a real cluster, one after another, and expects that validate names the machine,
// the cause and the next step of each within 10 s of being observable.
func TestFaultsAreSeen(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	os.Remove(e.kubeconfig())
	e.runSlipway("export", "kubeconfig", clusterName, "--kubeconfig", e.kubeconfig())
	for _, f := range realFaults(e) {
		if !e.runStep(t, step{f.name, func(e *environment) { e.checkFault(f) }}) {
			t.FailNow()
		}
	}
	e.runSlipway("delete", "cluster", clusterName, "--yes")
}

// realFault is a fault of one machine.
type realFault struct {
	// name is that of the fault in docs/operations/faults.md, so that its output can be written there.
	name string
	// machine is the instance ID that validate has to name; empty if the fault has several.
	machine string
	// apply and repair are scripts that run in the machines at.
	apply, repair string
	at            []string
	// change and undo are AWS CLI commands instead.
	change, undo []string
	// severity, kind and cause are what validate has to print.
	severity, kind, cause string
	// within is how long validate may take: 10 s after the fault can be observed.
	within time.Duration
}

// cutOff closes the network of a machine except for its own programs.
const cutOff = `nft 'add table inet cut; add chain inet cut in { type filter hook input priority -300; policy drop; }; ` +
	`add chain inet cut out { type filter hook output priority -300; policy drop; }; ` +
	`add rule inet cut in iif lo accept; add rule inet cut out oif lo accept'`

const rejoin = "nft delete table inet cut"

// freeze stops a program as a hanging disk or a bug would: it exists and answers nothing.
func freeze(program string) (apply, repair string) {
	return "kill -STOP $(pidof " + program + ")", "kill -CONT $(pidof " + program + ")"
}

func realFaults(e *environment) []realFault {
	e.t.Helper()
	var worker string
	for id := range e.listMachines("worker") {
		worker = id
	}
	bySlot := map[string]string{}
	for id, slot := range e.listMachines("control-plane") {
		bySlot[slot] = id
	}
	return append(programFaults(e, worker, bySlot), partFaults(e, worker, bySlot)...)
}

// programFaults are programs that are stopped or hang. Agents measure every 5 s, with timeouts of up to 4 s.
func programFaults(e *environment, worker string, bySlot map[string]string) []realFault {
	e.t.Helper()
	leader := e.findLeader()
	stopKubelet, startKubelet := freeze("kubelet")
	stopEtcd, startEtcd := freeze("etcd")
	const seconds = time.Second
	return []realFault{
		{
			name: "The kubelet hangs", machine: worker, at: []string{worker}, apply: stopKubelet, repair: startKubelet,
			severity: "failed", kind: "machine", cause: "kubelet does not answer", within: 10 * seconds,
		},
		{
			name: "The kubelet is stopped", machine: worker, at: []string{worker},
			apply: "systemctl mask --runtime --now kubelet", repair: "systemctl unmask --runtime kubelet; systemctl start kubelet",
			severity: "failed", kind: "machine", cause: "kubelet", within: 10 * seconds,
		},
		{
			// Three heartbeats are missed after 15 s, and a member reports that within 5 s.
			name: "The agent of a worker is stopped", machine: worker, at: []string{worker},
			apply: "systemctl stop slipway-node", repair: "systemctl start slipway-node",
			severity: "failed", kind: "machine", cause: "its agent has not reported", within: 25 * seconds,
		},
		{
			name: "The leader of etcd hangs", machine: leader, at: []string{leader}, apply: stopEtcd, repair: startEtcd,
			severity: "failed", kind: "etcd", cause: "does not answer", within: 10 * seconds,
		},
		{
			// The agents notice it, find that no API server can write, and write to their consoles.
			name: "Two of three members are stopped", at: []string{bySlot["a"], bySlot["b"]}, apply: stopEtcd, repair: startEtcd,
			severity: "critical", kind: "etcd", cause: "quorum lost: 2 of 3 members do not work", within: 25 * seconds,
		},
	}
}

// partFaults are networks, disks and files.
func partFaults(e *environment, worker string, bySlot map[string]string) []realFault {
	e.t.Helper()
	const manifest = "/etc/kubernetes/manifests/kube-scheduler.yaml"
	volume := e.listVolumes()["a"][0]
	const seconds = time.Second
	return []realFault{
		{
			name: "etcd's disk is full", machine: bySlot["b"], at: []string{bySlot["b"]},
			apply: "fallocate -l $(($(df -B1 --output=avail /var/lib/slipway/etcd | tail -1) - 1048576)) /var/lib/slipway/etcd/ballast", repair: "rm /var/lib/slipway/etcd/ballast",
			severity: "failed", kind: "machine", cause: "is full", within: 10 * seconds,
		},
		{
			// The agent looks every 3 s, and reports every 5 s.
			name: "A static pod manifest is corrupted", machine: bySlot["b"], at: []string{bySlot["b"]},
			apply: "echo '{' >" + manifest, repair: "grep -q 'name: kube-scheduler' " + manifest,
			severity: "warning", kind: "machine", cause: manifest + " was changed; restored at ", within: 10 * seconds,
		},
		{
			// A file system that cannot be written, at one path only.
			name: "A file of the agent cannot be restored", machine: bySlot["b"], at: []string{bySlot["b"]},
			apply: "echo '{' >/run/broken && chmod 600 /run/broken && mount --bind -o ro /run/broken " + manifest + " && mount -o remount,bind,ro " + manifest, repair: "umount " + manifest,
			severity: "failed", kind: "machine", cause: manifest + " was changed and cannot be restored", within: 10 * seconds,
		},
		{
			// Its members see it after a timeout of 2 s in reports every 5 s.
			name: "A control-plane machine is cut off from the network", machine: bySlot["c"], at: []string{bySlot["c"]}, apply: cutOff, repair: rejoin,
			severity: "failed", kind: "etcd", cause: "does not answer", within: 12 * seconds,
		},
		{
			// A kubelet renews its lease every 10 s, so its silence can be observed after as long.
			name: "A worker is cut off from the network", machine: worker, at: []string{worker}, apply: cutOff, repair: rejoin,
			severity: "failed", kind: "node", cause: "its kubelet has not reported", within: 20 * seconds,
		},
		{
			name: "etcd's volume is lost", machine: bySlot["a"],
			change:   []string{"ec2", "detach-volume", "--force", "--volume-id", volume},
			undo:     []string{"ec2", "attach-volume", "--volume-id", volume, "--instance-id", bySlot["a"], "--device", "/dev/xvdf"},
			severity: "failed", kind: "machine", cause: "the etcd volume " + volume, within: 15 * seconds,
		},
	}
}

// findLeader returns the machine of etcd's leader, from the reports of the members.
func (e *environment) findLeader() string {
	e.t.Helper()
	out := e.kubectl("-n", "kube-system", "get", "leases", "-o",
		`jsonpath={range .items[?(@.metadata.annotations.slipway\.dev/report)]}{.metadata.annotations.slipway\.dev/report}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		var r struct {
			Machine string
			Etcd    struct{ MemberID, LeaderID string }
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			e.t.Fatalf("the report of a member: %v\n%s", err, line)
		}
		if r.Etcd.MemberID != "" && r.Etcd.MemberID == r.Etcd.LeaderID {
			return r.Machine
		}
	}
	e.t.Fatalf("no member reports that it leads:\n%s", out)
	return ""
}

// inject applies or repairs a fault: a script in each of its machines, or a command of the AWS CLI.
func (e *environment) inject(f realFault, script string, command []string) {
	e.t.Helper()
	for _, id := range f.at {
		e.mustRunInMachine(id, script)
	}
	if len(command) == 0 {
		return
	}
	if r := e.runProgram("aws", command...); r.code != 0 {
		e.t.Fatal(r.err)
	}
}

// checkFault applies a fault, waits until validate names it, and repairs it.
func (e *environment) checkFault(f realFault) {
	e.t.Helper()
	e.inject(f, f.apply, f.change)
	begin := time.Now()
	err := errors.New("validate was not run")
	for err != nil && time.Since(begin) < f.within+15*time.Second {
		err = e.findFault(f)
	}
	took := time.Since(begin).Round(100 * time.Millisecond)
	printed := e.runProgram(e.slipway, "validate", "cluster", clusterName)
	e.inject(f, f.repair, f.undo)
	switch {
	case err != nil:
		e.t.Errorf("validate does not report it: %v\n%s%s", err, printed.out, printed.err)
	case took > f.within && !isOverloaded():
		e.t.Errorf("validate reported it after %s, want %s", took, f.within)
	default:
		e.t.Logf("COUNT %s: reported after %s", f.name, took)
		e.recordFault(f, printed.out+printed.err, took)
	}
	e.waitHealthy(3 * time.Minute)
}

// recordFault writes what validate printed for docs/operations/faults.md, if SLIPWAY_E2E_RECORD is set. Run
// go test ./internal/cluster/health -run TestFaultsPage -update afterwards.
func (e *environment) recordFault(f realFault, printed string, took time.Duration) {
	e.t.Helper()
	if os.Getenv("SLIPWAY_E2E_RECORD") == "" {
		return
	}
	file := filepath.Join("testdata", "faults", strings.NewReplacer(" ", "-", "'", "").Replace(f.name)+".txt")
	names := strings.NewReplacer("cluster "+clusterName+" ", "cluster demo ", clusterName+"-", "demo-", "."+clusterName+".", ".demo.")
	body := took.String() + "\n" + names.Replace(withoutHostDisk(printed))
	if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
		e.t.Fatal(err)
	}
}

// withoutHostDisk removes the warnings about the root disks of the machines, which all are the disk of this computer.
func withoutHostDisk(printed string) string {
	var out strings.Builder
	skipping := false
	for line := range strings.Lines(printed) {
		begins := !strings.HasPrefix(line, " ")
		skipping = begins && strings.HasPrefix(line, "WARNING") && strings.Contains(line, ": disk: / is ") || !begins && skipping
		if !skipping {
			out.WriteString(line)
		}
	}
	return out.String()
}

// isOverloaded reports whether so many processes wait for this computer's processors that programs in machines
// miss their timeouts. Times are not checked then.
func isOverloaded() bool {
	body, err := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(body), " ")
	load, parseErr := strconv.ParseFloat(first, 64)

	return err == nil && parseErr == nil && load > 4*float64(runtime.NumCPU())
}

// findFault returns nil if validate reports the fault, with a next step or the check that explains it.
func (e *environment) findFault(f realFault) error {
	r := e.runProgram(e.slipway, "validate", "cluster", clusterName, "-o", "json")
	var report struct {
		Checks []struct{ Kind, Machine, Severity, Cause, Hint, CausedBy string }
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		return fmt.Errorf("%w: %s", err, r.err)
	}
	for _, c := range report.Checks {
		if c.Severity == f.severity && c.Kind == f.kind && c.Machine == f.machine && strings.Contains(c.Cause, f.cause) && c.Hint+c.CausedBy != "" {
			return nil
		}
	}
	return fmt.Errorf("no %s of %q in %s", f.kind, f.machine, r.out)
}
