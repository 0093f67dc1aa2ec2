// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/history"
)

// The settings of the test: recoveryDelay is spec.etcd.quorumLoss.after, and volumeDelay spec.etcd.recreateVolumesAfter.
const (
	recoveryDelay = time.Minute
	volumeDelay   = 2 * time.Minute
	// volumeLimit is how long after volumeDelay all members vote again: 74 to 80 s were measured, from the termination of the machine.
	volumeLimit = 2 * time.Minute
	// steadyWrites is how many writes in a row show that the API works again.
	steadyWrites = 5
)

// TestLostQuorum terminates one of three machines and deletes its volume, then two, and then all. The machines recover etcd without an
// operator, and create the volumes; only after the loss of all, the operator does.
func TestLostQuorum(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createRecovering},
		{"data is written", writeData},
		{"one volume and the marker are lost", loseOneVolume},
		{"two of three volumes are lost", loseMajority},
		{"the machines create lost volumes", awaitVolumes},
		{"all volumes are lost", loseEverything},
		{"delete leaves nothing", deleteCluster},
	})
}

// createRecovering creates a cluster whose machines recover etcd soon.
func createRecovering(e *environment) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--yes")
	before := e.runSlipway("get", "cluster", clusterName, "-o", "yaml")
	slow := "    quorumLoss:\n      after: 10m\n      recovery: Automatic\n    recreateVolumesAfter: 10m\n"
	soon := "    quorumLoss:\n      after: " + recoveryDelay.String() + "\n      recovery: Automatic\n" +
		"    recreateVolumesAfter: " + volumeDelay.String() + "\n"
	if !strings.Contains(before, slow) {
		e.t.Fatalf("the manifest is not as expected:\n%s", before)
	}
	file := filepath.Join(e.t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(before, slow, soon, 1)), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.runSlipway("replace", "-f", file, "--yes")
	start := time.Now()
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.created = time.Since(start)
	e.exportKubeconfig()
}

// loseSlots terminates the machines of slots and deletes their volumes. Replacements would attach the volumes before.
func (e *environment) loseSlots(slots ...string) {
	e.t.Helper()
	volumes := e.listVolumes()
	switchLaunches := func(operation string) {
		for _, slot := range slots {
			e.scaling(operation, "--auto-scaling-group-name", "control-plane-"+slot+"."+clusterName, "--scaling-processes", "Launch")
		}
	}
	switchLaunches("suspend-processes")
	var machines []string
	for machine, slot := range e.listMachines("control-plane") {
		if slices.Contains(slots, slot) {
			machines = append(machines, machine)
		}
	}
	e.terminate(machines...)
	for _, slot := range slots {
		e.waitUntil("the volume of slot "+slot+" is deleted", 3*time.Minute, func() error {
			r := e.runProgram("aws", "ec2", "delete-volume", "--volume-id", volumes[slot][0])
			if r.code != 0 && !strings.Contains(r.err, "NotFound") {
				return errors.New(r.err)
			}
			return nil
		})
	}
	switchLaunches("resume-processes")
}

// loseMajority loses two of three members with their volumes. What was written just before is there when etcd works again.
func loseMajority(e *environment) {
	slots := slices.Sorted(maps.Keys(e.listVolumes()))
	e.kubectl("create", "configmap", "later", "--from-literal=x=y")
	start := time.Now()
	e.loseSlots(slots[1:]...)
	lost := time.Now()
	shown := ""
	writes := 0 // in a row: an API server of before the recovery may take one, and is restarted
	healed := start
	e.waitUntil("the API takes writes again", recoveryDelay+4*time.Minute, func() error {
		if shown == "" {
			if out := e.runProgram(e.slipway, "validate", "cluster", clusterName).out; strings.Contains(out, "the machines recover etcd in") {
				shown = out
			}
		}
		if r := e.tryKubectl("create", "configmap", "after", "--from-literal=x=y", "--request-timeout=4s"); r.code != 0 && !strings.Contains(r.err, "already exists") {
			writes = 0
			return errors.New(r.err)
		}
		if writes == 0 {
			healed = time.Now()
		}
		if writes++; writes < steadyWrites {
			return errors.New("the API took its first writes again")
		}
		return nil
	})
	e.t.Logf("COUNT two of three members lost: steady writes %s after their machines were terminated, %s after their volumes were lost, of which %s are configured",
		healed.Sub(start).Round(time.Second), healed.Sub(lost).Round(time.Second), recoveryDelay)
	if late := healed.Sub(lost) - recoveryDelay; late > history.Limit(time.Minute, e.slowness()) {
		e.t.Errorf("healed %s after the configured time, want at most %s", late.Round(time.Second), history.Limit(time.Minute, e.slowness()).Round(time.Second))
	}
	if shown == "" {
		e.t.Error("validate did not say that etcd will be recovered, and when")
	}
	e.t.Log("\n" + shown)
	checkData(e)
	e.kubectl("get", "configmap", "later")
	r := e.runProgram(e.slipway, "etcd", "status", clusterName)
	e.t.Logf("\n%s%s", r.out, r.err)
	want := "from the data of etcd-" + slots[0]
	if !strings.Contains(r.err, want) || !strings.Contains(r.err, "lost: writes after revision") {
		e.t.Errorf("etcd status does not say what was lost and %q", want)
	}
}

