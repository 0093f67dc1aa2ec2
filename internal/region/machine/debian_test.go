// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"
	"time"
)

// TestDebianUnits: what Debian's image for EC2 starts runs, or systemd skips it because of its own conditions.
func TestDebianUnits(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	for script, want := range map[string]string{
		"systemctl is-active systemd-networkd systemd-resolved ssh cloud-init cloud-config cloud-final | uniq": "active",
		"cloud-init status --wait | tr -d '\\n'":                              "status: done",
		"networkctl --no-legend list eth0 | awk '{print $NF}'":                "unmanaged",
		"id -un admin && passwd -S admin | cut -d' ' -f2":                     "admin\nL",
		"sudo -u admin sudo -n id -un":                                        "root",
		"ls /etc/ssh/ssh_host_ed25519_key.pub":                                "/etc/ssh/ssh_host_ed25519_key.pub",
		"sshd -T | grep -iE '^(passwordauth|clientaliveinterval)'":            "clientaliveinterval 120\npasswordauthentication no",
		"systemctl show -P LoadState -P ConditionResult systemd-udevd":        "no\nloaded",
		"systemctl show -P LoadState -P ConditionResult systemd-timesyncd":    "no\nloaded",
		"systemctl show -P LoadState -P ConditionResult systemd-modules-load": "no\nloaded",
		"iptables -V | cut -d' ' -f3":                                         "(nf_tables)",
		"command -v conntrack || echo none":                                   "none",
	} {
		if got := b.mustRun(m.ID, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

func TestCloudConfig(t *testing.T) {
	b := newBench(t, "#cloud-config\nwrite_files:\n- {path: /root/a, content: written}\nruncmd:\n- [cp, /root/a, /root/b]\n")
	m := b.launch(1)
	b.await(m.ID, "grep -q written /root/b", 60*time.Second)
	if got := b.mustRun(m.ID, "cloud-init status --wait"); !strings.HasSuffix(got, "status: done") {
		t.Errorf("cloud-init reports %q", got)
	}
}
