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

// TestStack lets CloudFormation make a cluster and change it: the stack goes on when machines say that they are well, and
// goes back when one says that it will not be. It runs after TestSpine, in a region of its own.
func TestStack(t *testing.T) {
	l := newLab(t)
	for _, s := range []struct {
		name string
		do   func(*lab)
	}{
		{"CloudFormation makes a cluster", stackUp},
		{"a program with another hash rolls back", stackRefuses},
		{"a program that does not work rolls back", stackTimesOut},
		{"slots are replaced one at a time", stackRolls},
		{"delete keeps data, then leaves nothing", stackDelete},
	} {
		ok := t.Run(s.name, func(t *testing.T) {
			inner := *l
			inner.t = t
			s.do(&inner)
		})
		if !ok {
			t.FailNow()
		}
	}
}

// apiAway is the longest time that the API may not answer while machines of its control plane are replaced. It is a few
// seconds; the rest is for computers that are busy with other tests.
const apiAway = 15 * time.Second

func stackUp(l *lab) {
	l.run("state", "init", "--yes")
	l.run("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--worker-count", "1", "--yes")
	r := l.try(l.slipway, "apply", clusterName, "--via", "cloudformation", "--yes")
	if r.code != 0 || strings.Count(r.err, "Received SUCCESS signal") < 4 { // three on the gate, one on the workers
		l.t.Fatalf("exit status %d, %d signals\n%s", r.code, strings.Count(r.err, "Received SUCCESS signal"), r.err)
	}
	l.valid(time.Minute) // the stack has waited for all of it
	os.Remove(l.kubeconfig())
	l.run("export", "kubeconfig", clusterName, "--kubeconfig", l.kubeconfig())
	writeData(l)
	planIsEmpty(l)
}

// stackRefuses gives machines a kubelet with another hash: the first new one refuses it and says so.
func stackRefuses(l *lab) {
	was := l.catalogued("kubelet", "sha256")
	l.rollsBack("and another hash", map[string]string{was: strings.Repeat("0f", 32)}, "1 FAILURE signal(s) out of 1", "kubelet")
}

// stackTimesOut gives machines another program for a kubelet, which can be trusted but never makes a Ready node.
func stackTimesOut(l *lab) {
	l.rollsBack("not its kubelet", map[string]string{
		l.catalogued("kubelet", "sha256"): l.catalogued("runc", "sha256"), l.catalogued("kubelet", "url"): l.catalogued("runc", "url"),
	}, "0 SUCCESS signal(s) out of 1", "stage", "--parameter", "UpdateTimeout=PT25S")
}

// catalogued is what the catalogue says of a file.
func (l *lab) catalogued(name, field string) string {
	l.t.Helper()
	catalogue, err := os.ReadFile(filepath.Join(l.cache, "assets", "catalog.yaml"))
	if err != nil {
		l.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(catalogue), "\n  name: "+name+"\n")
	_, rest, _ = strings.Cut(rest, "  "+field+": ")
	value, _, ok := strings.Cut(rest, "\n")
	if !ok {
		l.t.Fatalf("the catalogue has no %s of %s", field, name)
	}
	return value
}

// rollsBack applies a catalogue with some texts replaced. The stack must go back for reason, the machine must say, and
// the cluster must be as well as it was.
func (l *lab) rollsBack(what string, texts map[string]string, reason, says string, more ...string) {
	l.t.Helper()
	good := filepath.Join(l.cache, "assets", "catalog.yaml")
	catalogue, err := os.ReadFile(good)
	if err != nil {
		l.t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(catalogue), "\nimages:")
	rest := strings.TrimPrefix(string(catalogue), text)
	head, kubelet, _ := strings.Cut(text, "\n  name: kubelet\n")
	for from, to := range texts {
		kubelet = strings.Replace(kubelet, from, to, 1)
	}
	dir := l.t.TempDir()
	bad, manifest := filepath.Join(dir, "catalog.yaml"), filepath.Join(dir, "cluster.yaml")
	write(l.t, bad, head+"\n  name: kubelet\n"+kubelet+rest)
	write(l.t, manifest, l.run("get", "clusters", clusterName, "-o", "yaml"))
	before := l.machines("control-plane")
	l.run("replace", "-f", manifest, "--assets", bad, "--yes")
	stop := l.availability()
	r := l.try(l.slipway, append([]string{"apply", clusterName, "--yes"}, more...)...)
	away := stop()
	machine := regexp.MustCompile(`machine i-[0-9a-f]+ says: .*` + says)
	for _, want := range []string{"first that failed was autoscaling-group/control-plane-a", reason, "ended in UPDATE_ROLLBACK_COMPLETE"} {
		if r.code != 1 || !strings.Contains(r.err, want) {
			l.t.Errorf("%s: exit status %d, and no %q in:\n%s", what, r.code, want, r.err)
		}
	}
	if !machine.MatchString(r.err) {
		l.t.Errorf("%s: no machine says %q in:\n%s", what, says, r.err)
	}
	for id, slot := range l.machines("control-plane") {
		if _, same := before[id]; !same && slot != "a" {
			l.t.Errorf("slot %s was touched, though slot a failed", slot)
		}
	}
	if away > apiAway {
		l.t.Errorf("the API was away for %s", away)
	}
	dataIsThere(l)
	l.run("replace", "-f", manifest, "--assets", good, "--yes")
	l.valid(3 * time.Minute)
	planIsEmpty(l)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stackRolls changes the launch templates of all slots.
func stackRolls(l *lab) {
	before := l.machines("control-plane")
	stop := l.availability()
	r := l.try(l.slipway, "apply", clusterName, "--parameter", "ControlPlaneInstanceType=m5.large", "--yes")
	away := stop()
	if r.code != 0 {
		l.t.Fatal(r.err)
	}
	last := -1
	for _, slot := range []string{"a", "b", "c"} { // each is done before the next begins
		group := "autoscaling-group/control-plane-" + slot
		begun, done := strings.Index(r.err, group+": still"), strings.Index(r.err, group+": changed")
		if begun < last || done < begun || begun < 0 {
			l.t.Errorf("slot %s: begun at %d, done at %d, the slot before at %d of:\n%s", slot, begun, done, last, r.err)
		}
		last = done
	}
	for id := range l.machines("control-plane") {
		if _, old := before[id]; old {
			l.t.Errorf("machine %s was not replaced", id)
		}
	}
	if away > apiAway {
		l.t.Errorf("the API was away for %s", away)
	}
	l.t.Logf("the API was away for %s at most", away)
	dataIsThere(l)
}

func stackDelete(l *lab) {
	before := l.volumes()
	l.run("delete", "cluster", clusterName, "--yes")
	for _, left := range l.tagged() {
		if kind, _, _ := strings.Cut(left, " "); kind != "volume" && kind != "object" {
			l.t.Errorf("left behind: %s", left)
		}
	}
	kept := l.volumes()
	for slot, v := range before {
		if kept[slot][0] != v[0] {
			l.t.Errorf("the data of slot %s went with the stack: %s, then %s", slot, v[0], kept[slot][0])
		}
	}
	l.run("delete", "cluster", clusterName, "--destroy-data", "--yes")
	if left := l.tagged(); len(left) > 0 {
		l.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if r := l.try(l.slipway, "delete", "cluster", clusterName, "--yes"); r.code == 0 || !strings.Contains(r.err, "there is no cluster") {
		l.t.Errorf("exit status %d: %s", r.code, r.err)
	}
}
