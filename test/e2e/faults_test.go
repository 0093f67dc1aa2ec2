// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/history"
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
	e.exportKubeconfig()
	for _, group := range faultGroups() {
		for _, f := range group(e) {
			if !e.runStep(t, step{f.name, func(e *environment) { e.checkFault(f) }}) {
				t.FailNow()
			}
		}
	}
	e.runSlipway("delete", "cluster", clusterName, "--yes")
}

// findLeader returns the machine of etcd's leader, from the reports of the members. The reports are up to some seconds old: while
// members elect one, none may report that it leads.
func (e *environment) findLeader() (leader string) {
	e.t.Helper()
	e.waitUntil("a member reports that it leads", time.Minute, func() error {
		out := e.kubectl("-n", "kube-system", "get", "leases", "-o",
			`jsonpath={range .items[?(@.metadata.annotations.slipway\.dev/report)]}{.metadata.annotations.slipway\.dev/report}{"\n"}{end}`)
		var err error
		leader, err = leaderOf(out)

		return err
	})

	return leader
}

// leaderOf returns the machine of the member that says, in one of the reports, that it leads.
func leaderOf(reports string) (string, error) {
	for line := range strings.Lines(reports) {
		var r struct {
			Machine string
			Etcd    struct{ MemberID, LeaderID string }
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return "", fmt.Errorf("the report of a member: %w\n%s", err, line)
		}
		if r.Etcd.MemberID != "" && r.Etcd.MemberID == r.Etcd.LeaderID {
			return r.Machine, nil
		}
	}

	return "", fmt.Errorf("no member reports that it leads:\n%s", reports)
}

// inject applies or repairs a fault: a script in each of its machines, a command of the AWS CLI, or objects, for which
// verb is apply or delete.
func (e *environment) inject(f realFault, script string, command []string, verb string) {
	e.t.Helper()
	if f.objects != "" {
		file := filepath.Join(e.t.TempDir(), "objects.yaml")
		writeFile(e.t, file, f.objects)
		e.kubectl(verb, "-f", file)
	}
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
	e.inject(f, f.apply, f.change, "apply")
	begin := time.Now()
	err := errors.New("validate was not run")
	var printed commandResult
	for err != nil && time.Since(begin) < f.within+15*time.Second {
		var both sync.WaitGroup
		both.Go(func() { printed = e.runProgram(e.slipway, "validate", "cluster", clusterName) })
		err = e.findFault(f)
		both.Wait() // some faults are over a few seconds later
		if err == nil && recordsFaults() && !strings.Contains(printed.out+printed.err, f.cause) {
			err = fmt.Errorf("what validate printed at the same time does not have %q", f.cause)
		}
	}
	took := time.Since(begin).Round(100 * time.Millisecond)
	e.inject(f, f.repair, f.undo, "delete")
	switch {
	case err != nil:
		e.t.Errorf("validate does not report it: %v\n%s%s", err, printed.out, printed.err)
	case took > f.within && !isOverloaded():
		e.t.Errorf("validate reported it after %s, want %s", took, f.within)
	default:
		e.t.Logf("COUNT %s: reported after %s", f.name, took)
		e.recordFault(f, printed.out+printed.err, took)
	}
	e.waitHealthy(5 * time.Minute)
}

// recordsFaults reports whether the output of validate is written down.
func recordsFaults() bool { return os.Getenv("SLIPWAY_E2E_RECORD") != "" }

// recordFault writes what validate printed for docs/operations/faults.md, if SLIPWAY_E2E_RECORD is set. Run
// go test ./internal/cluster/health -run TestFaultsPage -update afterwards.
func (e *environment) recordFault(f realFault, printed string, took time.Duration) {
	e.t.Helper()
	if !recordsFaults() {
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
func isOverloaded() bool { return history.LoadOfProcessor() > 4 }

// isBusy reports whether other programs take so much of this computer that the product's goals do not apply.
func isBusy() bool { return history.LoadOfProcessor() > 2 }

// maxMemberMissing is how many seconds the etcd member of a slot may be missing: the goal, or more on a busy computer.
func maxMemberMissing() float64 {
	if isBusy() {
		return 30
	}

	return 15
}

// maxWriteGap is the longest time without an acknowledged write: the goal of a second, in which API servers may not answer, and
// two intervals of the writer, or more on a busy computer.
func maxWriteGap() time.Duration {
	if isBusy() {
		return 5 * time.Second
	}

	return 1400 * time.Millisecond
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
