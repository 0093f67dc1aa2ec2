// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// formerCluster is the cluster whose backup is restored into another one.
const formerCluster = "former"

// TestRestoreElsewhere restores a backup of one cluster into a new one: objects, Secrets that were encrypted with the key of the
// former cluster, and workloads are there, and Nodes of the former machines are not.
func TestRestoreElsewhere(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"two clusters", createTwoClusters},
		{"the backup of one is restored into the other", restoreElsewhere},
		{"the other cluster is not changed", checkFormerCluster},
		{"both are deleted", func(e *environment) {
			e.runSlipway("delete", "cluster", formerCluster, "--yes")
			deleteCluster(e)
		}},
	})
}

// createTwoClusters creates two clusters of one machine each.
func createTwoClusters(e *environment) {
	e.runSlipway("state", "init", "--yes")
	for _, name := range []string{formerCluster, clusterName} {
		e.createOneMachine(name)
	}
	e.runSlipway("validate", "cluster", formerCluster, "--wait", "5m")
	e.waitHealthy(5 * time.Minute)
	for _, name := range []string{formerCluster, clusterName} {
		e.exportKubeconfigOf(name)
	}
}

// createOneMachine creates a cluster of one machine.
func (e *environment) createOneMachine(name string) {
	e.t.Helper()
	body, err := os.ReadFile("../../examples/one-machine.yaml")
	if err != nil {
		e.t.Fatal(err)
	}
	file := filepath.Join(e.t.TempDir(), name+".yaml")
	writeFile(e.t, file, strings.ReplaceAll(string(body), "one-machine", name))
	e.runSlipway("create", "-f", file, "--yes")
	e.runSlipway("apply", name, "--yes")
}

// kubeconfigOf is the kubeconfig of a cluster.
func (e *environment) kubeconfigOf(name string) string {
	if name == clusterName {
		return e.kubeconfig()
	}

	return filepath.Join(e.cache, "kubeconfig-"+name)
}

// exportKubeconfigOf writes a new kubeconfig of a cluster.
func (e *environment) exportKubeconfigOf(name string) {
	e.t.Helper()
	os.Remove(e.kubeconfigOf(name))
	e.runSlipway("export", "kubeconfig", name, "--kubeconfig", e.kubeconfigOf(name))
}

// kubectlOf runs kubectl against a cluster.
func (e *environment) kubectlOf(name string, args ...string) commandResult {
	e.t.Helper()
	args = append([]string{"--kubeconfig", e.kubeconfigOf(name), "--request-timeout=15s"}, args...)

	return e.runProgram(kubectlPath(filepath.Dir(e.cache)), args...)
}

// kubectlOfFormer runs kubectl against the former cluster, and fails the test unless it exits with 0.
func (e *environment) kubectlOfFormer(args ...string) string {
	e.t.Helper()
	r := e.kubectlOf(formerCluster, args...)
	if r.code != 0 {
		e.t.Fatalf("kubectl of %s: exit status %d\n%s", formerCluster, r.code, r.err)
	}

	return r.out
}

// probeDeployment is a workload: its image.
const probeDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: probe}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: probe, image: %s, args: [serve, ":8080"], readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2}}
`

func restoreElsewhere(e *environment) {
	e.kubectlOfFormer("create", "configmap", "survivor", "--from-literal=answer=42")
	e.kubectlOfFormer("create", "secret", "generic", "password", "--from-literal=password=opensesame")
	file := filepath.Join(e.t.TempDir(), "deployment.yaml")
	writeFile(e.t, file, fmt.Sprintf(probeDeployment, probeImage))
	e.kubectlOfFormer("apply", "-f", file)
	formerNodes := strings.Fields(e.kubectlOfFormer("get", "nodes", "-o", "jsonpath={.items[*].spec.providerID}"))
	id := strings.TrimSpace(e.runSlipway("etcd", "snapshot", formerCluster))

	start := time.Now()
	r := e.runProgram(e.slipway, "etcd", "restore", id, "--from", formerCluster, "--name", clusterName, "--yes")
	if e.t.Logf("\n%s%s", r.out, r.err); r.code != 0 {
		e.t.Fatalf("restore: exit status %d", r.code)
	}
	e.waitHealthy(8 * time.Minute)
	e.t.Logf("COUNT restored into another cluster: healthy after %s", time.Since(start).Round(time.Second))

	checkData(e)
	password := e.kubectl("get", "secret", "password", "-o", "jsonpath={.data.password}")
	if password != "b3BlbnNlc2FtZQ==" {
		e.t.Errorf("the Secret of the former cluster is %q", password)
	}
	e.waitUntil("only nodes of this cluster exist", 3*time.Minute, func() error {
		all := e.tryKubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.providerID}")
		for _, node := range formerNodes {
			if all.code != 0 || strings.Contains(all.out, node) {
				return errors.New(all.out + all.err)
			}
		}
		return nil
	})
	e.waitUntil("the Deployment runs here", 3*time.Minute, func() error {
		if r := e.tryKubectl("rollout", "status", "deployment", "probe", "--timeout=5s"); r.code != 0 {
			return errors.New(r.err)
		}
		return nil
	})
}

// checkFormerCluster checks that the former cluster is as it was.
func checkFormerCluster(e *environment) {
	e.runSlipway("validate", "cluster", formerCluster, "--wait", "2m")
	if got := e.kubectlOfFormer("get", "configmap", "survivor", "-o", "jsonpath={.data.answer}"); got != "42" {
		e.t.Errorf("the ConfigMap contains %q, want 42", got)
	}
}
