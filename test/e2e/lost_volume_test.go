// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// loseOneVolume loses one of three members with its volume, while the marker of the bootstrap is deleted. The two others work on, and the
// member without data starts nothing. Once the marker is there again, it is removed, joins as a learner on a volume that its machine
// creates, and becomes a voter.
func loseOneVolume(e *environment) {
	slots := slices.Sorted(maps.Keys(e.listVolumes()))
	lost := slots[len(slots)-1]
	former := e.listVolumes()[lost][0]
	version := e.deleteMarker()
	start := time.Now()
	e.loseSlots(lost)
	e.waitUntil("validate says that the marker is missing", volumeDelay+6*time.Minute, func() error {
		out := e.runProgram(e.slipway, "validate", "cluster", clusterName).out
		if !strings.Contains(out, "the etcd bootstrap marker is missing") {
			return errors.New(out)
		}
		return nil
	})
	e.kubectl("create", "configmap", "without-marker", "--from-literal=x=y")
	status := e.runProgram(e.slipway, "etcd", "status", clusterName).out
	if !regexp.MustCompile(`(?m)^etcd-` + lost + ` .* does not answer etcd-`).MatchString(status) {
		e.t.Errorf("the member without data has started without the marker:\n%s", status)
	}

	r := e.runProgram("aws", "s3api", "delete-object", "--bucket", bucket, "--key", markerKey, "--version-id", version)
	if r.code != 0 {
		e.t.Fatal(r.err)
	}
	e.waitHealthy(6 * time.Minute)
	e.waitForMembers()
	took := time.Since(start)
	volume := e.listVolumes()[lost][0]
	if volume == former || volume == "" {
		e.t.Errorf("slot %s has volume %q, and lost %s", lost, volume, former)
	}
	e.t.Logf("COUNT one of three volumes lost, with the marker deleted meanwhile: three voters again after %s, of which %s are configured",
		took.Round(time.Second), volumeDelay)
	e.checkNewVolumesIn(took)
	e.checkPromoted(lost)
	e.kubectl("get", "configmap", "without-marker")
	checkData(e)
}

// checkPromoted checks that the members of slots joined as learners, and were promoted by their machines.
func (e *environment) checkPromoted(slots ...string) {
	e.t.Helper()
	for machine, slot := range e.listMachines("control-plane") {
		if slices.Contains(slots, slot) {
			e.mustRunInMachine(machine, "journalctl -u slipway-node --no-pager | grep 'promoted etcd learner'")
		}
	}
}

// markerKey is the key of the marker of the bootstrap of etcd in the state bucket.
const markerKey = clusterName + "/machine/etcd/initialized"

// deleteMarker deletes the marker of the bootstrap, and returns the version of the deletion, which hides the marker in a bucket that
// keeps versions.
func (e *environment) deleteMarker() string {
	e.t.Helper()
	r := e.runProgram("aws", "s3api", "delete-object", "--bucket", bucket, "--key", markerKey)
	if r.code != 0 {
		e.t.Fatal(r.err)
	}
	var deleted struct {
		DeleteMarker bool
		VersionID    string
	}
	if err := json.Unmarshal([]byte(r.out), &deleted); err != nil {
		e.t.Fatalf("%v: %s", err, r.out)
	}
	if deleted.VersionID == "" || !deleted.DeleteMarker {
		e.t.Fatalf("the bucket keeps no versions: %s", r.out)
	}
	return deleted.VersionID
}
