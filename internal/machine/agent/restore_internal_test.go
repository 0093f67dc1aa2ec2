// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// unitRunner is a Runner that knows the states of units and when their processes started.
type unitRunner struct {
	lines    []string
	inactive map[string]bool
	started  map[string]time.Time
	system   string
}

func (r *unitRunner) Run(_ context.Context, name string, args ...string) (string, error) {
	line := name + " " + strings.Join(args, " ")
	switch {
	case strings.HasPrefix(line, "systemctl is-active"):
		var states []string
		for _, unit := range args[1:] {
			state := "active"
			if r.inactive[unit] {
				state = "inactive"
			}
			states = append(states, state)
		}
		return strings.Join(states, "\n") + "\n", nil
	case line == "systemctl is-system-running":
		return r.system + "\n", nil
	case strings.HasPrefix(line, "systemctl show"):
		return fmt.Sprintf("@%d\n", r.started[args[1]].Unix()), nil
	}
	r.lines = append(r.lines, line)
	return "", nil
}

// restoreBench is a control-plane machine whose files are written, with a clock that tests set.
type restoreBench struct {
	*Agent
	t    *testing.T
	now  time.Time
	run  *unitRunner
	r    *restorer
	base map[string]string // content and mode by path
}

func newRestoreBench(t *testing.T) *restoreBench {
	t.Helper()
	b := &restoreBench{Agent: testAgent(t), t: t, now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), run: &unitRunner{}}
	b.Now = func() time.Time { return b.now }
	b.Run = b.run
	for key, value := range requiredSysctls() {
		b.put("/proc/sys/"+key, value+"\n", 0o644)
	}
	b.put(agentUnitFile, "[Unit]\n", 0o644)
	b.write()
	b.r = newRestorer(b.Agent)
	b.look()
	b.run.lines = nil
	b.base = b.snapshot()
	return b
}

