// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/history"
)

// TestControlPlaneSize changes the control plane of a cluster under load from 1 to 3 and 5 machines, and back to 3.
func TestControlPlaneSize(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up with one control-plane machine", createSmallCluster},
		{"the control plane grows from 1 to 3 under load", growToThree},
		{"the control plane grows to 5 and shrinks to 3 under load", changeSizeUnderLoad},
		{"delete leaves nothing", func(e *environment) { e.runSlipway("delete", "cluster", clusterName, "--yes") }},
	})
}

// createSmallCluster creates a cluster with one control-plane machine and two workers.
func createSmallCluster(e *environment) {
	e.runSlipway("state", "init", "--yes")
	zones := region + "a," + region + "b," + region + "c"
	e.runSlipway("create", "cluster", clusterName, "--zones", zones, "--control-plane-count", "1", "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.exportKubeconfig()
	e.checkMembers("etcd-a")
}

// setControlPlaneSize writes another number of control-plane machines into the manifest.
func (e *environment) setControlPlaneSize(n int) {
	e.t.Helper()
	documents := strings.Split(e.runSlipway("get", "groups", clusterName, "-o", "yaml"), "\n---\n")
	sizes := regexp.MustCompile(`(?m)^  (minSize|maxSize):.*\n`)
	for i, d := range documents {
		if strings.Contains(d, "role: ControlPlane") {
			d = sizes.ReplaceAllString(d, "")
			documents[i] = strings.Replace(d, "\nspec:\n", fmt.Sprintf("\nspec:\n  minSize: %d\n  maxSize: %d\n", n, n), 1)
		}
	}
	file := filepath.Join(e.t.TempDir(), "groups.yaml")
	writeFile(e.t, file, strings.Join(documents, "\n---\n"))
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
}

// checkMembers waits until etcd has these voters, and nothing else.
func (e *environment) checkMembers(want ...string) {
	e.t.Helper()
	e.waitUntil(fmt.Sprintf("etcd has the members %v", want), 8*time.Minute, func() error {
		r := e.runProgram(e.slipway, "etcd", "status", clusterName)
		var have []string
		for line := range strings.Lines(r.out) {
			fields := strings.Fields(line)
			if len(fields) > 3 && strings.HasPrefix(fields[0], "etcd-") && fields[1] != "learner" && fields[2] == "true" {
				have = append(have, fields[0])
			}
		}
		if slices.Sort(have); !slices.Equal(have, want) {
			return fmt.Errorf("members %v\n%s%s", have, r.out, r.err)
		}
		return nil
	})
}

// grow sets a larger number of control-plane machines, and waits until etcd has these members. No machine of before may be replaced.
func (e *environment) grow(before map[string]string, members ...string) {
	e.t.Helper()
	from := len(before)
	e.setControlPlaneSize(len(members))
	last := strings.TrimPrefix(members[len(members)-1], "etcd-")
	r := e.runProgram(e.slipway, "plan", clusterName)
	if r.code != 2 || !strings.Contains(r.out, "autoscaling-group/control-plane-"+last) {
		e.t.Fatalf("plan: exit status %d\n%s%s", r.code, r.out, r.err)
	}

	begin := time.Now()
	e.runSlipway("apply", clusterName, "--yes")
	e.checkMembers(members...)
	e.waitHealthy(8 * time.Minute)
	e.t.Logf("COUNT control plane size: from %d to %d machines in %s", from, len(members), time.Since(begin).Round(time.Second))
	for id := range before {
		if _, there := e.listMachines("control-plane")[id]; !there {
			e.t.Errorf("machine %s was replaced", id)
		}
	}
}

// growToThree grows the control plane of one machine, while a client writes to the API and another one sends requests.
func growToThree(e *environment) {
	before := e.listMachines("control-plane")
	if len(before) != 1 {
		e.t.Fatalf("control-plane machines %v, want one", before)
	}

	load := e.putUnderLoad("control plane size, from 1 to 3", anyKey(e.listMachines("worker")))
	e.grow(before, "etcd-a", "etcd-b", "etcd-c")
	load.stop(history.Limit(maxWriteGap(), e.slowness()))
}

// changeSizeUnderLoad grows and shrinks the control plane while a client writes to the API and another one sends requests.
func changeSizeUnderLoad(e *environment) {
	before := e.listMachines("control-plane")
	load := e.putUnderLoad("control plane size", anyKey(e.listMachines("worker")))
	e.grow(before, "etcd-a", "etcd-b", "etcd-c", "etcd-d", "etcd-e")

	e.setControlPlaneSize(3)
	if r := e.runProgram(e.slipway, "apply", clusterName, "--yes"); r.code == 0 || !strings.Contains(r.err, "--destroy-data") {
		e.t.Fatalf("data was destroyed without --destroy-data: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	begin := time.Now()
	e.runSlipway("apply", clusterName, "--destroy-data", "--yes")
	e.t.Logf("COUNT control plane size: from 5 to 3 machines in %s", time.Since(begin).Round(time.Second))
	e.checkMembers("etcd-a", "etcd-b", "etcd-c")
	e.waitHealthy(8 * time.Minute)
	load.stop(history.Limit(maxWriteGap(), e.slowness()))
	if have := e.listMachines("control-plane"); len(have) != len(before) {
		e.t.Errorf("%d control-plane machines: %v", len(have), have)
	}
	if r := e.runProgram(e.slipway, "plan", clusterName); r.code != 0 {
		e.t.Errorf("there is something left to do:\n%s%s", r.out, r.err)
	}
}
