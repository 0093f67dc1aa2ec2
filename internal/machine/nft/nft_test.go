// SPDX-License-Identifier: Apache-2.0

package nft_test

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/nft"
)

const (
	image    = "registry.example/kube-proxy:v1"
	copyDir  = "/var/lib/slipway/nft"
	mountDir = "/run/slipway/nft-image"
	loader   = "ld-linux.so.2"
)

// TestProgram: the program of the machine is used if there is one that is new enough (an older one was seen to be used), then an intact copy, then a new copy of the image.
func TestProgram(t *testing.T) {
	t.Parallel()
	withCopy := func(t *testing.T, m *machine) {
		t.Helper()
		m.has = true
		if _, err := m.program().Run(t.Context(), "list", "tables"); err != nil {
			t.Fatal(err)
		}
		m.lines = nil
		m.registry, m.has = false, false // the kubelet has deleted the image
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, m *machine)
		want   []string
		err    []string // parts of the error
	}{
		"the machine has nft": {func(_ *testing.T, m *machine) { m.own, m.registry = true, false }, []string{runOwnLine}, nil},
		"the first version that matches control groups": {
			func(_ *testing.T, m *machine) {
				m.own, m.registry, m.version = true, false, "nftables v0.9.9 (Prodigal Son)\n"
			}, []string{runOwnLine}, nil,
		},
		"a correction of a version": {
			func(_ *testing.T, m *machine) {
				m.own, m.registry, m.version = true, false, "nftables v1.0.6.1 (Lester Gooch #5)\n"
			},
			[]string{runOwnLine},
			nil,
		},
		"the machine's is too old, and the image is there": {
			func(_ *testing.T, m *machine) {
				m.own, m.has, m.registry, m.version = true, true, false, "nftables v0.9.8 (E.D.S.)\n"
			},
			[]string{unmountLine, mountLine, unmountLine, runCopyLine},
			nil,
		},
		"the machine's is too old, and it has a copy": {func(t *testing.T, m *machine) {
			t.Helper()
			withCopy(t, m)
			m.own, m.version = true, "nftables v0.9.8 (E.D.S.)\n"
		}, []string{runCopyLine}, nil},
		"the machine's is too old, and there is no image": {
			func(_ *testing.T, m *machine) {
				m.own, m.registry, m.version = true, false, "nftables v0.9.8 (E.D.S.)\n"
			},
			[]string{unmountLine, mountLine, pullLine},
			[]string{"no program nft of version 0.9.9 or later", image},
		},
		"the machine's prints something else": {
			func(_ *testing.T, m *machine) { m.own, m.has, m.registry, m.version = true, true, false, "?" },
			[]string{unmountLine, mountLine, unmountLine, runCopyLine},
			nil,
		},
		"it has not, and the image is there": {
			func(_ *testing.T, m *machine) { m.has, m.registry = true, false },
			[]string{unmountLine, mountLine, unmountLine, runCopyLine},
			nil,
		},
		"the image is not there": {
			func(*testing.T, *machine) {}, []string{unmountLine, mountLine, pullLine, mountLine, unmountLine, runCopyLine}, nil,
		},
		"it has a copy": {withCopy, []string{runCopyLine}, nil},
		"a file of the copy is damaged": {func(t *testing.T, m *machine) {
			t.Helper()
			withCopy(t, m)
			m.registry = true
			if err := os.WriteFile(filepath.Join(m.root, copyDir, "libc.so.6"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{unmountLine, mountLine, pullLine, mountLine, unmountLine, runCopyLine}, nil},
		"a file of the copy is missing": {func(t *testing.T, m *machine) {
			t.Helper()
			withCopy(t, m)
			m.has = true
			if err := os.Remove(filepath.Join(m.root, copyDir, "bin/nft")); err != nil {
				t.Fatal(err)
			}
		}, []string{unmountLine, mountLine, unmountLine, runCopyLine}, nil},
		"the registry does not answer": {
			func(_ *testing.T, m *machine) { m.registry = false },
			[]string{unmountLine, mountLine, pullLine},
			[]string{"no program nft", image, "pull the image: no route to the registry"},
		},
		"ctr cannot mount": {
			func(_ *testing.T, m *machine) { m.has, m.failing = true, "images mount" },
			[]string{unmountLine, mountLine, pullLine, mountLine},
			[]string{image, "something failed"},
		},
		"ctr cannot unmount what an earlier attempt left": {
			func(_ *testing.T, m *machine) { m.has, m.failing = true, "unmount" }, []string{unmountLine}, []string{"something failed"},
		},
		"the mounted image is empty": {
			func(_ *testing.T, m *machine) { m.has, m.tree = true, nil },
			[]string{unmountLine, mountLine, unmountLine},
			[]string{"the image has none of", "/usr/sbin/nft"},
		},
		"the image lacks a library": {
			func(_ *testing.T, m *machine) { m.has = true; delete(m.tree, "usr/lib/libmnl.so.0.2") },
			[]string{unmountLine, mountLine, unmountLine},
			[]string{"the image has none of", "/usr/lib/x86_64-linux-gnu/libmnl.so.0"},
		},
		"nft in the image is a script": {
			func(_ *testing.T, m *machine) { m.has, m.tree["usr/sbin/nft"] = true, "#!/bin/sh\n" },
			[]string{unmountLine, mountLine, unmountLine},
			[]string{"read /usr/sbin/nft of the image"},
		},
		"a library with a path": {
			func(t *testing.T, m *machine) {
				t.Helper()
				m.has, m.tree["usr/sbin/nft"] = true, string(object(t, "/lib64/"+loader, "../../etc/shadow"))
			},
			[]string{unmountLine, mountLine, unmountLine},
			[]string{`"../../etc/shadow" of nft in the image is not a name`},
		},
		"a static program": {
			func(t *testing.T, m *machine) {
				t.Helper()
				m.has, m.tree["usr/sbin/nft"] = true, string(object(t, ""))
			},
			[]string{unmountLine, mountLine, unmountLine},
			[]string{"names no dynamic loader"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			c.change(t, m)
			_, err := m.program().Run(t.Context(), "list", "tables")
			for _, part := range c.err {
				if err == nil || !strings.Contains(err.Error(), part) || len(diag.Hints(err)) == 0 {
					t.Errorf("the error %v, with hints %q, does not contain %q", err, diag.Hints(err), part)
				}
			}
			if c.err == nil && err != nil {
				t.Error(err)
			}
			if !slices.Equal(m.lines, c.want) {
				t.Errorf("ran\n%s\nwant\n%s", strings.Join(m.lines, "\n"), strings.Join(c.want, "\n"))
			}
			if m.mounts != 0 && m.failing == "" {
				t.Errorf("the image is mounted %d times", m.mounts)
			}
		})
	}
}

// TestCopyOnArm64: in an image for arm64, loader and libraries are in the directories of that architecture. Those of another one are not
// copied.
func TestCopyOnArm64(t *testing.T) {
	t.Parallel()
	const armLoader = "ld-linux-aarch64.so.1"

	m := newMachine(t)
	lib := func(needs ...string) string { return string(objectFor(t, elf.EM_AARCH64, "", needs...)) }
	m.tree = map[string]string{
		"usr/sbin/nft": string(
			objectFor(t, elf.EM_AARCH64, "/lib/"+armLoader, "libnftables.so.1", "libc.so.6"),
		),
		"lib/" + armLoader:                           "-> aarch64-linux-gnu/" + armLoader,
		"lib/aarch64-linux-gnu/" + armLoader:         lib(),
		"lib/aarch64-linux-gnu/libc.so.6":            lib(armLoader),
		"usr/lib/aarch64-linux-gnu/libnftables.so.1": lib("libc.so.6"),
		"usr/lib/x86_64-linux-gnu/libnftables.so.1":  string(object(t, "", "libmnl.so.0")),
	}
	m.has = true
	if _, err := m.program().Run(t.Context(), "list", "tables"); err != nil {
		t.Fatal(err)
	}

	want := []string{"bin/nft", "contents.json", armLoader, "libc.so.6", "libnftables.so.1", "nft"}
	if got := m.copied(); !slices.Equal(got, want) {
		t.Errorf("the copy has %q, want %q", got, want)
	}

	ran := strings.ReplaceAll(m.lines[len(m.lines)-1], m.root, "")
	if want := copyDir + "/" + armLoader + " --library-path " + copyDir + " " + copyDir + "/nft list tables"; ran != want {
		t.Errorf("ran %q, want %q", ran, want)
	}
}

// TestCopyHasWhatNftNeeds: the copy has nft, its loader and its libraries, and nothing else.
func TestCopyHasWhatNftNeeds(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if _, err := m.program().Run(t.Context(), "list", "tables"); err != nil {
		t.Fatal(err)
	}
	want := []string{"bin/nft", "contents.json", loader, "libc.so.6", "libmnl.so.0", "libnftables.so.1", "nft"}
	if got := m.copied(); !slices.Equal(got, want) {
		t.Errorf("the copy has %q, want %q", got, want)
	}
	script, err := os.ReadFile(filepath.Join(m.root, copyDir, "bin/nft"))
	if want := "#!/bin/sh\nexec " + strings.TrimSuffix(runCopyLine, " list tables") + " \"$@\"\n"; string(script) != want {
		t.Errorf("the script is %q, %v, want %q", script, err, want)
	}
	for name, file := range map[string]string{"libmnl.so.0": "usr/lib/libmnl.so.0.2", loader: "lib/x86_64-linux-gnu/" + loader} {
		body, err := os.ReadFile(filepath.Join(m.root, copyDir, name))
		if string(body) != m.tree[file] {
			t.Errorf("%s is not that of the image: %v", name, err)
		}
	}
}

// TestImageLinksStayInTheImage: an image cannot have a file of the machine copied.
func TestImageLinksStayInTheImage(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	outside := filepath.Join(t.TempDir(), "libc.so.6")
	if err := os.WriteFile(outside, object(t, ""), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{outside, strings.Repeat("../", 30) + strings.TrimPrefix(outside, "/")} {
		m.tree["lib/x86_64-linux-gnu/libc.so.6"] = "-> " + link
		_, err := m.program().Run(t.Context(), "list", "tables")
		if err == nil || !strings.Contains(err.Error(), "libc.so.6") {
			t.Errorf("a link to %s: %v", link, err)
		}
	}
}

// TestImageHasNoTag: containerd drops the tag of an image that was pulled through the interface of the kubelet, as from ECR. Machines
// without nft did not find the image that they had just pulled, and did not boot.
func TestImageHasNoTag(t *testing.T) {
	t.Parallel()
	for _, has := range []bool{true, false} {
		m := newMachine(t)
		m.has = has
		m.image = "registry.example:5000/kube-proxy:v1@sha256:00"
		m.stored = "registry.example:5000/kube-proxy@sha256:00"
		if _, err := m.program().Run(t.Context(), "list", "tables"); err != nil {
			t.Errorf("the machine has the image: %t: %v", has, err)
		}
	}
}

// TestFailureIsRemembered: tasks that need the program do not pull the image one after the other while the registry does not answer.
func TestFailureIsRemembered(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.registry = false
	p := m.program()
	for range 3 {
		if _, err := p.Run(t.Context(), "list", "tables"); err == nil || !strings.Contains(err.Error(), "no route to the registry") {
			t.Errorf("the error is %v", err)
		}
	}
	if n := strings.Count(strings.Join(m.lines, "\n"), pullLine); n != 1 {
		t.Errorf("%d attempts, want 1: %q", n, m.lines)
	}
	m.registry = true
	m.now = m.now.Add(10 * time.Second)
	if _, err := p.Run(t.Context(), "list", "tables"); err != nil {
		t.Error(err)
	}
}

// TestCopyIsMadeOnce: a process uses what it has found; one that starts later looks at the machine first. After a failure
// of nft it is looked for again.
func TestCopyIsMadeOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p := m.program()
	if p.IsPresent(t.Context()) {
		t.Error("a machine without nft and without a copy has it")
	}
	run := func(p *nft.Program, want ...string) {
		t.Helper()
		m.lines = nil
		_, _ = p.Run(t.Context(), "list", "tables")
		if !slices.Equal(m.lines, want) {
			t.Errorf("ran %q, want %q", m.lines, want)
		}
	}
	run(p, unmountLine, mountLine, pullLine, mountLine, unmountLine, runCopyLine)
	if !p.IsPresent(t.Context()) || !m.program().IsPresent(t.Context()) {
		t.Error("the copy is not found")
	}
	m.own = true // somebody installs the package
	run(p, runCopyLine)
	run(m.program(), runOwnLine)
	m.failing = runCopyLine
	run(p, runCopyLine)
	m.failing = ""
	run(p, runOwnLine)
	m.own, m.failing = false, runOwnLine // and removes it
	run(p, runOwnLine)
	run(p, runCopyLine)
}

// TestImageIsNotKnown: the error says so, and how to get nft.
func TestImageIsNotKnown(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for want, reference := range map[string]func(context.Context) (string, error){
		"the node document names none": func(context.Context) (string, error) { return "", nil },
		"containerd does not answer":   func(context.Context) (string, error) { return "", errors.New("containerd does not answer") },
	} {
		p := m.program()
		p.Image = reference
		_, err := p.Run(t.Context(), "list", "tables")
		if err == nil || !strings.Contains(err.Error(), want) || len(m.lines) != 0 {
			t.Errorf("%v after %q, want %s", err, m.lines, want)
		}
	}
}

// TestRealCopy copies nft of the machine that runs the test, with its libraries, and runs the copy: it loads and lists
// rules in a network namespace, and finds control groups.
func TestRealCopy(t *testing.T) {
	own, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("SKIPPED: no nft on this machine")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root")
	}
	listed, err := exec.Command("ldd", own).Output()
	if err != nil {
		t.Skip("SKIPPED: no ldd on this machine")
	}
	m := newMachine(t)
	m.has = true
	m.tree = map[string]string{"usr/sbin/nft": readFile(t, own)}
	for field := range strings.FieldsSeq(string(listed)) {
		if inRoot, ok := strings.CutPrefix(field, "/"); ok {
			m.tree[inRoot] = readFile(t, field)
		}
	}
	namespace := fmt.Sprintf("slwt-nft-%d", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", namespace).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", namespace).Run() })
	p := m.program()
	p.Execute = func(ctx context.Context, name string, args ...string) (string, error) {
		if name == "ctr" {
			return m.execute(ctx, name, args...)
		}
		out, err := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", namespace, name}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return string(out), err
	}
	rules := filepath.Join(t.TempDir(), "rules.nft")
	text := "table inet test {\n\tchain output {\n\t\ttype filter hook output priority -10; policy accept;\n\t\tip daddr 192.0.2.1 reject\n\t}\n}\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--check", "-f", rules}, {"-f", rules}} {
		if _, err := p.Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	out, err := p.Run(t.Context(), "--stateless", "list", "table", "inet", "test")
	if err != nil || !strings.Contains(out, "ip daddr 192.0.2.1 reject") {
		t.Errorf("the rules are %s, %v", out, err)
	}
	if len(m.copied()) < 5 {
		t.Errorf("the copy has %q of %q", m.copied(), slices.Sorted(maps.Keys(m.tree)))
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
