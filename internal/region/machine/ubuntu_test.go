// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/image"
)

// newUbuntuBench skips t in the short form, and if nobody has built the image, which no test builds: that needs Ubuntu's
// servers.
func newUbuntuBench(t *testing.T, userData string) *bench {
	t.Helper()
	if os.Getenv("SLIPWAY_LONG") == "" {
		t.Skip("SKIPPED: a long form")
	}
	base := cacheDir(t)
	img, err := image.Find(filepath.Join(base, "image"), image.ComputeID(image.Ubuntu2404, runtime.GOARCH))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("SKIPPED: not built: slipway region image --os ubuntu-24.04")
	}
	must(t, err)
	return newBenchOf(t, base, img, userData)
}

// TestUbuntuBoots: systemd, cloud-init with Ubuntu's own modules, systemd-resolved and systemd-networkd run as on AWS.
func TestUbuntuBoots(t *testing.T) {
	b := newUbuntuBench(t, userData)
	begin := time.Now()
	m := b.launch(1)
	b.await(m.ID, "test -s /run/user-data-ran", 3*time.Minute)
	t.Logf("user data ran after %s", time.Since(begin).Round(time.Second))
	b.awaitRunning(m.ID)
	t.Logf("running after %s", time.Since(begin).Round(time.Second))
	console, err := b.host.Console(m.ID)
	if err != nil || !strings.Contains(string(console), "user data says hello from "+m.Hostname+", http://198.18.0.1") {
		t.Errorf("console lacks the machine's line: %v\n%s", err, console)
	}
	for script, want := range map[string]string{
		"hostname":                               m.Hostname,
		". /etc/os-release && echo $VERSION_ID":  "24.04",
		"cloud-init status --wait | tr -d '\\n'": "status: done",
		"systemctl is-active systemd-resolved systemd-networkd ssh.socket":    "active\nactive\nactive",
		"readlink -f /etc/resolv.conf":                                        "/run/systemd/resolve/stub-resolv.conf",
		"grep -E '^(nameserver|search)' /run/systemd/resolve/resolv.conf":     "nameserver 127.0.0.1\nsearch ec2.internal",
		"id -un ubuntu && passwd -S ubuntu | cut -d' ' -f2":                   "ubuntu\nL",
		"ls /etc/ssh/ssh_host_ed25519_key.pub":                                "/etc/ssh/ssh_host_ed25519_key.pub",
		"sysctl -n net.ipv4.conf.all.rp_filter":                               "2",
		"ls -d /boot/vmlinuz* /lib/modules/* 2>/dev/null || echo no kernel":   "no kernel",
		"modprobe overlay && echo loaded":                                     "loaded",
		"networkctl --no-legend list eth0 | awk '{print $NF}'":                "unmanaged",
		"ls /dev/kvm /dev/vda /dev/loop0 2>/dev/null || echo none":            "none",
		"systemd-run -q --wait -p MemoryMax=100M true && echo ran":            "ran",
		"nft list ruleset && sysctl -qw net.ipv4.ip_forward=1 && echo filter": "filter",
	} {
		if got := b.mustRun(m.ID, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	must(t, b.host.Reboot(t.Context(), m.ID))
	b.awaitRunning(m.ID)
	if got := b.mustRun(m.ID, "readlink -f /etc/resolv.conf"); got != "/run/systemd/resolve/stub-resolv.conf" {
		t.Errorf("after a reboot, /etc/resolv.conf is %s", got)
	}
}

// TestUbuntuShutdownDelay: of the file of unattended-upgrades, the file that the kubelet writes and the agent's file, the
// agent's counts.
func TestUbuntuShutdownDelay(t *testing.T) {
	b := newUbuntuBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	const property = "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec"
	for _, step := range []struct{ file, want string }{
		{"99-kubelet.conf", "t 30000000"},
		{"zz-slipway.conf", "t 60000000"},
	} {
		b.mustRun(m.ID, `mkdir -p /etc/systemd/logind.conf.d
printf '[Login]\nInhibitDelayMaxSec=60\n' >/etc/systemd/logind.conf.d/`+step.file+`
systemctl kill --signal HUP systemd-logind && sleep 1`)
		if got := b.mustRun(m.ID, property); got != step.want {
			t.Errorf("with %s: %q, want %q", step.file, got, step.want)
		}
	}
}
