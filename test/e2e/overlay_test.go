// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// wireScript reads what a machine's network interface sends and receives for 20 seconds, and prints how many packets it saw and
// how many of them have the request of a probe in plain text.
const wireScript = `python3 - <<'end'
import socket, time
device = next(l.split()[0] for l in open('/proc/net/route') if l.split()[1] == '00000000')
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((device, 0))
s.settimeout(1)
end = time.time() + 20
seen = plain = 0
while time.time() < end:
    try:
        packet = s.recv(65536)
    except TimeoutError:
        continue
    seen += 1
    plain += b'GET /hostname' in packet
print(seen > 0, plain)
end`

// TestEncryptedOverlay creates a cluster with an encrypted pod network. Pods of two machines speak, and nobody between the
// machines reads what they say.
func TestEncryptedOverlay(t *testing.T) {
	skipUnlessLong(t)
	requireWireGuard(t)
	e := newEnvironment(t)
	e.runSlipway("state", "init", "--yes")
	text := e.runSlipway(
		"create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--control-plane-count", "1",
		"--dry-run", "-o", "yaml",
	)
	encrypted := strings.Replace(text, "backend: VXLAN", "backend: WireGuard", 1)
	if encrypted == text {
		t.Fatalf("the manifest has no backend:\n%s", text)
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(encrypted), 0o600); err != nil {
		t.Fatal(err)
	}
	e.runSlipway("create", "-f", file, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.exportKubeconfig()
	checkPodNetwork(e)

	pods := strings.Fields(e.kubectl("get", "pods", "-l", "app=probe", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.podIP}={.spec.nodeName} {end}`))
	first, second := strings.Split(pods[0], "="), strings.Split(pods[1], "=")
	machine, _, _ := strings.Cut(second[2], ".") // nodes are named by their instances
	type result struct {
		out string
		err error
	}
	read := make(chan result, 1)
	go func() {
		out, err := e.runInMachine(machine, wireScript)
		read <- result{out, err}
	}()
	for until := time.Now().Add(15 * time.Second); time.Now().Before(until); time.Sleep(time.Second) {
		e.kubectl("exec", first[0], "--", "/probe", "get", "http://"+second[1]+":8080/hostname")
	}
	if got := <-read; got.err != nil || strings.TrimSpace(got.out) != "True 0" {
		t.Errorf("on the wire: %q, %v; want packets, and none in plain text", got.out, got.err)
	}
}

// requireWireGuard skips t, with the reason, if the kernel of this computer, which is that of the machines, has no WireGuard.
func requireWireGuard(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a look at the kernel needs root")
	}
	const device = "slipway-wg-test"
	out, err := exec.Command("ip", "link", "add", device, "type", "wireguard").CombinedOutput()
	if err != nil {
		t.Skipf("SKIPPED: this machine's kernel has no WireGuard: %v %s", err, bytes.TrimSpace(out))
	}
	if out, err := exec.Command("ip", "link", "delete", device).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}
