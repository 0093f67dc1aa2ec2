// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// lintAll returns the findings of cfn-lint about each topology's template in each region. Templates that this version of
// cfn-lint has accepted before are not checked again. It returns nothing if cfn-lint is not installed; the tests of the
// topologies then skip themselves.
func lintAll(t *testing.T, regions ...string) map[string][]string {
	t.Helper()
	found, all := map[string][]string{}, rendertest.Topologies()
	lint, err := exec.LookPath("cfn-lint")
	if err != nil {
		return nil
	}

	accepted := openAcceptedTemplates(t, lint)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, region := range regions {
		dir := filepath.Join(t.TempDir(), region)
		args := []string{lint, "--format", "parseable", "--regions", region, "--"}
		records := map[string]string{} // by topology
		for _, x := range all {
			body := renderTemplate(t, x.StackGraph(t, region))
			if record := accepted.record(region, body); !isFile(record) {
				records[x.Name] = record
				args = append(args, writeFile(t, dir, x.Name+".json", body))
			}
		}

		t.Logf("COUNT %s: cfn-lint checks %d of %d templates; it accepted the others before", region, len(records), len(all))
		if len(records) == 0 {
			continue
		}

		wg.Go(func() {
			out, clean := runCommand(t, "", nil, args...)
			ok := clean
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

			if clean {
				for _, record := range records {
					writeFile(t, filepath.Dir(record), filepath.Base(record), nil)
				}
			}
		})
	}

	wg.Wait()

	return found
}

// acceptedTemplates is a folder with an empty file for each template that one version of cfn-lint accepted.
type acceptedTemplates struct{ dir, version string }

func openAcceptedTemplates(t *testing.T, lint string) acceptedTemplates {
	t.Helper()
	home, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}

	version, ok := runCommand(t, "", nil, lint, "--version")
	if !ok {
		t.Fatalf("cfn-lint --version fails: %s", version)
	}

	return acceptedTemplates{dir: filepath.Join(home, "slipway", "test", "cfn-lint"), version: version}
}

func (a acceptedTemplates) record(region string, body []byte) string {
	sum := sha256.Sum256(slices.Concat([]byte(a.version+"\n"+region+"\n"), body))

	return filepath.Join(a.dir, hex.EncodeToString(sum[:]))
}

func isFile(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}

func renderTemplate(t *testing.T, g *graph.Graph) []byte {
	t.Helper()
	body, err := cloudformation.Render(g, cloudformation.Options{Description: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
