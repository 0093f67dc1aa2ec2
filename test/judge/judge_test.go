// SPDX-License-Identifier: Apache-2.0

// Package judge_test checks the output of slipway with independent tools: templates with cfn-lint,
// configurations with Terraform, and created clusters with moto and the AWS CLI. A test skips
// itself, with the reason, if its tool is missing. The tests do not depend on the internals of the
// renderers.
package judge_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
)

// requireTool returns the path of a program. It skips t, with the reason, if the program is not
// installed.
func requireTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: missing on this machine: %v", err)
	}
	return path
}

func writeFile(t *testing.T, dir, name string, body []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// runCommand runs a command. It returns the output, and whether the command succeeded.
func runCommand(t *testing.T, dir string, env []string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err == nil
}

// judgedTopologies returns the topologies to judge: all of them with SLIPWAY_LONG set (make long), two with -short,
// otherwise those that together have every kind of resource and every kind of network.
func judgedTopologies() []rendertest.Topology {
	judged := []string{
		"ha", "one-machine", "existing", "isolated", "private-bastion", "dns-private", "peering", "warm-pool", "worker-groups",
	}

	switch {
	case testing.Short():
		judged = []string{"ha", "one-machine"}
	case os.Getenv("SLIPWAY_LONG") != "":
		return rendertest.Topologies()
	}

	return slices.DeleteFunc(rendertest.Topologies(), func(x rendertest.Topology) bool { return !slices.Contains(judged, x.Name) })
}

// TestJudgedTopologies: the topologies that make test judges have every kind of resource of the others.
func TestJudgedTopologies(t *testing.T) {
	kindsOf := func(list []rendertest.Topology) map[string]bool {
		out := map[string]bool{}
		for _, x := range list {
			for _, n := range x.Graph(t).Nodes() {
				kind, _, _ := strings.Cut(string(n.Addr), "/")
				out[kind] = true
			}
		}

		return out
	}

	judged := kindsOf(judgedTopologies())
	for kind := range kindsOf(rendertest.Topologies()) {
		if !testing.Short() && !judged[kind] {
			t.Errorf("no judged topology has a %s", kind)
		}
	}
}
