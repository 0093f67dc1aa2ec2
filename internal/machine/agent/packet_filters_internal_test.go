// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/imdsguard"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// filterRuns is a Runner of a machine with nft.
type filterRuns struct {
	runs
	// failing is a part of the command lines that fail.
	failing string
}

func (r *filterRuns) Run(ctx context.Context, name string, args ...string) (string, error) {
	line := name + " " + strings.Join(args, " ")
	if r.failing != "" && strings.Contains(line, r.failing) {
		r.lines = append(r.lines, line)
		return "", fmt.Errorf("%s: Operation not supported", line)
	}

	return r.runs.Run(ctx, name, args...)
}

const (
	guardLine   = "/usr/sbin/nft -f " + guardFile
	checkLine   = "/usr/sbin/nft --check -f " + gateCheckFile
	runtimeLine = "systemctl start --no-block containerd"
	kubeletLine = "systemctl start --no-block kubelet"
)

// filterLab is an agent that loads packet filters with its Runner.
type filterLab struct {
	*Agent
	run *filterRuns
	log *bytes.Buffer
}

func newFilterLab(t *testing.T, role v1alpha1.Role) *filterLab {
	t.Helper()
	l := &filterLab{Agent: testAgent(t), run: &filterRuns{}, log: &bytes.Buffer{}}
	l.doc.Role = role
	l.Run = l.run
	l.Log = slog.New(slog.NewTextHandler(l.log, nil))
	for _, file := range []File{
		{Path: "/sys/fs/cgroup/cgroup.controllers", Mode: 0o644},
		{Path: "/proc/self/cgroup", Body: []byte("0::/system.slice/slipway-node.service\n"), Mode: 0o644},
		{Path: "/sys/fs/cgroup/system.slice/slipway-node.service/cgroup.procs", Mode: 0o644},
	} {
		if _, err := l.Root.Write(file); err != nil {
			t.Fatal(err)
		}
	}
	l.Nft = newNft(l.Agent, func(name string) (string, error) { return "/usr/sbin/" + name, nil })
	guard := newMetadataGuard(l.Root, l.Nft)
	guard.Reach = func(context.Context) error { return nil }
	l.GuardMetadata = guard.Apply

	return l
}

// TestKubeletWaitsForPacketFilters: the kubelet starts after the rules are in the kernel, and not without them.
func TestKubeletWaitsForPacketFilters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		role    v1alpha1.Role
		failing string
		want    []string // the order of commands
		err     []string // parts of the error
	}{
		"a worker":        {v1alpha1.RoleWorker, "", []string{runtimeLine, guardLine, kubeletLine}, nil},
		"a control plane": {v1alpha1.RoleControlPlane, "", []string{runtimeLine, guardLine, checkLine, kubeletLine}, nil},
		"the guard is refused": {
			v1alpha1.RoleWorker, guardFile,
			[]string{runtimeLine, guardLine, guardLine}, // with control groups, and with marks
			[]string{"no container starts before the packet filters are loaded", "guard the instance metadata service", guardLine, "Operation not supported"},
		},
		"the gate is refused": {
			v1alpha1.RoleControlPlane, gateCheckFile,
			[]string{runtimeLine, guardLine, checkLine},
			[]string{"no container starts before", "hold back connections to a starting API server", checkLine},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newFilterLab(t, c.role)
			l.run.failing = c.failing
			err := l.startServices(t.Context(), nil)
			if c.err == nil && err != nil {
				t.Error(err)
			}
			for _, part := range c.err {
				if err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(strings.Join(diag.Hints(err), ""), "nf_tables") {
					t.Errorf("%v with the hints %q has no %q", err, diag.Hints(err), part)
				}
			}
			var got []string
			for _, line := range l.run.lines {
				if slices.Contains([]string{runtimeLine, guardLine, checkLine, kubeletLine}, line) {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("ran %q, want %q", got, c.want)
			}

			l.run.failing = "" // the next attempt
			if err := l.startServices(t.Context(), nil); err != nil || !slices.Contains(l.run.lines, kubeletLine) {
				t.Errorf("%v, %q", err, l.run.lines)
			}
		})
	}
}

