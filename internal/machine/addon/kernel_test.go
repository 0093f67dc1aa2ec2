// SPDX-License-Identifier: Apache-2.0

package addon_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/slipway-k8s/slipway/internal/machine/addon"
)

// TestConnectionsWaitForKubeProxy plays the update of kube-proxy in a network namespace: a connection that is opened after
// the init container has removed the rules, and before kube-proxy has written them again, is made as soon as they are there.
func TestConnectionsWaitForKubeProxy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root on Linux")
	}
	for _, program := range []string{"nft", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("SKIPPED: this machine has no " + program)
		}
	}
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if _, err := netns.New(); err != nil {
		t.Skipf("SKIPPED: no network namespace: %v", err)
	}

	// What leaves through the default route disappears, as in a VPC.
	runScript(t, `ip link set lo up
ip link add uplink type veth peer name nowhere
ip link set nowhere up
ip address add 192.0.2.2/24 dev uplink
ip link set uplink up
ip route add default via 192.0.2.1
ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev uplink`)
	server, err := net.Listen("tcp", "192.0.2.2:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	const rules = `nft 'add table ip kube-proxy
add chain ip kube-proxy nat-output { type nat hook output priority -100; }
add rule ip kube-proxy nat-output ip daddr 10.96.7.7 tcp dport 80 dnat to 192.0.2.2:8080'`
	runScript(t, rules)
	connect(t, "with rules")
	for range 2 { // kube-proxy is updated more than once
		runInit(t)
		later := exec.Command("sh", "-c", "sleep 0.3; "+rules)
		if err := later.Start(); err != nil {
			t.Fatal(err)
		}
		connect(t, "before the rules")
		if err := later.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// connect opens a connection to the Service.
func connect(t *testing.T, when string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", "10.96.7.7:80", 5*time.Second)
	if err != nil {
		t.Fatalf("a connection that is opened %s: %v", when, err)
	}
	c.Close()
}

// runInit runs the commands of kube-proxy's init containers.
func runInit(t *testing.T) {
	t.Helper()
	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []struct{ Command []string }
				}
			}
		}
	}
	for _, o := range objects {
		if strings.HasSuffix(o.Path, "/daemonsets/kube-proxy") {
			if err := json.Unmarshal(o.Body, &set); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(set.Spec.Template.Spec.InitContainers) == 0 {
		t.Fatal("kube-proxy has no init container")
	}
	for _, c := range set.Spec.Template.Spec.InitContainers {
		if out, err := exec.Command(c.Command[0], c.Command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", c.Command, err, out)
		}
	}
}

// runScript runs a shell script in the namespace of this thread.
func runScript(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
