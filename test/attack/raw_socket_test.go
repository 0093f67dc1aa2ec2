// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// forger is set in the environment of the process that tries to forge packets.
const forger = "SLIPWAY_ATTACK_FORGER"

// TestContainersForgeNoPackets: root in a container that asked for nothing opens a raw socket, with which it could answer in the
// name of other pods and of the DNS. It has the capabilities of the specification that containerd gets. Seen to succeed with
// containerd's own, which has NET_RAW.
func TestContainersForgeNoPackets(t *testing.T) {
	if os.Getenv(forger) != "" {
		tryToForge(t)
		return
	}

	program, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("SKIPPED: setpriv and root are needed to run a process with the capabilities of a container")
	}

	var spec struct {
		Process struct{ Capabilities map[string][]string }
	}
	if err := json.Unmarshal(kube.RuntimeSpec(), &spec); err != nil {
		t.Fatal(err)
	}

	bounding := spec.Process.Capabilities["bounding"]
	for name, c := range map[string]struct {
		capabilities []string
		want         string
	}{
		"the specification of containers": {bounding, "refused"},
		"a pod that asks for NET_RAW":     {append(slices.Clone(bounding), "CAP_NET_RAW"), "opened"},
	} {
		set := []string{"-all"}
		for _, capability := range c.capabilities {
			set = append(set, "+"+strings.ToLower(strings.TrimPrefix(capability, "CAP_")))
		}

		cmd := exec.CommandContext(t.Context(), program, "--bounding-set="+strings.Join(set, ","), "--inh-caps=-all", "--ambient-caps=-all",
			os.Args[0], "-test.run=^TestContainersForgeNoPackets$", "-test.v")
		cmd.Env = append(os.Environ(), forger+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "raw sockets: "+c.want) {
			t.Errorf("%s: want %s, got %v\n%s", name, c.want, err, out)
		}
	}
}

// tryToForge says whether this process may open raw sockets.
func tryToForge(t *testing.T) {
	t.Helper()
	answer := "opened"
	for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_PACKET} {
		s, err := unix.Socket(family, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		if err != nil {
			answer = "refused"
			continue
		}

		_ = unix.Close(s)
		if answer == "refused" {
			t.Error("one family is refused, and another one is not")
		}
	}

	t.Logf("raw sockets: %s", answer)
}
