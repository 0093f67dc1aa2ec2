// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// The times of spec.repair of the control plane in the test: the least ones.
const (
	peerPatience = 2 * time.Minute
	peerAge      = 5 * time.Minute
)

// The longest times without an acknowledged write. A machine that is cut off keeps the connections of clients until it
// fails two health checks, 5 s apart and of up to 4 s each; one that ends closes them.
const (
	maxCutOffGap      = 30 * time.Second
	maxTerminationGap = 15 * time.Second
)

// TestControlPlaneRepair stops the kubelet of a control-plane machine for good. Another machine reports it to Auto Scaling,
// which replaces it: not while the others have no quorum without it, and while the API takes writes.
func TestControlPlaneRepair(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createImpatient},
		{"data is written", writeData},
		{"a control-plane machine without a kubelet is replaced", repairControlPlane},
		{"delete leaves nothing", deleteCluster},
	})
}

// createImpatient creates a cluster whose control plane is repaired as soon as a manifest can say.
func createImpatient(e *environment) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--yes")
	documents := strings.Split(e.runSlipway("get", "groups", clusterName, "-o", "yaml"), "\n---\n")
	former := regexp.MustCompile(`(?m)^  repair:\n(    .*\n)+`)
	found := false
	for i, d := range documents {
		if strings.Contains(d, "role: ControlPlane") && strings.Contains(d, "\nspec:\n") {
			found = true
			repair := fmt.Sprintf("\nspec:\n  repair:\n    notReadyFor: %s\n    minMachineAge: %s\n", peerPatience, peerAge)
			documents[i] = strings.Replace(former.ReplaceAllString(d, ""), "\nspec:\n", repair, 1)
		}
	}
	if !found {
		e.t.Fatalf("the manifests have no control plane:\n%s", strings.Join(documents, "\n---\n"))
	}
	file := filepath.Join(e.t.TempDir(), "groups.yaml")
	writeFile(e.t, file, strings.Join(documents, "\n---\n"))
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.exportKubeconfig()
	want := peerPatience.String() + " " + peerAge.String()
	for slot, g := range e.listSlotGroups() {
		at := slices.IndexFunc(g.Tags, func(t astypes.TagDescription) bool { return aws.ToString(t.Key) == "slipway.dev/repair" })
		if at < 0 || aws.ToString(g.Tags[at].Value) != want {
			e.t.Errorf("the group of slot %s does not have the tag slipway.dev/repair with %q: %+v", slot, want, g.Tags)
		}
	}
}

// listSlotGroups returns the Auto Scaling groups of the control plane by slot.
func (e *environment) listSlotGroups() map[string]astypes.AutoScalingGroup {
	e.t.Helper()
	found := map[string]astypes.AutoScalingGroup{}
	for _, slot := range []string{"a", "b", "c"} {
		out, err := autoscaling.NewFromConfig(e.aws).DescribeAutoScalingGroups(e.t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
			AutoScalingGroupNames: []string{slotGroup(slot)},
		})
		if err != nil || len(out.AutoScalingGroups) != 1 {
			e.t.Fatalf("the group of slot %s: %v", slot, err)
		}
		found[slot] = out.AutoScalingGroups[0]
	}
	return found
}

// slotGroup returns the name of the Auto Scaling group of a slot.
func slotGroup(slot string) string { return "control-plane-" + slot + "." + clusterName }

// maskKubelet stops the kubelet so that the agent cannot start it again: a mask here counts more than the unit's file,
// which the agent restores, and no command of systemd removes it.
const maskKubelet = `mkdir -p /etc/systemd/system.control && ln -s /dev/null /etc/systemd/system.control/kubelet.service &&
systemctl stop kubelet && systemctl daemon-reload && ! systemctl start kubelet && ! systemctl is-active -q kubelet`

// repairControlPlane cuts one machine of the control plane off, and stops the kubelet of the one that is elected for
// repairs. As long as the first one is away, the second one has to stay, because etcd would lose its quorum. Then the
// second one is replaced.
func repairControlPlane(e *environment) {
	machines := e.listMachines("control-plane")
	volumes := e.listVolumes()
	broken := e.findRepairLeader(machines)
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(machines)), func(id string) bool { return id == broken })
	if len(others) != 2 {
		e.t.Fatalf("machines %v", machines)
	}
	away := others[0]
	peer := others[1]
	e.t.Logf("%s loses its kubelet, %s is cut off, %s has to act", broken, away, peer)
	defer e.logUnits(peer, "slipway-node")

	// Otherwise the machine that is cut off would be the one to replace.
	replacing := []string{"--auto-scaling-group-name", slotGroup(machines[away]), "--scaling-processes", "ReplaceUnhealthy", "HealthCheck"}
	e.scaling(append([]string{"suspend-processes"}, replacing...)...)
	writes := e.startWriter()
	begin := time.Now()
	e.mustRunInMachine(away, cutOff)
	if out, err := e.runInMachine(broken, maskKubelet); err != nil {
		e.t.Fatalf("mask the kubelet of %s: %v\n%s", broken, err, out)
	}
	e.expectKept(machines, broken)
	e.checkWrites("repair of the control plane: a machine is cut off", writes.stop(), maxCutOffGap)
	e.t.Logf("COUNT repair of the control plane: no machine was replaced for %s without a quorum", time.Since(begin).Round(time.Second))

	writes = e.startWriter()
	begin = time.Now()
	e.mustRunInMachine(away, rejoin)
	e.waitUntil("the machine without a kubelet is replaced", 5*time.Minute, func() error {
		now := e.listMachines("control-plane")
		if _, there := now[broken]; there || len(now) != len(machines) {
			return fmt.Errorf("machines %v, before %v", now, machines)
		}
		return nil
	})
	e.t.Logf("COUNT repair of the control plane: another machine runs %s after etcd had a quorum without it", time.Since(begin).Round(time.Second))
	e.scaling(append([]string{"resume-processes"}, replacing...)...)
	e.waitHealthy(8 * time.Minute)
	e.t.Logf("COUNT repair of the control plane: healthy after %s", time.Since(begin).Round(time.Second))
	e.checkWrites("repair of the control plane", writes.stop(), maxTerminationGap)
	e.checkRepaired(machines, volumes, broken, peer)
}

