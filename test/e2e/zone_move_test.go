// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// TestZoneMove moves the only control-plane machine of a cluster to another zone and back: once while it works and clients write,
// without losing a write, and once after its machine is gone, from a backup.
func TestZoneMove(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createInTwoZones},
		{"data is written", writeData},
		{"the machine moves while it works", moveWorkingMachine},
		{"the machine moves after it was lost", moveLostMachine},
		{"delete leaves nothing", deleteCluster},
	})
}

// writeZoneManifest writes the manifests of a cluster of one machine in a zone, and returns the file.
func (e *environment) writeZoneManifest(zone string) string {
	e.t.Helper()
	body, err := os.ReadFile("../../examples/one-machine.yaml")
	if err != nil {
		e.t.Fatal(err)
	}
	text := strings.ReplaceAll(string(body), "one-machine", clusterName)
	first := "    - {name: public-a, type: Public, zone: " + region + "a}\n"
	if !strings.Contains(text, first) {
		e.t.Fatalf("the example is not as expected:\n%s", text)
	}
	text = strings.Replace(text, first, first+"    - {name: public-b, type: Public, zone: "+region+"b}\n", 1)
	text = strings.TrimRight(text, "\n") + "\n  subnets: [public-" + zone + "]\n"
	file := filepath.Join(e.t.TempDir(), "zone.yaml")
	writeFile(e.t, file, text)
	return file
}

func createInTwoZones(e *environment) {
	e.createFrom(e.writeZoneManifest("a"), 5*time.Minute)
}

// moveTo moves the machine to a zone. It returns the volume that was set aside.
func (e *environment) moveTo(zone string, flags ...string) string {
	e.t.Helper()
	volume := e.listVolumes()["a"][0]
	r := e.runProgram(e.slipway, "replace", "-f", e.writeZoneManifest(zone), "--yes")
	if r.code != 0 || !strings.Contains(r.err, "slipway etcd move") {
		e.t.Fatalf("replace: exit status %d\n%s", r.code, r.err)
	}
	if r := e.runProgram(e.slipway, "apply", clusterName, "--yes"); r.code == 0 || !strings.Contains(r.err, "slipway etcd move") {
		e.t.Fatalf("apply moved a volume: exit status %d\n%s", r.code, r.err)
	}
	start := time.Now()
	r = e.runProgram(e.slipway, append([]string{"etcd", "move", clusterName, "--yes"}, flags...)...)
	e.t.Logf("\n%s%s", r.out, r.err)
	if r.code != 0 || strings.Contains(r.err, "nothing is lost") != (len(flags) == 0) {
		e.t.Fatalf("etcd move: exit status %d", r.code)
	}
	e.waitHealthy(5 * time.Minute)
	e.t.Logf("COUNT etcd move: healthy after %s", time.Since(start).Round(time.Second))
	e.checkZone(zone, volume)
	if r := e.runProgram(e.slipway, "etcd", "move", clusterName, "--yes"); r.code != 0 || !strings.Contains(r.err, "nothing to move") {
		e.t.Errorf("a second move: exit status %d\n%s", r.code, r.err)
	}
	if r := e.runProgram(e.slipway, "plan", clusterName); r.code != 0 {
		e.t.Errorf("something differs after the move: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	return volume
}

// checkZone checks that one machine and one volume are in a zone, and that the data of the former one exists.
func (e *environment) checkZone(zone, former string) {
	e.t.Helper()
	client := ec2.NewFromConfig(e.aws)
	out, err := client.DescribeVolumes(e.t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{former, e.listVolumes()["a"][0]}})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, v := range out.Volumes {
		if isNew := *v.VolumeId != former; isNew != (aws.ToString(v.AvailabilityZone) == region+zone) {
			e.t.Errorf("volume %s is in %s", *v.VolumeId, *v.AvailabilityZone)
		}
	}
	machines := slices.Sorted(maps.Keys(e.listMachines("control-plane")))
	if len(machines) != 1 || e.listVolumes()["a"][1] != machines[0] {
		e.t.Errorf("machines %v, volumes %v", machines, e.listVolumes())
	}
}

// deleteVolume deletes a volume that was set aside.
func (e *environment) deleteVolume(id string) {
	e.t.Helper()
	e.waitUntil("volume "+id+" is deleted", 2*time.Minute, func() error {
		if r := e.runProgram("aws", "ec2", "delete-volume", "--volume-id", id); r.code != 0 {
			return errors.New(r.err)
		}
		return nil
	})
}

func moveWorkingMachine(e *environment) {
	writer := e.startWriter()
	former := e.moveTo("b")
	checkData(e)
	e.checkWrites("etcd move", writer.stop(), 10*time.Minute) // while the machine is replaced, there is no API
	e.deleteVolume(former)
}

// moveLostMachine ends the machine and restores a backup of before, as after the loss of a zone.
func moveLostMachine(e *environment) {
	id := strings.TrimSpace(e.runSlipway("etcd", "snapshot", clusterName))
	e.kubectl("create", "configmap", "unsaved", "--from-literal=x=y")
	e.terminate(slices.Sorted(maps.Keys(e.listMachines("control-plane")))...)
	former := e.moveTo("a", "--snapshot", id)
	checkData(e)
	if r := e.tryKubectl("get", "configmap", "unsaved"); r.code == 0 {
		e.t.Error("what was written after the backup is still there")
	}
	e.deleteVolume(former)
}
