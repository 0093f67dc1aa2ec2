// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// copyCluster is the cluster into which a backup of the cluster of the test is restored.
const copyCluster = "copy"

// maxSlowness is how many times as long as on the computer of docs/benchmarks.md a cluster may take to start, if the disasters are to
// end within what CI has left: they take 9 minutes there.
const maxSlowness = 1.75

// TestEtcdDisasters is the short form of TestControlPlaneSize, TestLostQuorum and TestRestoreElsewhere, on one cluster: its control plane
// grows and shrinks under load, two of three members and then all are lost with their volumes, and a backup is restored into another cluster.
func TestEtcdDisasters(t *testing.T) {
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createRecovering},
		{"data is written", writeData},
	})
	slow := e.slowness()
	t.Logf("COUNT disasters: the cluster was healthy %s after apply", e.created.Round(time.Second))
	if slow > maxSlowness {
		t.Skipf("e2e: this computer takes %.1f times as long to start a cluster as that of docs/benchmarks.md: make etcd-proof runs the disasters", slow)
	}
	e.runSteps(t, []step{
		{"the control plane grows to 5 and shrinks to 3 under load", changeSizeUnderLoad},
		{"two of three volumes are lost", loseMajority},
		{"the machines create lost volumes", awaitVolumes},
		{"all volumes are lost", loseEverything},
		{"a backup is restored into another cluster", restoreIntoCopy},
		{"delete leaves nothing", func(e *environment) {
			e.runSlipway("delete", "cluster", copyCluster, "--yes")
			deleteCluster(e)
		}},
	})
}

// restoreIntoCopy restores a backup of the cluster into a new one of one machine: its objects are there, also a Secret, which is encrypted with
// the key of the cluster that it comes from.
func restoreIntoCopy(e *environment) {
	e.kubectl("create", "secret", "generic", "password", "--from-literal=password=opensesame")
	id := strings.TrimSpace(e.runSlipway("etcd", "snapshot", clusterName))
	e.createOneMachine(copyCluster)
	e.runSlipway("validate", "cluster", copyCluster, "--wait", "5m")

	start := time.Now()
	e.runSlipway("etcd", "restore", id, "--from", clusterName, "--name", copyCluster, "--yes")
	e.runSlipway("validate", "cluster", copyCluster, "--wait", "8m")
	e.t.Logf("COUNT restored into another cluster: healthy after %s", time.Since(start).Round(time.Second))

	e.exportKubeconfigOf(copyCluster)
	e.waitUntil("the data of the cluster is in the other one", time.Minute, func() error {
		answer := e.kubectlOf(copyCluster, "get", "configmap", "survivor", "-o", "jsonpath={.data.answer}")
		password := e.kubectlOf(copyCluster, "get", "secret", "password", "-o", "jsonpath={.data.password}")
		if answer.out != "42" || password.out != "b3BlbnNlc2FtZQ==" {
			return errors.New(answer.out + answer.err + password.out + password.err)
		}
		return nil
	})
	checkData(e)
}
