// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestStack creates and changes a cluster with CloudFormation. The stack continues when machines
// signal that they are healthy, and rolls back when one signals a failure. The test runs after
// TestSpine, in its own region.
func TestStack(t *testing.T) {
	e := newEnvironment(t)
	for _, s := range []struct {
		name string
		long bool
		do   func(*environment)
	}{
		{"CloudFormation creates a cluster", false, createStack},
		{"a program with another hash rolls back", true, checkStackRejectsHash},
		{"a program that does not work rolls back", true, checkStackTimeout},
		{"slots are replaced one at a time", true, checkStackRollout},
		{"delete keeps data, then leaves nothing", false, deleteStack},
	} {
		ok := e.runStep(t, step{s.name, func(e *environment) {
			if s.long {
				skipUnlessLong(e.t)
			}
			s.do(e)
		}})
		if !ok {
			t.FailNow()
		}
	}
}

// maxAPIDowntime is the longest time for which the API may be unavailable while control-plane
// machines are replaced. It takes a few seconds; the rest is a margin for machines that run other
// tests.
const maxAPIDowntime = 15 * time.Second

func createStack(e *environment) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--worker-count", "1", "--yes")
	r := e.runProgram(e.slipway, "apply", clusterName, "--via", "cloudformation", "--yes")
	if r.code != 0 || strings.Count(r.err, "Received SUCCESS signal") < 4 { // three of the control plane, one of the workers
		e.t.Fatalf("exit status %d, %d signals\n%s", r.code, strings.Count(r.err, "Received SUCCESS signal"), r.err)
	}
	e.waitHealthy(time.Minute) // the stack has waited for all machines
	e.exportKubeconfig()
	writeData(e)
	checkEmptyPlan(e)
}

// checkStackRejectsHash changes the hash of the kubelet in the catalogue. The first new machine
// must reject the file and report it.
func checkStackRejectsHash(e *environment) {
	was := e.readCatalogField("kubelet", "sha256")
	e.checkRollback("and another hash", map[string]string{was: strings.Repeat("0f", 32)}, "1 FAILURE signal(s) out of 1", "kubelet")
}

// checkStackTimeout replaces the kubelet by another program. Its hash is correct, but its machine
// never becomes a Ready node.
func checkStackTimeout(e *environment) {
	e.checkRollback("not its kubelet", map[string]string{
		e.readCatalogField("kubelet", "sha256"): e.readCatalogField("runc", "sha256"), e.readCatalogField("kubelet", "url"): e.readCatalogField("runc", "url"),
	}, "0 SUCCESS signal(s) out of 1", "stage", "--parameter", "UpdateTimeout=PT25S")
}

// readCatalogField returns a field of a file in the catalogue.
func (e *environment) readCatalogField(name, field string) string {
	e.t.Helper()
	catalogue, err := os.ReadFile(filepath.Join(e.cache, "assets", "catalog.yaml"))
	if err != nil {
		e.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(catalogue), "\n  name: "+name+"\n")
	_, rest, _ = strings.Cut(rest, "  "+field+": ")
	value, _, ok := strings.Cut(rest, "\n")
	if !ok {
		e.t.Fatalf("the catalogue has no %s of %s", field, name)
	}
	return value
}