// findRepairLeader returns the machine that is elected for repairs.
func (e *environment) findRepairLeader(machines map[string]string) (leader string) {
	e.t.Helper()
	e.waitUntil("a machine is elected for repairs", 3*time.Minute, func() error {
		r := e.tryKubectl("-n", "kube-system", "get", "lease", "slipway-repair", "-o", "jsonpath={.spec.holderIdentity}")
		leader = strings.TrimSpace(r.out)
		if _, known := machines[leader]; !known {
			return fmt.Errorf("holder %q: %s", leader, r.err)
		}
		return nil
	})
	return leader
}

// expectKept waits until validate says that a machine is not replaced for the lack of a quorum, and longer than the age
// from which machines are replaced. No machine may be reported or replaced in this time.
func (e *environment) expectKept(machines map[string]string, broken string) {
	e.t.Helper()
	want := "machine " + broken + " is not replaced: only 1 of 3 etcd members work without it: no quorum"
	check := func() error {
		r := e.runProgram(e.slipway, "validate", "cluster", clusterName, "-o", "json")
		if !strings.Contains(r.out, want) {
			return fmt.Errorf("validate does not say %q:\n%s%s", want, r.out, r.err)
		}
		return nil
	}
	e.waitUntil("the broken machine is kept, with the reason", peerPatience+5*time.Minute, func() error {
		e.checkNoneReplaced(machines)
		return check()
	})
	for until := e.lastLaunch().Add(peerAge + time.Minute); time.Now().Before(until); time.Sleep(5 * time.Second) {
		e.checkNoneReplaced(machines)
	}
	if err := check(); err != nil {
		e.t.Error(err)
	}
	e.t.Log(e.runProgram(e.slipway, "validate", "cluster", clusterName).out)
}

// checkNoneReplaced checks that Auto Scaling has these machines of the control plane, and believes that all are healthy.
func (e *environment) checkNoneReplaced(machines map[string]string) {
	e.t.Helper()
	for slot, g := range e.listSlotGroups() {
		for _, i := range g.Instances {
			if machines[aws.ToString(i.InstanceId)] != slot || aws.ToString(i.HealthStatus) != "Healthy" {
				e.t.Fatalf("slot %s: machine %s is %s and %s", slot, aws.ToString(i.InstanceId), aws.ToString(i.HealthStatus), i.LifecycleState)
			}
		}
		if len(g.Instances) != 1 {
			e.t.Fatalf("slot %s has %d machines", slot, len(g.Instances))
		}
	}
}

// lastLaunch returns when the youngest control-plane machine was launched.
func (e *environment) lastLaunch() (last time.Time) {
	e.t.Helper()
	out, err := ec2.NewFromConfig(e.aws).DescribeInstances(e.t.Context(), &ec2.DescribeInstancesInput{
		InstanceIds: slices.Collect(maps.Keys(e.listMachines("control-plane"))),
	})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			if launched := aws.ToTime(i.LaunchTime); launched.After(last) {
				last = launched
			}
		}
	}
	return last
}

// checkRepaired checks that one machine was replaced, by the one that had to act, and that its slot has kept its data.
func (e *environment) checkRepaired(machines map[string]string, volumes map[string][2]string, broken, peer string) {
	e.t.Helper()
	slot := machines[broken]
	now := e.listMachines("control-plane")
	for id := range machines {
		if _, there := now[id]; there == (id == broken) {
			e.t.Errorf("machine %s of %v, now %v", id, machines, now)
		}
	}
	if v := e.listVolumes()[slot]; v[0] != volumes[slot][0] || now[v[1]] != slot {
		e.t.Errorf("the volume of slot %s is %v, before %v; machines %v", slot, v, volumes[slot], now)
	}
	journal := e.mustRunInMachine(peer, "journalctl -u slipway-node --no-pager | grep 'reporting a control-plane machine as unhealthy'")
	if !strings.Contains(journal, broken) {
		e.t.Errorf("the journal of %s does not name %s:\n%s", peer, broken, journal)
	}
	e.t.Log(journal)
	record := e.kubectl("-n", "kube-system", "get", "lease", "slipway-repair", "-o", `jsonpath={.metadata.annotations.slipway\.dev/reported-peer}`)
	if !strings.HasPrefix(record, broken+" ") {
		e.t.Errorf("the lease says %q, want %s", record, broken)
	}
	e.waitForMembers()
	checkData(e)
	checkEmptyPlan(e)
}
