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
	"github.com/slipway-k8s/slipway/test/dnsfunction"
)

// TestMain is the Lambda function of a cluster when the local region starts this program as one.
func TestMain(m *testing.M) {
	dnsfunction.Main()
	os.Exit(m.Run())
}

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

// judgedTopologies returns the topologies to judge: all of them, or two with -short.
func judgedTopologies() []rendertest.Topology {
	all := rendertest.Topologies()
	if !testing.Short() {
		return all
	}

	return slices.DeleteFunc(all, func(x rendertest.Topology) bool { return x.Name != "ha" && x.Name != "one-machine" })
}

// shortTopologies are those that slow judges look at in make test. Together they have every kind of resource.
func shortTopologies() []string {
	return []string{
		"ha", "one-machine", "existing", "isolated", "private-bastion", "dns-private", "peering", "pod-identity", "warm-pool", "worker-groups",
		"etcd-dns-sns",
	}
}

// skipUnlessJudged skips the judgement of a topology that only the long form has.
func skipUnlessJudged(t *testing.T, topology string) {
	t.Helper()
	if os.Getenv("SLIPWAY_LONG") == "" && !slices.Contains(shortTopologies(), topology) {
		t.Skip("SKIPPED: a long form, see make long")
	}
}

// TestShortTopologies: the topologies of the short form have every kind of resource.
func TestShortTopologies(t *testing.T) {
	judged := map[string]bool{}
	for _, x := range rendertest.Topologies() {
		for _, n := range x.Graph(t).Nodes() {
			kind, _, _ := strings.Cut(string(n.Addr), "/")
			judged[kind] = judged[kind] || slices.Contains(shortTopologies(), x.Name)
		}
	}

	for kind, ok := range judged {
		if !ok {
			t.Errorf("no topology of the short form has a %s", kind)
		}
	}
}
