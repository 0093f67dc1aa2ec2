// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/moto/suite"
)

// listFile is the list of moto's tests that run.
const listFile = "suite.txt"

// TestMotoSuite runs the listed tests of moto against the region, those of each service in a process of its
// own. MOTO_TESTS is the folder that has moto's folder tests, and MOTO_PYTHON a Python with moto and pytest.
func TestMotoSuite(t *testing.T) {
	t.Parallel()

	tool := pytest{folder: os.Getenv("MOTO_TESTS"), python: os.Getenv("MOTO_PYTHON")}
	if tool.folder == "" || tool.python == "" {
		t.Skip("SKIPPED: no tests of moto: run make moto-suite, which says how to get them")
	}

	var total tally
	t.Cleanup(func() { t.Log(total.String()) })

	for service, list := range byService(readList(t)) {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			results := tool.run(t, list)
			mismatches := suite.Compare(list, results)
			for _, mismatch := range mismatches {
				t.Errorf("%s %s\n%s", mismatch.ID, mismatch.Problem, mismatch.Text)
			}

			total.add(list, len(mismatches))
		})
	}
}

// tally counts tests; it may be used concurrently.
type tally struct {
	mu    sync.Mutex
	tests int
	wrong int
	count map[suite.Verdict]int
}

func (c *tally) add(list []suite.Entry, wrong int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[suite.Verdict]int{}
	}

	c.tests += len(list)
	c.wrong += wrong
	for verdict, n := range suite.Count(list) {
		c.count[verdict] += n
	}
}

// String returns the line of counts that make test shows.
func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	parts := []string{fmt.Sprintf("COUNT moto's tests: %d run, %d not as listed; listed", c.tests, c.wrong)}
	for _, verdict := range suite.Verdicts() {
		parts = append(parts, fmt.Sprintf("%s: %d", verdict, c.count[verdict]))
	}

	return strings.Join(parts, ", ")
}

// byService returns the entries of each service by its folder, such as test_ec2.
func byService(list []suite.Entry) map[string][]suite.Entry {
	out := map[string][]suite.Entry{}
	for _, entry := range list {
		folder, _, _ := strings.Cut(entry.ID, "/")
		out[folder] = append(out[folder], entry)
	}

	return out
}

func readList(tb testing.TB) []suite.Entry {
	tb.Helper()
	text, err := os.ReadFile(listFile)
	if err != nil {
		tb.Fatal(err)
	}

	list, err := suite.ParseList(bytes.NewReader(text))
	if err != nil {
		tb.Fatalf("%s: %v", listFile, err)
	}

	return list
}

// pytest runs tests of moto.
type pytest struct {
	folder string // has moto's folder tests
	python string // has moto and pytest
}

// run runs tests against regions of their own and returns the results.
func (p pytest) run(tb testing.TB, list []suite.Entry) []suite.Result {
	tb.Helper()
	dir := tb.TempDir()
	ids := make([]string, 0, len(list))
	var files []string

	for _, entry := range list {
		ids = append(ids, entry.ID)
		file, _, _ := strings.Cut(entry.ID, "::")
		files = append(files, filepath.Join("tests", file))
	}

	listPath := filepath.Join(dir, "list")
	if err := os.WriteFile(listPath, []byte(strings.Join(ids, "\n")), 0o600); err != nil {
		tb.Fatal(err)
	}

	plugin, err := filepath.Abs(".")
	if err != nil {
		tb.Fatal(err)
	}

	resultsPath := filepath.Join(dir, "results")
	args := []string{
		"-m", "pytest", "-q", "-p", "moto_region_plugin", "-p", "no:cacheprovider", "--rootdir", p.folder,
	}
	cmd := exec.CommandContext(tb.Context(), p.python, append(args, slices.Compact(files)...)...)
	cmd.Dir = p.folder
	path := []string{plugin, p.folder, os.Getenv("PYTHONPATH")}
	cmd.Env = append(
		cmd.Environ(),
		"PYTHONPATH="+strings.Join(path, string(os.PathListSeparator)),
		"PYTHONDONTWRITEBYTECODE=1",
		"MOTO_SUITE_LIST="+listPath,
		"MOTO_SUITE_RESULTS="+resultsPath,
	)
	cmd.Env = append(cmd.Env, regionEnv(startFreshRegions(tb))...)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() > 1) {
		tb.Fatalf("run pytest: %v\n%s", err, out)
	}

	return readResults(tb, resultsPath)
}

// regionEnv returns the variables with which moto's tests, in their server mode, call the region.
func regionEnv(url string) []string {
	return []string{
		"TEST_SERVER_MODE=true",
		"TEST_SERVER_MODE_ENDPOINT=" + url,
		"AWS_ENDPOINT_URL=" + url,
		"AWS_DEFAULT_REGION=" + regiontest.RegionName,
		"AWS_ACCESS_KEY_ID=" + regiontest.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + regiontest.SecretKey,
		"AWS_MAX_ATTEMPTS=1", // a refusal is final
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	}
}

func readResults(tb testing.TB, path string) []suite.Result {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}

	var out []suite.Result
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		var result suite.Result
		if err := json.Unmarshal(lines.Bytes(), &result); err != nil {
			tb.Fatalf("read the results: %v", err)
		}

		out = append(out, result)
	}

	return out
}