// write writes the machine's files as a boot does.
func (b *restoreBench) write() {
	b.t.Helper()
	if err := b.prepareHost(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.writeControlPlane(); err != nil {
		b.t.Fatal(err)
	}
	if err := b.writeStaticPods(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *restoreBench) put(path, body string, mode fs.FileMode) {
	b.t.Helper()
	p := b.Root.Path(path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(body), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *restoreBench) look() {
	b.t.Helper()
	b.now = b.now.Add(restoreInterval)
	if err := b.r.lookAndRestore(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *restoreBench) condition() report.Condition {
	for _, c := range b.conditions.Conditions() {
		if c.Component == report.OwnedFiles {
			return c
		}
	}
	return report.Condition{}
}

func (b *restoreBench) snapshot() map[string]string {
	b.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(b.Root.Path("/"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		body := ""
		if info.Mode().IsRegular() {
			raw, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			body = strings.TrimSpace(string(raw))
		}
		out[strings.TrimPrefix(p, b.Root.Dir)] = info.Mode().String() + " " + body
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func TestRestore(t *testing.T) {
	const apiServer = kube.ConfigDir + "/manifests/kube-apiserver.yaml"
	const unit = "/etc/systemd/system/kubelet.service"
	for name, c := range map[string]struct {
		path string
		do   func(p string) error
		want string // in the condition
		runs string // commands
	}{
		"manifest corrupted":             {apiServer, func(p string) error { return os.WriteFile(p, []byte("{"), 0o600) }, "was changed", ""},
		"manifest deleted":               {apiServer, os.Remove, "was deleted", ""},
		"mode":                           {apiServer, func(p string) error { return os.Chmod(p, 0o644) }, "had mode 0644 instead of 0600", ""},
		"directory of manifests deleted": {kube.ConfigDir + "/manifests", os.RemoveAll, "/manifests was deleted", ""},
		"a directory instead of a file": {apiServer, func(p string) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Mkdir(p, 0o755)
		}, "was replaced by a directory", ""},
		"unit deleted": {unit, os.Remove, "was deleted", "systemctl daemon-reload"},
		"unit masked": {unit, func(p string) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Symlink("/dev/null", p)
		}, "was replaced by a symbolic link", "systemctl daemon-reload"},
		"unit of the agent":    {agentUnitFile, os.Remove, "was deleted", "systemctl daemon-reload"},
		"kubelet's settings":   {"/var/lib/kubelet/config.yaml", func(p string) error { return os.WriteFile(p, []byte("a"), 0o600) }, "was changed", ""},
		"key":                  {kube.ComponentDir(kube.APIServer) + "/apiserver.key", func(p string) error { return os.WriteFile(p, []byte("a"), 0o600) }, "was changed", ""},
		"certificate of etcd":  {etcd.PKIDir + "/server.crt", os.Remove, "was deleted", ""},
		"kernel setting":       {"/proc/sys/net/ipv4/ip_forward", func(p string) error { return os.WriteFile(p, []byte("0\n"), 0o644) }, "sysctl net.ipv4.ip_forward was set to 0 instead of 1", ""},
		"file of kernel's":     {"/etc/sysctl.d/99-slipway.conf", os.Remove, "was deleted", ""},
		"nothing":              {apiServer, func(string) error { return nil }, "", ""},
		"a file of others":     {"/etc/hosts", func(p string) error { return os.WriteFile(p, []byte("127.0.0.1 localhost\n"), 0o644) }, "", ""},
		"directory's mode":     {kube.ConfigDir + "/manifests", func(p string) error { return os.Chmod(p, 0o777) }, "had mode 0777 instead of 0700", ""},
		"etcd's data, no disk": {etcd.DataMount, os.RemoveAll, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRestoreBench(t)
			if err := b.Root.MakeDir(etcd.DataDir, 0o700, etcdUID); err != nil {
				t.Fatal(err)
			}
			b.look()
			b.base = b.snapshot()
			if err := c.do(b.Root.Path(c.path)); err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				b.base = b.snapshot()
			}
			b.look()
			if diff := cmp.Diff(b.base, b.snapshot()); diff != "" {
				t.Errorf("the machine is not as before (-want +got):\n%s", diff)
			}
			got := b.condition()
			if !strings.Contains(got.Cause, c.want) || (c.want == "") != (got.State == report.OK) {
				t.Errorf("condition %+v, want %q", got, c.want)
			}
			if runs := strings.Join(b.run.lines, "\n"); runs != c.runs {
				t.Errorf("ran %q, want %q: a program restarts only if it read a changed file", runs, c.runs)
			}
		})
	}
}

// TestRotationIsNoChange: what the agent itself writes anew is not undone.
func TestRotationIsNoChange(t *testing.T) {
	b := newRestoreBench(t)
	b.now = b.now.Add(LeafTTL * 2 / 3).Add(time.Hour)
	if err := b.renewCertificates(); err != nil {
		t.Fatal(err)
	}
	renewed := b.snapshot()
	if cmp.Equal(b.base, renewed) {
		t.Fatal("no certificate was renewed")
	}
	b.look()
	if diff := cmp.Diff(renewed, b.snapshot()); diff != "" || b.condition().State != report.OK {
		t.Errorf("%+v\n(-want +got):\n%s", b.condition(), diff)
	}
}

// TestRestoreAfterAgentRestart: a new process of the agent owns the certificates that the last one wrote.
func TestRestoreAfterAgentRestart(t *testing.T) {
	b := newRestoreBench(t)
	b.Root = &HostFS{Dir: b.Root.Dir}
	b.write()
	b.r = newRestorer(b.Agent)
	b.look()
	if err := os.Remove(b.Root.Path(etcd.PKIDir + "/peer.key")); err != nil {
		t.Fatal(err)
	}
	b.look()
	if diff := cmp.Diff(b.base, b.snapshot()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestContest: against a program that writes a file again and again, the agent stays slow, restores within 15
// seconds, and says so.
func TestContest(t *testing.T) {
	b := newRestoreBench(t)
	const path = "/etc/containerd/config.toml"
	var last time.Time
	restorations := 0
	for range 100 { // 5 minutes
		b.put(path, "mine", 0o600)
		b.look()
		if body, _ := b.Root.Read(path); string(body) != "mine" {
			if !last.IsZero() && b.now.Sub(last) > 15*time.Second {
				t.Errorf("restored %s after the last restoration", b.now.Sub(last))
			}
			last = b.now
			restorations++
		}
	}
	if restorations < 20 || restorations > 35 {
		t.Errorf("%d restorations in 5 minutes, want about one in 10 seconds", restorations)
	}
	c := b.condition()
	if c.State != report.Warning || !strings.Contains(c.Cause, path+" changed ") || !strings.Contains(c.Cause, "times in 1 min by someone else") || c.Next == "" {
		t.Errorf("condition %+v", c)
	}
	for range 40 { // 2 minutes of peace
		b.look()
	}
	if c := b.condition(); !strings.Contains(c.Cause, path+" was changed; restored at ") {
		t.Errorf("after the contest: %+v", c)
	}
	b.now = b.now.Add(restoredVisible)
	b.look()
	if c := b.condition(); c.State != report.OK || c.Cause != "" {
		t.Errorf("much later: %+v", c)
	}
}

// TestRepairedByHand: the last report on the console must not stay a failure that somebody has repaired since.
func TestRepairedByHand(t *testing.T) {
	b := newRestoreBench(t)
	out := &console{}
	b.Report.Open = func() (io.WriteCloser, error) { return out, nil }
	const path = "/etc/containerd/config.toml"
	right, err := b.Root.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.Root.Path(path)); err != nil {
		t.Fatal(err)
	}
	b.put(path+"/file", "in a directory that cannot be replaced", 0o600)
	b.now = b.now.Add(restoreInterval)
	if err := b.r.lookAndRestore(t.Context()); err == nil || b.condition().State != report.Failed {
		t.Fatalf("restored: %v, %+v", err, b.condition())
	}

	if err := os.RemoveAll(b.Root.Path(path)); err != nil {
		t.Fatal(err)
	}
	b.put(path, string(right), 0o600)
	b.look()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, `"stage":"restore","state":"done","error":"`+path+` is right again"`) {
		t.Errorf("the last report: %s", last)
	}
	written := out.Len()
	b.look()
	if out.Len() != written {
		t.Errorf("reported again: %s", out.String()[written:])
	}
}

// TestRestartOnlyWhatReadIt: a program that was started while its file was wrong is restarted.
func TestRestartOnlyWhatReadIt(t *testing.T) {
	for name, c := range map[string]struct {
		path    string
		started time.Duration // before the look that finds the change
		want    string
	}{
		"kubelet ran before":            {"/var/lib/kubelet/config.yaml", time.Minute, ""},
		"kubelet started with it":       {"/var/lib/kubelet/config.yaml", time.Second, "systemctl try-restart --no-block kubelet"},
		"containerd started with it":    {"/etc/containerd/config.toml", time.Second, "systemctl try-restart --no-block containerd"},
		"API server ran before":         {kube.ConfigDir + "/audit-policy.yaml", time.Minute, ""},
		"API server started with it":    {kube.ConfigDir + "/audit-policy.yaml", time.Second, "kill -TERM 77"},
		"API server reloads its policy": {kube.ConfigDir + "/authentication.yaml", time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRestoreBench(t)
			b.run.started = map[string]time.Time{}
			at := b.now.Add(restoreInterval).Add(-c.started)
			b.run.started["kubelet"], b.run.started["containerd"] = at, at
			config := b.kubeConfig()
			config.EtcdURL = etcd.ClientURL
			b.put("/proc/77/cmdline", strings.Join(kube.StaticPodCommands(config)["kube-apiserver"], "\x00")+"\x00", 0o444)
			b.put("/proc/stat", "cpu 1 2\nbtime 1000\n", 0o444)
			b.put("/proc/77/stat", fmt.Sprintf("77 (kube (x) api) S %s %d 1 2", strings.TrimSpace(strings.Repeat("0 ", 18)), (at.Unix()-1000)*clockTicks), 0o444)
			b.put(c.path, "changed", 0o600)
			b.look()
			if got := strings.Join(b.run.lines, "\n"); got != c.want {
				t.Errorf("ran %q, want %q", got, c.want)
			}
		})
	}
}

// TestStoppedUnits: a unit that somebody stopped is started within 15 seconds and reported; etcd is not, while
// the agent itself keeps it stopped.
func TestStoppedUnits(t *testing.T) {
	b := newRestoreBench(t)
	b.run.inactive = map[string]bool{"kubelet": true}
	b.look()
	if len(b.run.lines) > 0 {
		t.Errorf("during a restart: ran %v", b.run.lines)
	}
	b.look()
	if got := strings.Join(b.run.lines, "\n"); got != "systemctl start --no-block kubelet" || !strings.Contains(b.condition().Cause, "systemd unit kubelet was stopped; restored") {
		t.Errorf("ran %q; %+v", got, b.condition())
	}

	b.run.inactive, b.run.lines = map[string]bool{"containerd": true, "etcd": true}, nil
	b.etcdStopped.Store(true)
	b.put("/run/systemd/system/containerd.service", "", 0o644)
	b.look()
	b.look()
	if got := strings.Join(b.run.lines, "\n"); got != "systemctl unmask --runtime containerd\nsystemctl start --no-block containerd" {
		t.Errorf("ran %q", got)
	}

	b.run.lines = nil
	b.etcdStopped.Store(false)
	b.run.inactive, b.run.system = map[string]bool{"etcd": true}, "stopping"
	b.look()
	b.look()
	if len(b.run.lines) > 0 {
		t.Errorf("while the machine shuts down: ran %v", b.run.lines)
	}
}

func FuzzParseStartTicks(f *testing.F) {
	f.Add("77 (kube (x) api) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 4711 0")
	f.Add(")")
	f.Fuzz(func(_ *testing.T, stat string) { _, _ = parseStartTicks(stat) })
}

// TestHigherLimitsAreRight: a limit that somebody raised above what Kubernetes needs is left alone; one that is too low,
// and any other setting that differs, is not.
func TestHigherLimitsAreRight(t *testing.T) {
	for _, c := range []struct {
		key, have, want string
		right           bool
	}{
		{"fs/inotify/max_user_watches", "1048576\n", "524288", true},
		{"fs/inotify/max_user_watches", "524288", "524288", true},
		{"fs/inotify/max_user_watches", "8192", "524288", false},
		{"fs/inotify/max_user_instances", "many", "8192", false},
		{"vm/overcommit_memory", "2", "1", false},
		{"net/ipv4/ip_local_port_range", "1\t2", "1 2", true},
	} {
		if got := satisfiesSysctl(c.key, c.have, c.want); got != c.right {
			t.Errorf("%s=%s, want %s: %v", c.key, c.have, c.want, got)
		}
	}
}

// TestReservedSysctls: a manifest may not have the kernel settings that the agent sets in any case.
func TestReservedSysctls(t *testing.T) {
	var own []string
	for key := range requiredSysctls() {
		own = append(own, strings.ReplaceAll(key, "/", "."))
	}
	slices.Sort(own)
	if reserved := manifest.ReservedSysctls(); !slices.Equal(own, reserved) {
		t.Errorf("the agent sets %v, manifests must not have %v", own, reserved)
	}
}
