// SPDX-License-Identifier: Apache-2.0

package imdsguard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/imdsguard"
)

// tree creates files and directories below a root; names that end with a slash are directories.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(at, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		body := ""
		if name == "proc/self/cgroup" {
			body = "4:memory:/x\n1:name=systemd:/system.slice/slipway-node.service\n0::/system.slice/slipway-node.service\n"
		}
		if err := os.WriteFile(at, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestApply: which rules are loaded with which hierarchies, and when again.
func TestApply(t *testing.T) {
	const unit = "system.slice/slipway-node.service/"
	for _, c := range []struct {
		name  string
		files []string
		want  string
	}{
		{"version 2", []string{"sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/" + unit}, `socket cgroupv2 level 2 "system.slice/slipway-node.service" accept`},
		{"both versions", []string{"sys/fs/cgroup/unified/cgroup.procs", "sys/fs/cgroup/unified/" + unit}, `socket cgroupv2 level 2 "unified/system.slice/slipway-node.service" accept`},
		{"version 1", []string{"sys/fs/cgroup/systemd/cgroup.procs", "sys/fs/cgroup/systemd/" + unit, "sys/fs/cgroup/net_cls,net_prio/cgroup.procs"}, "meta cgroup { 5308417, 5308418 } accept"},
		{"none", []string{"sys/fs/cgroup/systemd/cgroup.procs"}, "meta mark 5308419 accept"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var loads []string
			g := imdsguard.Guard{
				Root:  tree(t, append(c.files, "proc/self/cgroup")...),
				Load:  func(_ context.Context, rules string) error { loads = append(loads, rules); return nil },
				Reach: func(context.Context) error { return nil },
			}
			for range 3 {
				if err := g.Apply(t.Context(), imdsguard.Allowed{Cgroups: []string{"", "/", "../x"}}); err != nil {
					t.Fatal(err)
				}
			}
			if len(loads) != 1 || !strings.Contains(loads[0], c.want) || strings.Count(loads[0], " accept\n") != 1 {
				t.Errorf("%d loads, want one with %s alone: %s", len(loads), c.want, loads)
			}
		})
	}
}

// TestKernelWithoutSocketMatching: a kernel with cgroup version 2 and without nft_socket, such as Flatcar's, gets rules with marks. A
// failure that has another cause changes nothing: the rules with cgroups are loaded when it has ended. Seen to fail while the error of the
// first rules was the end.
func TestKernelWithoutSocketMatching(t *testing.T) {
	noSocket := errors.New("Could not process rule: No such file or directory")
	for name, c := range map[string]struct {
		refuses func(loads int, rules string) bool
		reach   error
		want    string // in the rules that are loaded at last; empty: none refuse anything
		fails   bool
	}{
		"no nft_socket": {
			refuses: func(_ int, rules string) bool { return strings.Contains(rules, "socket cgroupv2") },
			want:    "meta mark 5308419 accept",
		},
		"one failure":   {refuses: func(loads int, _ string) bool { return loads == 0 }, want: "socket cgroupv2"},
		"no nft at all": {refuses: func(int, string) bool { return true }, fails: true},
		"no marks either": {
			refuses: func(_ int, rules string) bool { return strings.Contains(rules, "socket cgroupv2") },
			reach:   syscall.ECONNREFUSED,
			fails:   true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			last := ""
			loads := 0
			g := imdsguard.Guard{
				Root: tree(t, "sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/system.slice/slipway-node.service/", "proc/self/cgroup"),
				Port: "3988",
				Load: func(_ context.Context, rules string) error {
					loads++
					if c.refuses(loads-1, rules) {
						return noSocket
					}

					last = rules

					return nil
				},
				Reach: func(context.Context) error { return c.reach },
			}
			for range 3 {
				err := g.Apply(t.Context(), imdsguard.Allowed{PodNetwork: "10.244.0.0/16"})
				if c.fails != errors.Is(err, noSocket) || !c.fails && err != nil {
					t.Fatal(err)
				}
			}

			if !strings.Contains(last, c.want) || c.want == "" && strings.Contains(last, "reject") {
				t.Errorf("the rules are %s", last)
			}
		})
	}
}

// TestRefusedAgentOpens: rules that refuse the agent itself are removed, and the next way is tried.
func TestRefusedAgentOpens(t *testing.T) {
	var last string
	g := imdsguard.Guard{
		Root: tree(t, "sys/fs/cgroup/unified/cgroup.procs", "sys/fs/cgroup/unified/system.slice/slipway-node.service/", "proc/self/cgroup"),
		Load: func(_ context.Context, rules string) error { last = rules; return nil },
		Reach: func(context.Context) error {
			return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
		},
	}
	if err := g.Apply(t.Context(), imdsguard.Allowed{}); !errors.Is(err, imdsguard.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
	if strings.Contains(last, "reject") {
		t.Errorf("the agent stays refused: %s", last)
	}
}
