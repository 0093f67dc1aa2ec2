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

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// TestZoneMove moves the only control-plane machine of a cluster to another zone, back, and there again: while it works and clients
// write, without losing a write; after its machine is gone, from a backup that is named; and after its zone is gone, with --zone-is-down,
// from the newest backup, while the machine runs on where nobody reaches it.
func TestZoneMove(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createInTwoZones},
		{"data is written", writeData},
		{"the machine moves while it works", moveWorkingMachine},
		{"the machine moves after it was lost", moveLostMachine},
		{"the machine moves after its zone was lost", moveFromLostZone},
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
	text = strings.Replace(text, "\nspec:\n", "\nspec:\n  etcd: {backup: {verifyEvery: 1}}\n", 1)
	text = strings.TrimRight(text, "\n") + "\n  subnets: [public-" + zone + "]\n"
	file := filepath.Join(e.t.TempDir(), "zone.yaml")
	writeFile(e.t, file, text)
	return file
}

func createInTwoZones(e *environment) {
	e.createFrom(e.writeZoneManifest("a"), 5*time.Minute)
}

// moveTo moves the machine to a zone. It returns the volume that was set aside, and what the command said. Without flags, nothing may be
// lost.
func (e *environment) moveTo(zone string, flags ...string) (former, told string) {
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
	told = r.out + r.err
	e.t.Logf("\n%s", told)
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
	return volume, told
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
	former, _ := e.moveTo("b")
	checkData(e)
	e.checkWrites("etcd move", writer.stop(), 10*time.Minute) // while the machine is replaced, there is no API
	e.deleteVolume(former)
}

// moveLostMachine ends the machine and restores a backup of before.
func moveLostMachine(e *environment) {
	id := strings.TrimSpace(e.runSlipway("etcd", "snapshot", clusterName))
	e.kubectl("create", "configmap", "unsaved", "--from-literal=x=y")
	e.terminate(anyKey(e.listMachines("control-plane")))
	former, told := e.moveTo("a", "--snapshot", id)
	e.checkRestored(id, told)
	e.deleteVolume(former)
}

// checkRestored checks that a move has restored a backup and said what is lost: the ConfigMap unsaved, which was written later.
func (e *environment) checkRestored(id, told string) {
	e.t.Helper()
	checkData(e)
	if r := e.tryKubectl("get", "configmap", "unsaved"); r.code == 0 {
		e.t.Error("what was written after the backup is still there")
	}
	if before, lost, found := strings.Cut(told, "from backup "+id+"; what was written after "); !found || !strings.Contains(lost, " is lost") ||
		!strings.Contains(before, "Everything that was written after ") {
		e.t.Errorf("etcd move does not say, before and after it, that backup %s is restored and what is lost", id)
	}
}

// moveFromLostZone cuts the machine off, and EC2 does not end it, as when its zone is down. The newest backup is restored in another zone,
// and stays the data of the cluster when the zone is back.
func moveFromLostZone(e *environment) {
	e.kubectl("create", "configmap", "saved", "--from-literal=x=y")
	id := e.takeTestedBackup()
	e.kubectl("create", "configmap", "unsaved", "--from-literal=x=y")
	machine := anyKey(e.listMachines("control-plane"))
	e.runSlipway("region", "faults", "add", "--effect", "provision", "--kind", "instance-deletion", "--delay", "1h")
	e.mustRunInMachine(machine, cutOff)

	former, told := e.moveTo("b", "--zone-is-down")
	e.checkRestored(id, told)
	e.kubectl("get", "configmap", "saved")
	if strings.Contains(told, id+", not tested") {
		e.t.Errorf("backup %s was not tested when it was chosen", id)
	}
	if state := e.stateOf(machine); state != "shutting-down" {
		e.t.Errorf("machine %s of the lost zone is %s: the move did not go on without its end", machine, state)
	}

	e.kubectl("create", "configmap", "later", "--from-literal=x=y")
	e.mustRunInMachine(machine, rejoin) // the zone is back, and the former machine with its data is in the network
	time.Sleep(20 * time.Second)        // twice as long as machines take to read that there was a restoration
	e.kubectl("get", "configmap", "later")
	e.checkRestored(id, told)
	e.runSlipway("region", "faults", "clear")
	e.waitUntil("machine "+machine+" has ended", 2*time.Minute, func() error {
		if state := e.stateOf(machine); state != "terminated" {
			return errors.New("it is " + state)
		}
		return nil
	})
	e.deleteVolume(former)
	e.waitHealthy(2 * time.Minute)
}

// takeTestedBackup takes a backup, waits until it was tested, and returns its id.
func (e *environment) takeTestedBackup() string {
	e.t.Helper()
	id := strings.TrimSpace(e.runSlipway("etcd", "snapshot", clusterName))
	e.waitUntil("backup "+id+" is tested", 3*time.Minute, func() error {
		all := e.listBackups()
		at := slices.IndexFunc(all, func(b etcdBackup) bool { return b.ID == id })
		if at < 0 || at != len(all)-1 || all[at].Verification == nil || !all[at].Verification.OK {
			return fmt.Errorf("the backups are %+v", all)
		}
		return nil
	})

	return id
}

// stateOf returns the state of a machine in EC2.
func (e *environment) stateOf(machine string) string {
	e.t.Helper()
	r := e.runProgram("aws", "ec2", "describe-instances", "--instance-ids", machine,
		"--query", "Reservations[0].Instances[0].State.Name", "--output", "text")
	if r.code != 0 {
		e.t.Fatal(r.err)
	}

	return strings.TrimSpace(r.out)
}