// checkRollback applies a changed catalogue. The stack must roll back with the given reason, the
// machine must report the cause, and the cluster must stay healthy.
func (e *environment) checkRollback(what string, texts map[string]string, reason, report string, more ...string) {
	e.t.Helper()
	good := filepath.Join(e.cache, "assets", "catalog.yaml")
	catalogue, err := os.ReadFile(good)
	if err != nil {
		e.t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(catalogue), "\nimages:")
	rest := strings.TrimPrefix(string(catalogue), text)
	head, kubelet, _ := strings.Cut(text, "\n  name: kubelet\n")
	for from, to := range texts {
		kubelet = strings.Replace(kubelet, from, to, 1)
	}
	dir := e.t.TempDir()
	bad, manifest := filepath.Join(dir, "catalog.yaml"), filepath.Join(dir, "cluster.yaml")
	writeFile(e.t, bad, head+"\n  name: kubelet\n"+kubelet+rest)
	writeFile(e.t, manifest, e.runSlipway("get", "clusters", clusterName, "-o", "yaml"))
	before := e.listMachines("control-plane")
	e.runSlipway("replace", "-f", manifest, "--assets", bad, "--yes")
	stop := e.watchAvailability()
	r := e.runProgram(e.slipway, append([]string{"apply", clusterName, "--yes"}, more...)...)
	away := stop()
	machine := regexp.MustCompile(`machine i-[0-9a-f]+ reports: .*` + report)
	for _, want := range []string{"the first failed resource was autoscaling-group/control-plane-a", reason, "ended in UPDATE_ROLLBACK_COMPLETE"} {
		if r.code != 1 || !strings.Contains(r.err, want) {
			e.t.Errorf("%s: exit status %d, and no %q in:\n%s", what, r.code, want, r.err)
		}
	}
	if !machine.MatchString(r.err) {
		e.t.Errorf("%s: no machine reports %q in:\n%s", what, report, r.err)
	}
	for id, slot := range e.listMachines("control-plane") {
		if _, same := before[id]; !same && slot != "a" {
			e.t.Errorf("slot %s was touched, though slot a failed", slot)
		}
	}
	if away > maxAPIDowntime {
		e.t.Errorf("the API was unavailable for %s", away)
	}
	checkData(e)
	e.runSlipway("replace", "-f", manifest, "--assets", good, "--yes")
	e.waitHealthy(3 * time.Minute)
	checkEmptyPlan(e)
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkStackRollout changes the launch templates of all slots. The slots must be replaced one at a
// time.
func checkStackRollout(e *environment) {
	before := e.listMachines("control-plane")
	stop := e.watchAvailability()
	r := e.runProgram(e.slipway, "apply", clusterName, "--parameter", "ControlPlaneInstanceType=m5.large", "--yes")
	away := stop()
	if r.code != 0 {
		e.t.Fatal(r.err)
	}
	last := -1
	for _, slot := range []string{"a", "b", "c"} { // each is complete before the next begins
		group := "autoscaling-group/control-plane-" + slot
		begun, done := strings.Index(r.err, group+": still"), strings.Index(r.err, group+": changed")
		if begun < last || done < begun || begun < 0 {
			e.t.Errorf("slot %s: begun at %d, done at %d, the slot before at %d of:\n%s", slot, begun, done, last, r.err)
		}
		last = done
	}
	for id := range e.listMachines("control-plane") {
		if _, old := before[id]; old {
			e.t.Errorf("machine %s was not replaced", id)
		}
	}
	if away > maxAPIDowntime {
		e.t.Errorf("the API was unavailable for %s", away)
	}
	e.t.Logf("the API was unavailable for at most %s", away)
	checkData(e)
}

func deleteStack(e *environment) {
	before := e.listVolumes()
	e.runSlipway("delete", "cluster", clusterName, "--yes")
	for _, left := range e.listTagged() {
		if kind, _, _ := strings.Cut(left, " "); kind != "volume" && kind != "object" {
			e.t.Errorf("left behind: %s", left)
		}
	}
	kept := e.listVolumes()
	for slot, v := range before {
		if kept[slot][0] != v[0] {
			e.t.Errorf("the data of slot %s was deleted with the stack: %s, then %s", slot, v[0], kept[slot][0])
		}
	}
	e.runSlipway("delete", "cluster", clusterName, "--destroy-data", "--yes")
	if left := e.listTagged(); len(left) > 0 {
		e.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if r := e.runProgram(e.slipway, "delete", "cluster", clusterName, "--yes"); r.code == 0 || !strings.Contains(r.err, "there is no cluster") {
		e.t.Errorf("exit status %d: %s", r.code, r.err)
	}
}
