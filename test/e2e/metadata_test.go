// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// hostPodManifest is a pod in the network of each machine, as an attacker with pods in kube-system has it.
const hostPodManifest = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: intruder, namespace: kube-system}
spec:
  selector: {matchLabels: {app: intruder}}
  template:
    metadata: {labels: {app: intruder}}
    spec:
      hostNetwork: true
      tolerations: [{operator: Exists}]
      containers:
      - name: intruder
        image: %s
        args: [serve, "127.0.0.1:18099"]
`

// checkHostPods checks that containers in the network of their machine do not reach its role, on workers and on the
// control plane, and not the join endpoint. Before the agent had rules for it, the service answered them: 401 without a token, and a token.
func checkHostPods(e *environment) { checkIntruders(e, 5) }

// checkIntruders is checkHostPods for a cluster with this many machines.
func checkIntruders(e *environment, machines int) {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "intruder.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, hostPodManifest, probeImage), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.kubectl("apply", "-f", file)
	e.kubectl("-n", "kube-system", "rollout", "status", "daemonset/intruder", "--timeout=120s")
	pods := strings.Fields(e.kubectl("-n", "kube-system", "get", "pods", "-l", "app=intruder", "-o", "name"))
	if len(pods) != machines {
		e.t.Fatalf("intruders on %d machines, want %d", len(pods), machines)
	}
	join := e.joinEndpoint()
	for _, pod := range pods {
		for what, url := range map[string]string{"metadata service": "http://169.254.169.254/latest/meta-data/", "join endpoint": join + "/healthz"} {
			r := e.tryKubectl("-n", "kube-system", "exec", pod, "--", "/probe", "get", url)
			if !strings.Contains(r.err+r.out, "refused") {
				e.t.Errorf("%s is not refused by the %s: exit status %d: %s%s", pod, what, r.code, r.out, r.err)
			}
		}
	}
	e.checkRawSockets()
	e.kubectl("-n", "kube-system", "delete", "daemonset/intruder", "--wait")
}

// checkRawSockets checks that the intruder, which asked for no capability, has no NET_RAW (13). containerd gives it to
// every container unless told otherwise. Its process is the one with the address as an argument: the shell that looks for
// it has the address in its script.
func (e *environment) checkRawSockets() {
	e.t.Helper()
	id := e.anyMachine("worker")
	line := e.mustRunInMachine(id, `for p in /proc/[0-9]*; do grep -sqxzF 127.0.0.1:18099 $p/cmdline && grep ^CapBnd $p/status && break; done`)
	_, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil || set == 0 || set&(1<<13) != 0 {
		e.t.Errorf("%s: a container's capabilities are %s, %v", id, line, err)
	}
}
