// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/machine"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

const userData = `#!/bin/sh
cat /proc/uptime >/run/user-data-ran
echo "user data says hello from $(hostname), $AWS_ENDPOINT_URL" >/dev/console
`

func TestBoot(t *testing.T) {
	b := newBench(t, userData)
	begin := time.Now()
	m := b.launch(1)
	t.Logf("PID 1 after %s", time.Since(begin))
	b.await(m.ID, "test -s /run/user-data-ran", 3*time.Minute)
	t.Logf("user data ran after %s", time.Since(begin))
	b.awaitRunning(m.ID)
	t.Logf("running after %s", time.Since(begin))
	console, err := b.host.Console(m.ID)
	if err != nil || !strings.Contains(string(console), "user data says hello from "+m.Hostname+", http://198.18.0.1") {
		t.Errorf("console lacks the machine's line: %v\n%s", err, console)
	}
	for script, want := range map[string]string{
		"hostname":                     m.Hostname,
		"readlink -f /etc/resolv.conf": "/run/systemd/resolve/resolv.conf",
		"grep -E '^(nameserver|search)' /etc/resolv.conf": "nameserver 127.0.0.1\nsearch ec2.internal",
		"findmnt -no PROPAGATION /":                       "shared",
		"findmnt -no FSTYPE -T /var/lib/kubelet":          b.diskType(),
		"systemctl is-system-running":                     "running",
		"cat /proc/1/comm":                                "systemd",
		"iptables -A INPUT -j ACCEPT && sysctl -qw net.ipv4.ip_forward=1 && cat /proc/sys/net/ipv4/ip_forward": "1",
		"ls /dev/kvm /dev/vda /dev/loop0 2>/dev/null || echo none":                                             "none",
		"systemd-run -q --wait -p MemoryMax=100M true && echo ran":                                             "ran",
	} {
		if got := b.mustRun(m.ID, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	if err := b.host.Launch(t.Context(), m); err != nil {
		t.Errorf("second launch: %v", err)
	}
}

// TestBridgeFilterIsNotLoaded: a machine boots without br_netfilter, so its settings neither exist nor count, until the
// module is loaded. Debian, Ubuntu and Amazon Linux do not load it either.
func TestBridgeFilterIsNotLoaded(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	for _, boot := range []string{"first", "second"} {
		for _, step := range []struct{ script, want string }{
			{"ls /proc/sys/net/bridge", ""},
			{"modprobe overlay && modprobe vxlan && echo loaded", "loaded"},
			{"modprobe no_such_module 2>/dev/null || echo missing", "missing"},
			{"modprobe br_netfilter && modprobe br_netfilter && cat /proc/sys/net/bridge/bridge-nf-call-iptables", "0"},
			{"sysctl -qw net.bridge.bridge-nf-call-iptables=1 && cat /proc/sys/net/bridge/bridge-nf-call-iptables", "1"},
		} {
			if got := b.mustRun(m.ID, step.script); got != step.want {
				t.Errorf("%s boot, %s: %q, want %q", boot, step.script, got, step.want)
			}
		}
		must(t, b.host.Reboot(t.Context(), m.ID))
		b.awaitRunning(m.ID)
	}
}

// With containerd's configuration in the image, containerd must be able to run a container in a
// cgroup that a kubelet created.
func TestContainerRuns(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	files := filepath.Join(filepath.Dir(b.dir), "assets/files/github.com")
	daemon, _ := filepath.Glob(filepath.Join(files, "containerd/containerd/releases/download/*/containerd-*.tar.gz"))
	runc, _ := filepath.Glob(filepath.Join(files, "opencontainers/runc/releases/download/*/runc.*"))
	if len(daemon) == 0 || len(runc) == 0 {
		t.Skip("SKIPPED: containerd and runc are not built yet (slipway builds them with its assets)")
	}
	m := b.launch(1)
	b.awaitRunning(m.ID)
	upper := filepath.Join(b.dir, "region/instances", m.ID, "data/slipway") // a bind mount, visible on the host
	for from, to := range map[string]string{daemon[len(daemon)-1]: "c.tgz", runc[len(runc)-1]: "runc"} {
		data, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(upper, to), data, 0o755))
	}
	b.mustRun(m.ID, `set -e
tar -xzf /var/lib/slipway/c.tgz -C /usr/local
cp /var/lib/slipway/runc /usr/local/bin/runc
echo 'version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = true' >/etc/containerd/config.toml
systemd-run -q --unit containerd -p Delegate=yes -p Type=notify /usr/local/bin/containerd
mkdir /root/r && mount --bind / /root/r`)
	dump := b.mustRun(m.ID, "/usr/local/bin/containerd config dump")
	for _, want := range []string{"restrict_oom_score_adj = true", "SystemdCgroup = false"} {
		if !strings.Contains(dump, want) {
			t.Errorf("containerd's configuration lacks %q: the image's part does not count", want)
		}
	}
	// Commands of the test enter from outside and keep the capabilities of the host, which a privileged container would get.
	got := b.mustRun(m.ID, "systemd-run -q --wait --pipe /usr/local/bin/ctr run --rm --privileged --cgroup /kubepods/pod1/c1 --memory-limit 50000000 --rootfs /root/r c1 /bin/cat /proc/self/cgroup 2>/dev/null")
	if !strings.Contains(got, "/kubepods/pod1/c1") {
		t.Errorf("the container's cgroups: %s", got)
	}
}

