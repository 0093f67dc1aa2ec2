// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// withoutNft is user data that takes the program nft from a machine before its agent starts. Debian's image for EC2 has none.
const withoutNft = `
  additionalUserData:
  - name: without-nft
    type: text/cloud-boothook
    content: |
      #!/bin/sh
      mv /usr/sbin/nft /usr/sbin/nft.away
      true
`

// copiedNft is the program of such a machine.
const copiedNft = "/var/lib/slipway/nft/bin/nft"

// TestMachinesWithoutNft creates one control-plane machine and two workers whose image has no nft. Their packet filters are
// loaded with that of kube-proxy's image, also when the image is deleted, the copy is damaged, or the machine boots again.
func TestMachinesWithoutNft(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"a cluster of machines without nft", createMachinesWithoutNft},
		{"packet filters are loaded", checkFiltersWithoutNft},
		{"containers in the network of a machine reach no metadata", func(e *environment) { checkIntruders(e, 3) }},
		{"network policies and host ports work", checkPodNetwork},
		{"filters are loaded again without the image", checkFiltersWithoutImage},
		{"a damaged copy is replaced", checkDamagedNft},
		{"filters are loaded after a boot", checkFiltersAfterBoot},
		{"delete leaves nothing", deleteCluster},
	})
}

func createMachinesWithoutNft(e *environment) {
	body, err := os.ReadFile("../../examples/elastic-ip.yaml")
	if err != nil {
		e.t.Fatal(err)
	}
	text := strings.ReplaceAll(string(body), "name: elastic-ip", "name: "+clusterName)
	for _, role := range []string{"ControlPlane", "Worker"} {
		line := "\n  role: " + role + "\n"
		if !strings.Contains(text, line) {
			e.t.Fatalf("the example has no%s", line)
		}
		text = strings.Replace(text, line, strings.TrimSuffix(line, "\n")+withoutNft, 1)
	}
	file := filepath.Join(e.t.TempDir(), "cluster.yaml")
	writeFile(e.t, file, text)
	e.createFrom(file, 10*time.Minute)
}

// allMachines returns the machines of both roles.
func (e *environment) allMachines() []string {
	e.t.Helper()
	return slices.Concat(
		slices.Sorted(maps.Keys(e.listMachines("control-plane"))), slices.Sorted(maps.Keys(e.listMachines("worker"))),
	)
}

func checkFiltersWithoutNft(e *environment) {
	machines := e.allMachines()
	if len(machines) != 3 {
		e.t.Fatalf("the machines are %q, want 3", machines)
	}
	for _, id := range machines {
		if out, err := e.runInMachine(id, "command -v nft"); err == nil {
			e.t.Errorf("%s has the program %s", id, out)
		}
		e.checkGuardTable(id)
		if out := e.mustRunInMachine(id, "grep nft-image /proc/self/mountinfo || true"); out != "" {
			e.t.Errorf("%s has the image still mounted: %s", id, out)
		}
		if out := e.mustRunInMachine(id, "du -sm /var/lib/slipway/nft | cut -f1"); len(out) > 1 {
			e.t.Errorf("the copy on %s has %s MiB", id, out)
		}
	}
}

// checkGuardTable checks that a machine has the rules that guard the metadata service and the join endpoint.
func (e *environment) checkGuardTable(id string) {
	e.t.Helper()
	e.waitUntil(id+" has the rules", time.Minute, func() error {
		out, err := e.runInMachine(id, copiedNft+" list table inet slipway_metadata")
		for _, part := range []string{"ip daddr 169.254.169.254 jump guard", "tcp dport 3988", "system.slice/slipway-node.service"} {
			if err != nil || !strings.Contains(out, part) {
				return fmt.Errorf("no %q in the rules: %w\n%s", part, err, out)
			}
		}
		return nil
	})
}

// checkFiltersWithoutImage deletes the image, as the kubelet does when the disk is full, and the rules.
func checkFiltersWithoutImage(e *environment) {
	id := e.anyMachine("worker")
	e.mustRunInMachine(id, "ctr -n k8s.io images ls -q | grep kube-proxy | xargs ctr -n k8s.io images rm --sync && "+
		copiedNft+" delete table inet slipway_metadata")
	e.checkGuardTable(id)
}

// checkDamagedNft damages the copy. The agent makes another one.
func checkDamagedNft(e *environment) {
	id := e.anyMachine("worker")
	e.mustRunInMachine(id, copiedNft+" delete table inet slipway_metadata; echo > /var/lib/slipway/nft/libc.so.6")
	e.checkGuardTable(id)

	// The rules of the former process refuse a new one, which cannot load others without the program.
	e.mustRunInMachine(id, "rm -r /var/lib/slipway/nft; systemctl restart slipway-node")
	e.checkGuardTable(id)
	e.waitUntil("the agent of "+id+" runs", time.Minute, func() error {
		out, err := e.runInMachine(id,
			"journalctl --no-pager -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value slipway-node)")
		if err == nil && !strings.Contains(out, "stage=ready state=done") {
			err = fmt.Errorf("the stage ready is not done: %s", out)
		}
		return err
	})
}

// checkFiltersAfterBoot reboots a worker, whose rules are in the kernel again when its kubelet starts.
func checkFiltersAfterBoot(e *environment) {
	id := e.anyMachine("worker")
	boot := e.mustRunInMachine(id, "cut -d' ' -f22 /proc/1/stat")
	e.mustRunInMachine(id, "systemctl reboot --no-block")
	e.waitUntil(id+" has booted", 3*time.Minute, func() error {
		if out, err := e.runInMachine(id, "cut -d' ' -f22 /proc/1/stat"); err != nil || out == boot {
			return fmt.Errorf("started at %q: %w", out, err)
		}
		return nil
	})
	e.checkGuardTable(id)
	e.waitHealthy(5 * time.Minute)
}
