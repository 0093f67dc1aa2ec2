// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// controllerChannels are the channels that operators get.
func controllerChannels() []string {
	return []string{"../../examples/addons/channel.yaml", "../../examples/addons/local-volumes.yaml"}
}

// TestControllers installs the channels of examples/addons on machines, and uses each of their controllers.
func TestControllers(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createCluster},
		{"the channels are applied", applyControllers},
		{"kubectl top shows nodes and pods", checkTop},
		{"a claim survives its pod", checkClaim},
		{"the channel of certificates is applied", applyCertificates},
		{"a certificate is issued", checkCertificate},
		{"a published channel is kept applied", checkPublishedChannel},
		{"a channel follows a signed artifact", checkFollowedChannel},
		{"delete leaves nothing", func(e *environment) { e.runSlipway("delete", "cluster", clusterName, "--yes") }},
	})
}

// applyControllers applies each channel; nothing is left to do afterwards.
func applyControllers(e *environment) {
	for _, channel := range controllerChannels() {
		start := time.Now()
		e.t.Log("\n" + e.runSlipway("addons", "apply", clusterName, "-f", channel, "--yes"))
		e.t.Logf("COUNT %s is healthy after %s", filepath.Base(channel), time.Since(start).Round(time.Second))
		if r := e.runProgram(e.slipway, "addons", "diff", clusterName, "-f", channel); r.code != 0 {
			e.t.Errorf("exit status %d after an apply, want 0:\n%s%s", r.code, r.out, r.err)
		}
	}
}

// checkTop waits until metrics-server knows every machine and its own pod.
func checkTop(e *environment) {
	start := time.Now()
	var nodes string
	e.waitUntil("kubectl top shows every node", 3*time.Minute, func() error {
		r := e.tryKubectl("top", "nodes", "--no-headers")
		nodes = r.out
		if n := strings.Count(r.out, "%"); r.code != 0 || n != 10 { // processor and memory of 5 nodes
			return fmt.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
		}

		return nil
	})
	e.t.Logf("COUNT kubectl top shows every node after %s\n%s", time.Since(start).Round(time.Second), nodes)
	e.waitUntil("kubectl top shows the pod of metrics-server", time.Minute, func() error {
		r := e.tryKubectl("top", "pods", "-n", "kube-system", "-l", "k8s-app=metrics-server", "--no-headers")
		if r.code != 0 || !strings.HasPrefix(r.out, "metrics-server-") {
			return fmt.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
		}

		return nil
	})
}

// notebook is a claim, and a pod that runs a script with it.
const notebook = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: notebook, namespace: default}
spec: {accessModes: [ReadWriteOnce], storageClassName: local-path, resources: {requests: {storage: 10Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: notebook, namespace: default}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers:
  - name: main
    image: 198.18.0.1:5000/docker.io/library/busybox:1.35.0
    command: [/bin/sh, -c, %q]
    securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
    volumeMounts: [{name: notes, mountPath: /notes}]
  volumes: [{name: notes, persistentVolumeClaim: {claimName: notebook}}]
`

// checkClaim writes to the volume of a claim with one pod and reads it with another one. The volume goes with its claim.
func checkClaim(e *environment) {
	file := filepath.Join(e.t.TempDir(), "notebook.yaml")
	run := func(script string) {
		e.t.Helper()
		writeFile(e.t, file, fmt.Sprintf(notebook, script))
		e.kubectl("apply", "-f", file)
		e.kubectl("wait", "pod/notebook", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s", "--request-timeout=0")
	}
	run("echo written > /notes/page")
	volume := e.kubectl("get", "pvc", "notebook", "-o", "jsonpath={.spec.volumeName}")
	e.kubectl("delete", "pod", "notebook", "--wait")
	run("cat /notes/page")
	if got := e.kubectl("logs", "notebook"); got != "written\n" {
		e.t.Errorf("the second pod reads %q", got)
	}
	e.kubectl("delete", "-f", file, "--wait")
	e.waitUntil("the volume is deleted with its claim", time.Minute, func() error {
		if out := e.kubectl("get", "pv", volume, "--ignore-not-found", "-o", "name"); out != "" {
			return fmt.Errorf("%s is left", out)
		}

		return nil
	})
}

// checkPublishedChannel publishes the channel of metrics-server, deletes its Deployment by hand, and waits until the control
// plane has created it again.
func checkPublishedChannel(e *environment) {
	channel := controllerChannels()[0]
	e.t.Log("\n" + e.runSlipway("addons", "publish", clusterName, "-f", channel, "--yes"))
	start := time.Now()
	e.waitUntil("the control plane has read the channel", 3*time.Minute, func() error {
		out := e.runSlipway("addons", "channels", clusterName)
		if !strings.Contains(out, " Applied ") {
			return fmt.Errorf("the channels are\n%s", out)
		}

		return nil
	})
	e.t.Logf("COUNT the published channel is applied after %s", time.Since(start).Round(time.Second))

	before := e.kubectl("get", "deployment", "-n", "kube-system", "metrics-server", "-o", "jsonpath={.metadata.uid}")
	e.kubectl("delete", "deployment", "-n", "kube-system", "metrics-server")
	start = time.Now()
	e.waitUntil("the deleted Deployment is created again", 3*time.Minute, func() error {
		r := e.tryKubectl("get", "deployment", "-n", "kube-system", "metrics-server", "-o", "jsonpath={.metadata.uid}")
		if r.code != 0 || r.out == before {
			return fmt.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
		}

		return nil
	})
	e.t.Logf("COUNT the deleted Deployment is there again after %s", time.Since(start).Round(time.Second))
	if r := e.runProgram(e.slipway, "addons", "apply", clusterName, "-f", channel, "--yes"); r.code != 1 {
		e.t.Errorf("apply of a published channel has exit status %d:\n%s%s", r.code, r.out, r.err)
	}

	e.runSlipway("addons", "unpublish", "controllers", "--name", clusterName, "--yes")
}
