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
	"github.com/slipway-k8s/slipway/internal/infra/target/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/target/targettest"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestCloudFormationLint has cfn-lint read all templates of a region in one process: its start costs as much as two
// templates.
func TestCloudFormationLint(t *testing.T) {
	t.Parallel()
	found := lintAll(t, "us-east-1", "eu-central-1")
	for _, x := range targettest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			cell(t, x.Name, "cloudformation", "cfn-lint")
			tool(t, "cfn-lint")
			for _, line := range found[x.Name] {
				t.Error(line)
			}
		})
	}
	t.Run("a mistake", func(t *testing.T) {
		t.Parallel()
		lint := tool(t, "cfn-lint")
		body := bytes.Replace(template(t, targettest.Graph(t, manifest.NewOptions{})), []byte(`"CidrBlock"`), []byte(`"CidrBlok"`), 1)
		good := write(t, t.TempDir(), "good.json", template(t, targettest.Graph(t, manifest.NewOptions{})))
		bad := write(t, t.TempDir(), "bad.json", body)
		out, ok := run(t, "", nil, lint, "--format", "parseable", "--", good, bad)
		if ok || !strings.Contains(out, bad) || strings.Contains(out, good) {
			t.Errorf("cfn-lint accepts a property that does not exist, or blames another file: %s", out)
		}
	})
}

// lintAll says what cfn-lint has against each topology's template, in each region. Where there is no cfn-lint it says
// nothing; the topologies' tests skip themselves.
func lintAll(t *testing.T, regions ...string) map[string][]string {
	t.Helper()
	found, all := map[string][]string{}, targettest.Topologies()
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
			args = append(args, write(t, dir, x.Name+".json", template(t, x.StackGraph(t, region))))
		}
		wg.Go(func() {
			out, ok := run(t, "", nil, args...)
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(out) {
				for _, x := range all {
					if strings.HasPrefix(line, filepath.Join(dir, x.Name+".json:")) {
						found[x.Name], ok = append(found[x.Name], line), true
					}
				}
			}
			if !ok { // it speaks of no file
				t.Errorf("cfn-lint for %s fails: %s", region, out)
			}
		})
	}
	wg.Wait()
	return found
}

func template(t *testing.T, g *graph.Graph) []byte {
	t.Helper()
	body, err := cloudformation.Render(g, cloudformation.Options{Description: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
