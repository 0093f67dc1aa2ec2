// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// hostPortPod is a Pod of kube-system on one node, whose port is also one of its machine: node and image. Other namespaces may
// not have host ports.
const hostPortPod = `
apiVersion: v1
kind: Pod
metadata: {name: host-port, namespace: kube-system}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - name: probe
    image: %s
    args: [serve, ":8080"]
    ports: [{containerPort: 8080, hostPort: 18080}]
    readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
`

// checkHostPort reaches a Pod through a port of its machine, and not any more after the Pod is deleted.
func checkHostPort(e *environment, node string) {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "host-port.yaml")
	writeFile(e.t, file, fmt.Sprintf(hostPortPod, node, probeImage))
	machine := strings.TrimSpace(e.kubectl("get", "node", node, "-o", "jsonpath={.spec.providerID}"))
	machine = machine[strings.LastIndex(machine, "/")+1:]
	address := strings.TrimSpace(e.kubectl("get", "node", node, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`))
	ask := func() (string, error) {
		return e.runInMachine(machine, "curl -sf -m 2 http://"+address+":18080/hostname")
	}
	e.kubectl("apply", "-f", file)
	e.kubectl("wait", "-n", "kube-system", "pod/host-port", "--for=condition=Ready", "--timeout=60s")
	e.waitUntil("the port of the machine leads to the Pod", 30*time.Second, func() error {
		out, err := ask()
		if err != nil || !strings.Contains(out, "host-port") {
			return fmt.Errorf("%q: %w", out, errors.Join(err, textError(out)))
		}
		return nil
	})
	e.kubectl("delete", "-f", file, "--timeout=60s")
	e.waitUntil("the port of the machine is closed", 30*time.Second, func() error {
		if out, err := ask(); err == nil {
			return fmt.Errorf("answer %q", out)
		}
		return nil
	})
}
