// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
		ok := t.Run(f.name, func(t *testing.T) {
			inner := *e
			inner.t = t
			inner.checkFault(f)
		})
		if !ok {
			t.FailNow()
		}
	}
	e.runSlipway("delete", "cluster", clusterName, "--yes")
}

// realFault is a fault of one machine.
type realFault struct {
	name string
	// machine is the instance ID that validate has to name; empty if the fault has several.
	machine string
	// apply and repair are scripts that run in the machines at.
	apply, repair string
	at            []string
	// kind and cause are what validate has to print.
	kind, cause string
	// within is how long validate may take: 10 s after the fault can be observed.
	within time.Duration
}

// cutOff closes the network of a machine except for its own programs.
const cutOff = `nft 'add table inet cut; add chain inet cut in { type filter hook input priority -300; policy drop; }; ` +
	`add chain inet cut out { type filter hook output priority -300; policy drop; }; ` +
	`add rule inet cut in iif lo accept; add rule inet cut out oif lo accept'`

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
	controlPlane := e.listMachines("control-plane")
	bySlot := map[string]string{}
	for id, slot := range controlPlane {
		bySlot[slot] = id
	}
	stopKubelet, startKubelet := freeze("kubelet")
	stopEtcd, startEtcd := freeze("etcd")
	leader := e.findLeader()
	return []realFault{
		{"a kubelet hangs", worker, stopKubelet, startKubelet, []string{worker}, "machine", "kubelet does not answer", 10 * time.Second},
		{"a kubelet is masked and stopped", worker, "systemctl mask --runtime --now kubelet", "systemctl unmask --runtime kubelet; systemctl start kubelet", []string{worker}, "machine", "kubelet", 10 * time.Second},
		{"the leader of etcd hangs", leader, stopEtcd, startEtcd, []string{leader}, "etcd", "does not answer", 10 * time.Second},
		{"the disk of a member is full", bySlot["b"], "fallocate -l $(($(df -B1 --output=avail /var/lib/slipway/etcd | tail -1) - 1048576)) /var/lib/slipway/etcd/ballast", "rm /var/lib/slipway/etcd/ballast", []string{bySlot["b"]}, "machine", "full", 10 * time.Second},
		// Its members see it after a timeout of 2 s in reports every 5 s.
		{"a control-plane machine is cut off", bySlot["c"], cutOff, "nft delete table inet cut", []string{bySlot["c"]}, "etcd", "does not answer", 12 * time.Second},
		// A kubelet renews its lease every 10 s, so its silence can be observed after as long.
		{"a worker is cut off", worker, cutOff, "nft delete table inet cut", []string{worker}, "node", "its kubelet has not reported", 20 * time.Second},
		// The agents notice it, find that no API server can write, and write to their consoles.
		{"two of three members hang", "", stopEtcd, startEtcd, []string{bySlot["a"], bySlot["b"]}, "etcd", "quorum lost: 2 of 3 members do not work", 25 * time.Second},
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

// checkFault applies a fault, waits until validate names it, and repairs it.
func (e *environment) checkFault(f realFault) {
	e.t.Helper()
	for _, id := range f.at {
		e.mustRunInMachine(id, f.apply)
	}
	begin := time.Now()
	err := errors.New("validate was not run")
	for err != nil && time.Since(begin) < f.within+15*time.Second {
		err = e.findFault(f)
	}
	took := time.Since(begin).Round(100 * time.Millisecond)
	printed := e.runProgram(e.slipway, "validate", "cluster", clusterName)
	for _, id := range f.at {
		e.mustRunInMachine(id, f.repair)
	}
	switch {
	case err != nil:
		e.t.Errorf("validate does not report it: %v\n%s%s", err, printed.out, printed.err)
	case took > f.within && !isOverloaded():
		e.t.Errorf("validate reported it after %s, want %s", took, f.within)
	default:
		e.t.Logf("COUNT %s: reported after %s", f.name, took)
	}
	e.waitHealthy(3 * time.Minute)
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
		bad := c.Severity == "failed" || c.Severity == "critical"
		if bad && c.Kind == f.kind && c.Machine == f.machine && strings.Contains(c.Cause, f.cause) && c.Hint+c.CausedBy != "" {
			return nil
		}
	}
	return fmt.Errorf("no %s of %q in %s", f.kind, f.machine, r.out)
}
