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
		"systemctl show -P LoadState -P ConditionResult systemd-udevd":        "loaded\nno",
		"systemctl show -P LoadState -P ConditionResult systemd-timesyncd":    "loaded\nno",
		"systemctl show -P LoadState -P ConditionResult systemd-modules-load": "loaded\nno",
		"iptables -V | cut -d' ' -f3":                                         "(nf_tables)",
		"command -v conntrack || command -v nft || echo none":                 "none",
	} {
		if got := b.mustRun(m.ID, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

// TestNewUnitStartsWithoutReload: systemd reads a unit that it does not know when it starts it, also one that others name, and
// says when one that it has read was changed. The boot script and the agent rely on this instead of reloading all units.
func TestNewUnitStartsWithoutReload(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	const write = `printf '[Unit]\nAfter=y.service\n[Service]\nExecStart=/bin/sleep %s\n[Install]\nWantedBy=multi-user.target\n' `
	const show = "systemctl show --property=LoadState,NeedDaemonReload "
	for _, step := range []struct{ script, want string }{
		{"systemctl is-active x.service y.service | uniq", "inactive"},
		{write + "61 >/etc/systemd/system/x.service && systemctl -q enable --no-reload x && systemctl start x && systemctl is-active x", "active"},
		{show + "x.service", "LoadState=loaded\nNeedDaemonReload=no"},
		{write + "62 >/etc/systemd/system/y.service && systemctl start y && systemctl is-active y", "active"},
		{write + "63 >/etc/systemd/system/y.service && " + show + "y.service", "LoadState=loaded\nNeedDaemonReload=yes"},
		{write + "64 >/etc/systemd/system/z.service && mkdir /etc/systemd/system/z.service.d && " +
			"printf '[Service]\\nNice=1\\n' >/etc/systemd/system/z.service.d/a.conf && systemctl start z && systemctl show -P Nice z", "1"},
	} {
		if got := b.mustRun(m.ID, step.script); got != step.want {
			t.Errorf("%s: %q, want %q", step.script, got, step.want)
		}
	}
}

func TestCloudConfig(t *testing.T) {
	b := newBench(t, "#cloud-config\nwrite_files:\n- {path: /root/a, content: written}\nruncmd:\n- [cp, /root/a, /root/b]\n")
	m := b.launch(1)
	b.await(m.ID, "grep -q written /root/b", 3*time.Minute)
	if got := b.mustRun(m.ID, "cloud-init status --wait"); !strings.HasSuffix(got, "status: done") {
		t.Errorf("cloud-init reports %q", got)
	}
}