func TestMachinesAreApart(t *testing.T) {
	b := newBench(t, userData)
	begin := time.Now()
	var wg sync.WaitGroup
	for n := range 5 {
		b.spaces[b.machine(n).ID] = b.space(b.machine(n))
		wg.Go(func() {
			if err := b.host.Launch(t.Context(), b.machine(n)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ids := map[string]bool{}
	for n := range 5 {
		id := b.machine(n).ID
		b.await(id, "test -s /run/user-data-ran", 3*time.Minute)
		ids[b.mustRun(id, "cat /etc/machine-id; readlink /proc/self/ns/cgroup /proc/self/ns/pid /proc/self/ns/net /proc/self/ns/ipc")] = true
	}
	t.Logf("five machines' user data ran after %s", time.Since(begin))
	if len(ids) != 5 {
		t.Errorf("%d different identities of 5: %v", len(ids), ids)
	}
}

// wrote reports whether a machine's console contains text.
func (b *bench) wrote(id, text string) bool {
	out, err := b.host.Console(id)
	must(b.t, err)
	return bytes.Contains(out, []byte(text))
}

func TestUnknownIsRefused(t *testing.T) {
	b := newBench(t, "")
	ctx := t.Context()
	if err := b.host.Attach(ctx, "vol-1", "i-1", "/dev/xvdf"); !errors.Is(err, machine.ErrNotFound) {
		t.Errorf("attach of an unknown volume: %v", err)
	}
	must(t, b.host.CreateVolume(ctx, netspec.Volume{ID: "vol-1", Size: 1}))
	if err := b.host.Attach(ctx, "vol-1", "i-1", "/dev/xvdf"); !errors.Is(err, machine.ErrNotFound) {
		t.Errorf("attach to an unknown machine: %v", err)
	}
	if err := b.host.Reboot(ctx, "i-1"); !errors.Is(err, machine.ErrNotFound) {
		t.Errorf("reboot of an unknown machine: %v", err)
	}
	if err := b.host.CreateVolume(ctx, netspec.Volume{ID: "vol-2"}); err == nil {
		t.Error("a volume of size 0 was created")
	}
	for _, id := range []string{"", "../x", "i-../../x", "vol-1"} {
		if err := b.host.Launch(ctx, netspec.Machine{ID: id}); err == nil {
			t.Errorf("machine %q was launched", id)
		}
		if err := b.host.Terminate(ctx, id); err == nil {
			t.Errorf("machine %q was terminated", id)
		}
	}
	must(t, b.host.Terminate(ctx, "i-1"))
	if b.host.Alive("i-1") {
		t.Error("an unknown machine is alive")
	}
}

func TestDeathAndReturn(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	if !b.host.Alive(m.ID) {
		t.Fatal("a launched machine is not alive")
	}
	b.mustRun(m.ID, "echo kept >/root/file; setsid sleep 1000 >/dev/null 2>&1 &")
	must(t, syscall.Kill(b.pid(m.ID), syscall.SIGKILL))
	b.eventually("a machine without PID 1 is dead", func() bool { return !b.host.Alive(m.ID) })
	b.eventually("nothing of it runs", func() bool { return len(b.processes()) == 0 })

	must(t, b.host.Launch(t.Context(), m))
	if got := b.mustRun(m.ID, "cat /root/file"); got != "kept" {
		t.Errorf("the disk after a new boot: %q", got)
	}
	first := b.pid(m.ID)
	// Once: the reboot kills the command, and a second one would reboot the next boot as well.
	_, _ = b.run(m.ID, "systemctl is-system-running --wait || true; systemctl reboot -ff")
	b.eventually("a reboot from inside boots again", func() bool { return b.pid(m.ID) != first && b.host.Alive(m.ID) })
	if got := b.mustRun(m.ID, "cat /root/file"); got != "kept" {
		t.Errorf("the disk after a reboot from inside: %q", got)
	}
}

// A machine outlives the process that launched it. The next process finds, reboots, and terminates
// it.
func TestMachineOutlivesTheRegion(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.machine(1)
	text, err := json.Marshal(orphan{Region: b.region, Dir: filepath.Join(b.dir, "region"), Root: b.img.Root, Netns: b.space(m), Machine: m})
	must(t, err)
	out, err := exec.Command("/proc/self/exe", "launch-and-die", string(text)).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the launching process: %v: %s", err, out)
	}
	if !b.host.Alive(m.ID) {
		t.Fatal("the machine died with the process that launched it")
	}
	first := b.pid(m.ID)
	must(t, b.host.Launch(t.Context(), m))
	if b.pid(m.ID) != first {
		t.Error("a machine that runs was launched anew")
	}
	must(t, b.host.Reboot(t.Context(), m.ID))
	if b.pid(m.ID) == first || !b.host.Alive(m.ID) {
		t.Error("reboot did not boot it anew")
	}
	must(t, b.host.Terminate(t.Context(), m.ID))
	if b.host.Alive(m.ID) || len(b.processes()) > 0 {
		t.Errorf("left after its end: %v", b.processes())
	}
}

// If a supervisor dies, its machine dies too.
func TestDestroyWithoutState(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	must(t, b.host.CreateVolume(t.Context(), netspec.Volume{ID: "vol-0a", Size: 1}))
	must(t, b.host.Attach(t.Context(), "vol-0a", m.ID, "/dev/xvdf"))
	b.mustRun(m.ID, "mkfs.ext4 -q /dev/nvme1n1 && mount /dev/nvme1n1 /mnt && (setsid sleep 1000 >/dev/null 2>&1 &)")
	for _, pattern := range []string{"instances/*/*.json", "volumes/*.json"} {
		names, _ := filepath.Glob(filepath.Join(b.dir, "region", pattern))
		for _, name := range names {
			must(t, os.Remove(name))
		}
	}
	must(t, b.host.Destroy(t.Context()))
	if left := b.processes(); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if out, _ := exec.Command("sh", "-c", "find /sys/fs/cgroup -type d -name "+b.region).Output(); len(out) > 0 {
		t.Errorf("cgroups left: %s", out)
	}
	if out, _ := exec.Command("sh", "-c", "cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -F "+b.dir).Output(); len(out) > 0 {
		t.Errorf("loop devices left: %s", out)
	}
	if out, _ := exec.Command("grep", "-F", b.dir, "/proc/self/mountinfo").Output(); len(out) > 0 {
		t.Errorf("mounts left: %s", out)
	}
	if out, _ := exec.Command("find", filepath.Join(b.dir, "region"), "-mindepth", "1").Output(); len(out) > 0 {
		t.Errorf("files left: %s", out)
	}
	must(t, b.host.Destroy(t.Context()))
}

// A launch that fails reports the reason and leaves no process.
func TestLaunchFailureIsSaid(t *testing.T) {
	b := newBench(t, "")
	m := b.machine(1)
	b.spaces[m.ID] = b.space(m)
	broken, err := machine.New(machine.Config{
		Region: b.region, Dir: filepath.Join(b.dir, "region"), Namespaces: b,
		ImageRoot: func(string) (string, error) { return filepath.Join(b.dir, "missing"), nil },
	})
	must(t, err)
	err = broken.Launch(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "mount root") {
		t.Errorf("launch from an image that is not there: %v", err)
	}
	if broken.Alive(m.ID) || len(b.processes()) > 0 {
		t.Errorf("a failed launch left %v", b.processes())
	}
	must(t, b.host.Launch(t.Context(), m))
}

func TestConsoleIsBounded(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID) // systemd flushes the console at its start, and Linux does not wake a blocked writer then
	b.mustRun(m.ID, "head -c 3000000 /dev/zero | tr '\\0' x | fold -w 100 >/dev/console; echo; echo the end >/dev/console")
	b.eventually("the console shows the end", func() bool {
		out, err := b.host.Console(m.ID)
		return err == nil && strings.Contains(string(out), "the end")
	})
	out, _ := b.host.Console(m.ID)
	if len(out) > 1<<20 {
		t.Errorf("console kept %d bytes", len(out))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// processes returns the host's processes in cgroups of the region, and the supervisors of its
// machines.
func (b *bench) processes() []string {
	var out []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		groups, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		status, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if strings.Contains(string(status), "State:\tZ") {
			continue
		}
		if strings.Contains(string(groups), "/"+b.region+"/") || strings.Contains(string(args), b.dir) {
			out = append(out, e.Name()+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return out
}

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	for begin := time.Now(); time.Since(begin) < 3*time.Minute; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	b.t.Fatalf("not within a minute: %s; running: %v", what, b.processes())
}

func (b *bench) diskType() string {
	out, err := exec.Command("stat", "-f", "-c", "%T", b.dir).Output()
	if err != nil {
		b.t.Fatal(err)
	}
	if kind := strings.TrimSpace(string(out)); kind != "ext2/ext3" {
		return kind
	}
	return "ext4"
}