// awaitVolumes waits until the machines have created their volumes, one for each slot, and their members have joined. There is
// nothing to apply.
func awaitVolumes(e *environment) {
	start := time.Now()
	e.waitUntil("each slot has a volume", volumeDelay+6*time.Minute, func() error {
		if volumes := e.listVolumes(); len(volumes) != 3 {
			return fmt.Errorf("volumes: %v", volumes)
		}
		return nil
	})
	e.waitHealthy(6 * time.Minute)
	e.waitForMembers()
	took := time.Since(start)
	e.t.Logf("COUNT three members again on volumes that the machines have created: %s, of which %s are configured",
		took.Round(time.Second), volumeDelay)
	e.checkNewVolumesIn(took)
	e.checkPromoted(slices.Sorted(maps.Keys(e.listVolumes()))[1:]...)
	checkData(e)
	if r := e.runProgram(e.slipway, "plan", clusterName); r.code != 0 || !strings.Contains(r.out, "No changes") {
		e.t.Errorf("plan: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	all := e.listBackups()
	if !slices.ContainsFunc(all, func(b etcdBackup) bool {
		return b.Reason == "recovery" && b.Verification != nil && b.Verification.OK
	}) {
		e.t.Errorf("the survivor's data is not among the backups: %+v", all)
	}
}

// checkNewVolumesIn checks the time until all members vote again on volumes that the machines have created.
func (e *environment) checkNewVolumesIn(took time.Duration) {
	e.t.Helper()
	if late := took - volumeDelay; late > history.Limit(volumeLimit, e.slowness()) {
		e.t.Errorf("all members vote %s after the configured time, want at most %s", late.Round(time.Second), history.Limit(volumeLimit, e.slowness()).Round(time.Second))
	}
}

// waitForMembers waits until three members are healthy voters.
func (e *environment) waitForMembers() {
	e.t.Helper()
	e.waitUntil("the members are healthy", 3*time.Minute, func() error {
		r := e.runProgram(e.slipway, "etcd", "status", clusterName)
		if strings.Count(r.out, " true ") != 3 || strings.Contains(r.out, " learner ") {
			return fmt.Errorf("%s%s", r.out, r.err)
		}
		return nil
	})
}

// loseEverything loses all members and volumes. After the volumes were created, the machines restore the newest backup.
func loseEverything(e *environment) {
	e.runSlipway("etcd", "snapshot", clusterName)
	e.kubectl("create", "configmap", "unsaved", "--from-literal=x=y")
	e.loseSlots(slices.Sorted(maps.Keys(e.listVolumes()))...)
	r := e.runProgram(e.slipway, "apply", clusterName, "--yes", "--recreate-lost-volumes")
	if r.code != 0 {
		e.t.Fatalf("apply: exit status %d\n%s", r.code, r.err)
	}
	start := time.Now()
	e.waitHealthy(recoveryDelay + 8*time.Minute)
	e.waitForMembers()
	e.t.Logf("COUNT all members and volumes lost: three members again %s after the volumes were created, of which %s are configured",
		time.Since(start).Round(time.Second), recoveryDelay)
	checkData(e)
	if r := e.tryKubectl("get", "configmap", "unsaved"); r.code == 0 {
		e.t.Error("what was written after the backup is still there")
	}
	r = e.runProgram(e.slipway, "validate", "cluster", clusterName)
	e.t.Logf("\n%s%s", r.out, r.err)
	if !strings.Contains(r.out, "etcd was recovered") || !strings.Contains(r.out, "from backup") {
		e.t.Error("validate does not say what was lost")
	}
}
