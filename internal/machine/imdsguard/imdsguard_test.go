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
		{"none", []string{"sys/fs/cgroup/systemd/cgroup.procs"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var loads []string
			g := imdsguard.Guard{
				Root:  tree(t, append(c.files, "proc/self/cgroup")...),
				Load:  func(_ context.Context, rules string) error { loads = append(loads, rules); return nil },
				Reach: func(context.Context) error { return nil },
			}
			for range 3 {
				if err := g.Apply(t.Context(), imdsguard.Allowed{Cgroups: []string{"", "/", "../x"}}); (c.want == "") != errors.Is(err, imdsguard.ErrUnsupported) {
					t.Fatal(err)
				}
			}
			if c.want == "" {
				return
			}
			if len(loads) != 1 || !strings.Contains(loads[0], c.want) || strings.Count(loads[0], " accept\n") != 1 {
				t.Errorf("%d loads, want one with %s alone: %s", len(loads), c.want, loads)
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
