// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
)

// TestRealCiliumChart renders the channel of Cilium from its chart, and has a real kube-apiserver try all objects. All images have digests.
func TestRealCiliumChart(t *testing.T) {
	chart := os.Getenv("CILIUM_CHART")
	if chart == "" {
		t.Skip("SKIPPED: no chart: CILIUM_CHART names the archive that examples/addons/cilium.yaml pins")
	}
	api := apitest.Start(t)
	dir := t.TempDir()
	text, err := os.ReadFile("addons/cilium.yaml")
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(chart)
	if err != nil {
		t.Fatal(err)
	}
	local := strings.NewReplacer("chart: cilium\n", "chart: cilium.tgz\n", "        repository: https://helm.cilium.io\n        version: 1.19.6\n", "").Replace(string(text))
	for name, content := range map[string][]byte{"cilium.tgz": body, "channel.yaml": []byte(local)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings := map[string]string{
		"HOME": dir, "SLIPWAY_STATE": "file://" + dir + "/state", "SLIPWAY_STATE_KEY": dir + "/key", "AWS_EC2_METADATA_DISABLED": "true",
	}
	run := func(args ...string) (out, errs string, code int) {
		var stdout, stderr bytes.Buffer
		code = cli.Main(t.Context(), cli.Env{
			Args: args, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now, Hostname: os.Hostname,
			Getenv: func(name string) string { return settings[name] }, Registries: assettest.Registries{},
		})

		return stdout.String(), stderr.String(), code
	}
	for _, args := range [][]string{{"state", "init", "--yes"}, {"create", "-f", "ha.yaml", "--yes"}} {
		if _, errs, code := run(args...); code != 0 {
			t.Fatalf("%v: %s", args, errs)
		}
	}
	channel := filepath.Join(dir, "channel.yaml")
	out, errs, code := run("addons", "apply", "demo", "-f", channel, "--kubeconfig", api.Kubeconfig)
	if code != 0 || !strings.Contains(out, "1.19.6") {
		t.Errorf("exit status %d: %s%s", code, out, errs)
	}
	t.Log(out)
	rendered, errs, code := run("addons", "render", "demo", "-f", channel)
	if code != 0 {
		t.Fatal(errs)
	}
	for line := range strings.Lines(rendered) {
		if strings.Contains(line, " image: ") && !strings.Contains(line, "@sha256:") {
			t.Errorf("not pinned:%s", line)
		}
	}
}
