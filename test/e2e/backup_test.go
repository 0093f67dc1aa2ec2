// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEtcdBackups takes and tests backups of a real cluster, defragments its etcd, and restores backups after data was deleted
// and after the volumes of all members were lost.
func TestEtcdBackups(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createCluster},
		{"data is written", writeData},
		{"etcd is backed up and defragmented", checkBackups},
		{"deleted data is restored", restoreDeletedData},
		{"all etcd volumes are lost", loseAllVolumes},
		{"delete leaves nothing", deleteCluster},
	})
}

// etcdBackup is what 'slipway etcd snapshots -o json' prints of a backup.
type etcdBackup struct {
	ID           string
	Reason       string
	Revision     int64
	Keys         int
	Verification *struct {
		OK    bool
		Error string
	}
}

func (e *environment) listBackups() []etcdBackup {
	e.t.Helper()
	var out []etcdBackup
	if err := json.Unmarshal([]byte(e.runSlipway("etcd", "snapshots", clusterName, "-o", "json")), &out); err != nil {
		e.t.Fatal(err)
	}
	return out
}

// checkBackups waits for the first backup, which is restored as a test, takes one on request, and defragments etcd.
func checkBackups(e *environment) {
	e.waitUntil("the first backup is tested", 2*time.Minute, func() error {
		all := e.listBackups()
		if len(all) == 0 || all[0].Verification == nil {
			return fmt.Errorf("the backups are %+v", all)
		}
		return nil
	})
	first := e.listBackups()[0]
	if !first.Verification.OK || first.Reason != "schedule" || first.Keys < 100 || first.Revision < 100 {
		e.t.Errorf("the first backup: %+v %+v", first, *first.Verification)
	}

	start := time.Now()
	id := strings.TrimSpace(e.runSlipway("etcd", "snapshot", clusterName))
	e.t.Logf("COUNT etcd snapshot: %s", time.Since(start).Round(100*time.Millisecond))
	all := e.listBackups()
	if last := all[len(all)-1]; last.ID != id || last.Reason != "request" || last.Revision <= first.Revision {
		e.t.Errorf("asked for %s, the newest backup is %+v", id, last)
	}
	e.t.Log("\n" + e.runSlipway("etcd", "snapshots", clusterName))
	if out := e.runSlipway("validate", "cluster", clusterName); !strings.Contains(out, "restored successfully in a test") {
		e.t.Errorf("validate does not show the backups:\n%s", out)
	}

	r := e.runProgram(e.slipway, "etcd", "defrag", clusterName, "--yes")
	e.t.Logf("\n%s%s", r.out, r.err)
	if r.code != 0 || strings.Count(r.err, " after, ") != 3 {
		e.t.Errorf("defrag: exit status %d", r.code)
	}
	r = e.runProgram(e.slipway, "etcd", "status", clusterName)
	e.t.Logf("\n%s%s", r.out, r.err)
	if r.code != 0 || strings.Count(r.out, " true ") != 3 || strings.Count(r.out, " leader ") != 1 {
		e.t.Errorf("status: exit status %d", r.code)
	}
	e.t.Log("\n" + e.runSlipway("etcd", "members", clusterName))
	checkData(e)
	if err := e.checkBackupSecrecy(id); err != nil {
		e.t.Error(err)
	}
}

// checkBackupSecrecy reads the parts of a backup with the AWS CLI.
func (e *environment) checkBackupSecrecy(id string) error {
	at := e.env["SLIPWAY_STATE"] + "/" + clusterName + "/machine/etcd/backups/" + id + "/part-00000"
	file := filepath.Join(e.t.TempDir(), "part")
	if r := e.runProgram("aws", "s3", "cp", at, file); r.code != 0 {
		return fmt.Errorf("read %s: %s", at, r.err)
	}
	body, err := os.ReadFile(file)
	if err != nil || len(body) < 100000 {
		return fmt.Errorf("%s has %d bytes: %w", at, len(body), err)
	}
	if bytes.Contains(body, []byte("/registry/configmaps/default/survivor")) {
		return errors.New("the backup is not encrypted")
	}
	return nil
}

// restoreDeletedData deletes data after a backup. The restoration brings it back, and removes what was written later.
func restoreDeletedData(e *environment) {
	id := strings.TrimSpace(e.runSlipway("etcd", "snapshot", clusterName))
	e.kubectl("delete", "configmap", "survivor")
	e.kubectl("create", "configmap", "later", "--from-literal=x=y")
	e.restore(id)
	checkData(e)
	if r := e.tryKubectl("get", "configmap", "later"); r.code == 0 {
		e.t.Error("what was written after the backup is still there")
	}
}

// restore restores a backup, and waits until the cluster is healthy.
func (e *environment) restore(id string) {
	e.t.Helper()
	start := time.Now()
	r := e.runProgram(e.slipway, "etcd", "restore", id, "--name", clusterName, "--yes")
	e.t.Logf("\n%s%s", r.out, r.err)
	if r.code != 0 {
		e.t.Fatalf("restore: exit status %d", r.code)
	}
	e.t.Logf("COUNT etcd restore: %s", time.Since(start).Round(100*time.Millisecond))
	e.waitHealthy(5 * time.Minute)
}

// loseAllVolumes terminates the control plane and deletes the volumes of all members. New machines wait with empty volumes
// until the newest backup is restored.
func loseAllVolumes(e *environment) {
	id := strings.TrimSpace(e.runSlipway("etcd", "snapshot", clusterName))
	var machines []string
	for machine := range e.listMachines("control-plane") {
		machines = append(machines, machine)
	}
	// Replacements would attach the volumes again before they are deleted.
	volumes := e.listVolumes()
	for slot := range volumes {
		e.scaling("suspend-processes", "--auto-scaling-group-name", "control-plane-"+slot+"."+clusterName, "--scaling-processes", "Launch")
	}
	e.terminate(machines...)
	for _, v := range volumes {
		e.waitUntil("volume "+v[0]+" is deleted", 3*time.Minute, func() error {
			if r := e.runProgram("aws", "ec2", "delete-volume", "--volume-id", v[0]); r.code != 0 && !strings.Contains(r.err, "NotFound") {
				return errors.New(r.err)
			}
			return nil
		})
	}
	for slot := range volumes {
		e.scaling("resume-processes", "--auto-scaling-group-name", "control-plane-"+slot+"."+clusterName, "--scaling-processes", "Launch")
	}
	r := e.runProgram(e.slipway, "apply", clusterName, "--yes", "--recreate-lost-volumes")
	if r.code != 0 {
		e.t.Fatalf("apply: exit status %d\n%s", r.code, r.err)
	}
	e.waitUntil("three machines run", 3*time.Minute, func() error {
		if n := len(e.listMachines("control-plane")); n != 3 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	e.restore(id)
	checkData(e)
}
