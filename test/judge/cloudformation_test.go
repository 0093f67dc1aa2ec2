// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestCloudFormationLint runs cfn-lint once for all templates of a region, since it takes as long
// to start as to check two templates.
func TestCloudFormationLint(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short, since it lints every topology in two regions")
	}
	found := lintAll(t, "us-east-1", "eu-central-1")
	for _, x := range rendertest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			reportVerdict(t, x.Name, "cloudformation", "cfn-lint")
			requireTool(t, "cfn-lint")
			for _, line := range found[x.Name] {
				t.Error(line)
			}
		})
	}
	t.Run("a mistake", func(t *testing.T) {
		t.Parallel()
		lint := requireTool(t, "cfn-lint")
		body := bytes.Replace(renderTemplate(t, rendertest.Graph(t, manifest.NewSetOptions{})), []byte(`"CidrBlock"`), []byte(`"CidrBlok"`), 1)
		good := writeFile(t, t.TempDir(), "good.json", renderTemplate(t, rendertest.Graph(t, manifest.NewSetOptions{})))
		bad := writeFile(t, t.TempDir(), "bad.json", body)
		out, ok := runCommand(t, "", nil, lint, "--format", "parseable", "--", good, bad)
		if ok || !strings.Contains(out, bad) || strings.Contains(out, good) {
			t.Errorf("cfn-lint accepts a property that does not exist, or blames another file: %s", out)
		}
	})
}

// lintAll returns the findings of cfn-lint about each topology's template in each region. It
// returns nothing if cfn-lint is not installed; the tests of the topologies then skip themselves.
func lintAll(t *testing.T, regions ...string) map[string][]string {
	t.Helper()
	found, all := map[string][]string{}, rendertest.Topologies()
	lint, err := exec.LookPath("cfn-lint")
	if err != nil {
		return nil
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, region := range regions {
		dir := filepath.Join(t.TempDir(), region)
		args := []string{lint, "--format", "parseable", "--regions", region, "--"}
		for _, x := range all {
			args = append(args, writeFile(t, dir, x.Name+".json", renderTemplate(t, x.StackGraph(t, region))))
		}
		wg.Go(func() {
			out, ok := runCommand(t, "", nil, args...)
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(out) {
				for _, x := range all {
					if strings.HasPrefix(line, filepath.Join(dir, x.Name+".json:")) {
						found[x.Name], ok = append(found[x.Name], line), true
					}
				}
			}
			if !ok { // not a finding about a file
				t.Errorf("cfn-lint for %s fails: %s", region, out)
			}
		})
	}
	wg.Wait()
	return found
}

func renderTemplate(t *testing.T, g *graph.Graph) []byte {
	t.Helper()
	body, err := cloudformation.Render(g, cloudformation.Options{Description: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