// TestFiltersOfARunningMachine: an agent that restarts while containers run goes on, and reports what it cannot load.
func TestFiltersOfARunningMachine(t *testing.T) {
	t.Parallel()
	l := newFilterLab(t, v1alpha1.RoleWorker)
	l.run.active = map[string]bool{"containerd": true, "kubelet": true}
	l.run.failing = guardFile
	if err := l.startServices(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if !strings.Contains(l.log.String(), "cannot load packet filters, but containers run already") {
		t.Errorf("the log is %s", l.log)
	}
	checkGuardCondition(t, l, "Operation not supported")
	l.run.failing = ""
	checkGuardCondition(t, l, "")
}

// checkGuardCondition checks that the periodic task reports the failure of the guard; with an empty cause, that it reports
// none.
func checkGuardCondition(t *testing.T, l *filterLab, cause string) {
	t.Helper()
	end := errors.New("end")
	turn := 0
	l.Wait = func(context.Context, time.Duration) error {
		if turn++; turn == reportedFailures {
			return end
		}
		return nil
	}
	task := periodicTask{"metadata", guardInterval, l.guardMetadata}
	if err := task.repeat(t.Context(), l.Agent, time.Minute); !errors.Is(err, end) {
		t.Fatal(err)
	}
	found := ""
	for _, c := range l.conditions.Conditions() {
		if c.Component == report.Task("metadata") && c.State == report.Warning {
			found = c.Cause
		}
	}
	if (found == "") != (cause == "") || !strings.Contains(found, cause) {
		t.Errorf("the condition's cause is %q, want %q", found, cause)
	}
}

// TestKernelWithoutControlGroups: where the kernel cannot tell control groups apart, only packets with the agent's mark reach the
// metadata service. Seen to fail while such a machine started without any rule for it. If these rules cannot be loaded, or refuse the
// agent too, no container starts, and the reason is reported.
func TestKernelWithoutControlGroups(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	for name, c := range map[string]struct {
		failing string
		reach   error
		want    string // part of the error; empty: the machine starts
	}{
		"with marks":            {},
		"no rules are taken":    {failing: guardFile, want: "Operation not supported"},
		"marks are not matched": {reach: refused, want: imdsguard.ErrUnsupported.Error()},
		"the service is silent": {reach: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newFilterLab(t, v1alpha1.RoleWorker)
			if err := os.RemoveAll(l.Root.Path("/sys/fs/cgroup")); err != nil {
				t.Fatal(err)
			}

			guard := newMetadataGuard(l.Root, l.Nft)
			guard.Reach = func(context.Context) error { return c.reach }
			l.GuardMetadata = guard.Apply
			l.run.failing = c.failing
			err := l.startServices(t.Context(), nil)
			if started := slices.Contains(l.run.lines, kubeletLine); started != (c.want == "") || started != (err == nil) {
				t.Fatalf("started %t, %v", started, err)
			}

			if err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "no container starts before")) {
				t.Errorf("the error is %v", err)
			}

			rules, readErr := l.Root.Read(guardFile)
			if c.want == "" && (readErr != nil || !strings.Contains(string(rules), "meta mark 5308419 accept\n\t\tcounter reject")) {
				t.Errorf("the rules are %s, %v", rules, readErr)
			}
		})
	}
}

// checkEarlierRules: while containerd runs, rules of an earlier process may refuse this one. An agent that does not know its document yet
// finds the image by what that process has recorded.
func checkEarlierRules(t *testing.T, l *filterLab) {
	t.Helper()
	if err := recordNftImage(l.Agent); err != nil {
		t.Fatal(err)
	}
	a := l.Agent
	earlier, images, program, guard := a.Run, a.doc.Images, a.Nft, a.GuardMetadata
	defer func() { a.Run, a.doc.Images, a.Nft, a.GuardMetadata = earlier, images, program, guard }()
	run := &filterRuns{runs: runs{active: map[string]bool{"containerd": true}}}
	a.Run = run
	a.doc.Images = nil
	a.Nft = newNft(a, func(string) (string, error) { return "", exec.ErrNotFound })
	a.GuardMetadata = newMetadataGuard(a.Root, a.Nft).Apply
	reloadEarlierRules(t.Context(), a)
	if !strings.Contains(strings.Join(run.lines, "\n"), "images mount "+images[node.ProxyImage]) {
		t.Errorf("the image is not mounted: %q", run.lines)
	}
	l.log.Reset()
}

// TestMachineWithoutNft: nothing is loaded before the document names an image. Then it is pulled once containerd runs, and the
// kubelet waits for it.
func TestMachineWithoutNft(t *testing.T) {
	t.Parallel()
	l := newFilterLab(t, v1alpha1.RoleWorker)
	if _, err := l.Root.Write(File{Path: containerdSocket, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	image := l.doc.Images[node.ProxyImage]
	l.Nft = newNft(l.Agent, func(string) (string, error) { return "", exec.ErrNotFound })
	l.GuardMetadata = newMetadataGuard(l.Root, l.Nft).Apply
	reloadEarlierRules(t.Context(), l.Agent)
	if want := []string{"systemctl is-active containerd"}; !slices.Equal(l.run.lines, want) || l.log.Len() != 0 {
		t.Errorf("ran %q before containerd runs, want %q, logged %s", l.run.lines, want, l.log)
	}
	checkEarlierRules(t, l)

	l.run.failing = "images mount"
	err := l.startServices(t.Context(), nil)
	for _, part := range []string{"no container starts before", "no program nft", image, "Operation not supported"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v has no %q", err, part)
		}
	}
	if hints := strings.Join(diag.Hints(err), ""); !strings.Contains(hints, "the package nftables") {
		t.Errorf("the hints are %s", hints)
	}
	begin := slices.Index(l.run.lines, runtimeLine)
	pull := slices.Index(l.run.lines, "ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d "+image)
	if begin < 0 || pull < begin || slices.Contains(l.run.lines, kubeletLine) {
		t.Errorf("containerd at %d, the pull at %d of\n%s", begin, pull, strings.Join(l.run.lines, "\n"))
	}
}

// TestPluginsFindNft: containerd's PATH, which CNI plugins have, ends with the directory of the copy.
func TestPluginsFindNft(t *testing.T) {
	t.Parallel()
	if !strings.Contains(kube.ContainerdUnit(kube.Config{}), ":/sbin:/bin:"+kube.NftDir+"/bin\n") {
		t.Error(kube.ContainerdUnit(kube.Config{}))
	}
}
