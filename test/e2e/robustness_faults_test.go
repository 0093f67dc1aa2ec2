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
	"time"
)

// etcdFault is what happens to a machine of the control plane.
type etcdFault struct {
	name   string
	inject func(e *environment, machine string)
	// limit is how long no write may be acknowledged, see [history.Limit].
	limit time.Duration
	// leader faults are always of the machine of etcd's leader; others are so in half of all cases.
	leader bool
	// short faults are those of the short form.
	short bool
}

// The limits are what the design promises. Before there were tests, a paused leader stopped writes for 5 s, which is one election and one
// lost request, and two of three machines that ended for 42 to 55 s, which is more than bootLimit.
const (
	// faultDuration is how long a fault lasts that is ended again. No write may wait for its end: electionLimit is not longer.
	faultDuration = 8 * time.Second
	// clientTimeout is how long a client waits for the answer to a request. One that it has sent to the member that fails is lost, and it
	// sends the next one over another connection.
	clientTimeout = 3 * time.Second
	// longestElection: the members that are left wait for one to two times spec.etcd.electionTimeoutMS, which is a second by default.
	longestElection = 2 * time.Second
	// electionLimit is that of faults that leave a quorum: two elections, the first of which splits the vote, one request that is lost, and
	// a second for the request that is answered. The load balancer leaves a server out after two failed checks only, 10 to 14 s later, and
	// need not: each of the clients has connections of its own, and one of them reaches another server.
	electionLimit = 2*longestElection + clientTimeout + time.Second
	// bootLimit is that of faults that leave no quorum: the absence until one of the next machines runs etcd with the volume of its slot,
	// and then the election with it as above. A first boot of the demo until its API answers takes 22 s when nothing else runs
	// (docs/benchmarks.md); 10 s more are for other work.
	bootLimit = 32*time.Second + electionLimit
)

// etcdFaults are the kinds of faults. What does not heal without an operator ends before inject returns.
func etcdFaults() []etcdFault {
	return []etcdFault{
		{name: "etcd is killed", limit: electionLimit, inject: func(e *environment, machine string) {
			e.mustRunInMachine(machine, "kill -KILL $(pidof etcd)")
		}},
		{name: "etcd is paused", limit: electionLimit, inject: pauseEtcd},
		{name: "the leader of etcd is paused", limit: electionLimit, leader: true, short: true, inject: pauseEtcd},
		{name: "the member is cut off", limit: electionLimit, inject: func(e *environment, machine string) {
			e.breakFor(machine, dropPorts("2379, 2380"), rejoin)
		}},
		{name: "the machine is cut off", limit: electionLimit, short: true, inject: func(e *environment, machine string) {
			e.breakFor(machine, cutOff, rejoin)
		}},
		{name: "the disk is slow", limit: electionLimit, inject: func(e *environment, machine string) {
			e.slowDisk(machine)
		}},
		{name: "the disk hangs", limit: electionLimit, inject: func(e *environment, machine string) {
			e.breakFor(machine, "fsfreeze --freeze /var/lib/slipway/etcd", "fsfreeze --unfreeze /var/lib/slipway/etcd")
		}},
		{name: "the disk is full", limit: electionLimit, inject: fillDisk},
		{name: "the volume is detached", limit: electionLimit, inject: detachVolume},
		{name: "the machine is terminated", limit: electionLimit, inject: func(e *environment, machine string) {
			e.terminateAndWait(machine)
		}},
		{name: "two of three machines are terminated", limit: bootLimit, short: true, inject: func(e *environment, machine string) {
			all := slices.Sorted(maps.Keys(e.listMachines("control-plane")))
			next := all[(slices.Index(all, machine)+1)%len(all)]
			e.terminateAndWait(machine, next)
		}},
		{name: "the region's process is killed", limit: electionLimit, inject: func(e *environment, _ string) {
			e.killRegion()
			e.runSlipway("region", "start")
		}},
	}
}

// pauseEtcd pauses the etcd of a machine.
func pauseEtcd(e *environment, machine string) {
	stop, start := freeze("etcd")
	e.breakFor(machine, stop, start)
}

