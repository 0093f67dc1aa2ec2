// SPDX-License-Identifier: Apache-2.0

package addon_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hostPortConfig is the input of the portmap plugin for a pod with a host port, as containerd makes it from flannel's configuration.
const hostPortConfig = `{
	"cniVersion": "1.1.0", "name": "cbr0", "type": "portmap",
	"runtimeConfig": {"portMappings": [{"hostPort": 18080, "containerPort": 8080, "protocol": "tcp"}]},
	"prevResult": {
		"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/pod"}],
		"ips": [{"address": "10.244.1.2/24", "gateway": "10.244.1.1", "interface": 0}]
	}
}`

// TestHostPortsWithoutIPTables: the portmap plugin, as assets/cni-plugins pins it, maps host ports with nft on a machine without
// iptables, as Debian 12 on AWS, and removes them with it.
func TestHostPortsWithoutIPTables(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root")
	}

	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("SKIPPED: no program nft (make deps)")
	}

	programs := t.TempDir()
	if err := os.Symlink(nft, filepath.Join(programs, "nft")); err != nil {
		t.Fatal(err)
	}

	plugin := filepath.Join(t.TempDir(), "portmap")
	run(t, "", "go", "build", "-C", "../../../assets/cni-plugins", "-o", plugin, "github.com/containernetworking/plugins/plugins/meta/portmap")
	space := fmt.Sprintf("slwt-pm-%d", os.Getpid())
	for _, name := range []string{space, space + "-pod"} {
		run(t, "", "ip", "netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	}

	call := func(command string) string {
		run(
			t, hostPortConfig, "ip", "netns", "exec", space, "/usr/bin/env", "-i", "PATH="+programs, "CNI_PATH="+programs,
			"CNI_COMMAND="+command, "CNI_CONTAINERID=pod", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/"+space+"-pod", plugin,
		)

		return run(t, "", "ip", "netns", "exec", space, nft, "list", "ruleset")
	}
	if rules := call("ADD"); !strings.Contains(rules, "tcp dport 18080 dnat to 10.244.1.2:8080") {
		t.Errorf("the rules do not map the port:\n%s", rules)
	}

	if rules := call("DEL"); strings.Contains(rules, "18080") {
		t.Errorf("the port is mapped after the pod's end:\n%s", rules)
	}
}

// run returns the output of a program.
func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}

	return string(out)
}