// fillDisk fills the etcd volume of a machine until validate has reported it, and for as long as other faults last at least.
func fillDisk(e *environment, machine string) {
	const available = "$(df -B1 --output=avail /var/lib/slipway/etcd | tail -1)"
	begin := time.Now()
	e.mustRunInMachine(machine, "fallocate -l "+available+" /var/lib/slipway/etcd/ballast || true; test "+available+" -lt 1048576")
	e.waitUntil("validate says that the etcd volume of "+machine+" is full", time.Minute, func() error {
		return e.findFault(realFault{machine: machine, severity: "failed", kind: "machine", cause: "is full"})
	})
	e.t.Logf("COUNT robustness: the full disk was reported after %s", time.Since(begin).Round(100*time.Millisecond))
	time.Sleep(faultDuration - time.Since(begin))
	e.mustRunInMachine(machine, "rm /var/lib/slipway/etcd/ballast")
}

// breakFor runs a script in a machine, and another one that ends its effect.
func (e *environment) breakFor(machine, apply, repair string) {
	e.t.Helper()
	e.mustRunInMachine(machine, apply)
	time.Sleep(faultDuration)
	e.mustRunInMachine(machine, repair)
}

// terminateAndWait terminates machines, and waits until others run in their place.
func (e *environment) terminateAndWait(machines ...string) {
	e.t.Helper()
	before := e.listMachines("control-plane")
	e.terminate(machines...)
	e.waitUntil("other machines run", 4*time.Minute, func() error {
		now := e.listMachines("control-plane")
		maps.DeleteFunc(now, func(id, _ string) bool { return slices.Contains(machines, id) })
		if len(now) < len(before) {
			return fmt.Errorf("machines %v", now)
		}
		return nil
	})
}

// detachVolume takes the volume of a machine away by force, and gives it back.
func detachVolume(e *environment, machine string) {
	volume := ""
	for _, v := range e.listVolumes() {
		if v[1] == machine {
			volume = v[0]
		}
	}
	for _, command := range [][]string{
		{"ec2", "detach-volume", "--force", "--volume-id", volume},
		{"ec2", "attach-volume", "--volume-id", volume, "--instance-id", machine, "--device", "/dev/xvdf"},
	} {
		if r := e.runProgram("aws", command...); r.code != 0 {
			e.t.Fatal(r.err)
		}
		time.Sleep(5 * time.Second)
	}
}

// slowDisk allows etcd four writes a second on its volume. It needs version 1 of the block controller of cgroups.
func (e *environment) slowDisk(machine string) {
	e.t.Helper()
	const controller = "/sys/fs/cgroup/blkio"
	if _, err := os.Stat(controller + "/cgroup.procs"); err != nil {
		e.t.Fatalf("cannot make the disk slow without version 1 of the block controller: %v", err)
	}
	process, group := e.findEtcd(machine)
	device := e.mustRunInMachine(machine, "findmnt -no MAJ:MIN /var/lib/slipway/etcd")
	slow := filepath.Join(controller, "slipway-e2e-"+machine)
	if err := os.Mkdir(slow, 0o755); err != nil {
		e.t.Fatal(err)
	}
	moveBack := func() error {
		if err := os.WriteFile(filepath.Join(controller, group, "cgroup.procs"), []byte(process), 0o644); err != nil {
			return fmt.Errorf("move process %s back: %w", process, err)
		}
		return os.Remove(slow)
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(slow, "blkio.throttle.write_iops_device"), []byte(device+" 4"), 0o644),
		os.WriteFile(filepath.Join(slow, "cgroup.procs"), []byte(process), 0o644),
	)
	if err == nil {
		time.Sleep(faultDuration)
	}
	if err := errors.Join(err, moveBack()); err != nil {
		e.t.Fatal(err)
	}
}

// findEtcd returns the process of etcd in a machine, as this computer counts, and its group of the block controller.
func (e *environment) findEtcd(machine string) (process, group string) {
	e.t.Helper()
	inside := e.mustRunInMachine(machine, "readlink /proc/self/ns/pid")
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		e.t.Fatal(err)
	}
	for _, file := range all {
		name, _ := os.ReadFile(file)
		folder := filepath.Dir(file)
		if space, _ := os.Readlink(folder + "/ns/pid"); space != inside || strings.TrimSpace(string(name)) != "etcd" {
			continue
		}
		groups, _ := os.ReadFile(folder + "/cgroup")
		for line := range strings.Lines(string(groups)) {
			if _, path, found := strings.Cut(strings.TrimSpace(line), ":blkio:"); found {
				return filepath.Base(folder), path
			}
		}
	}
	e.t.Fatalf("no process of etcd in %s", machine)

	return "", ""
}
