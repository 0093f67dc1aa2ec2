// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/test/conformance"
)

// readList returns the list of specs that are left out.
func readList(t *testing.T) []conformance.Exception {
	t.Helper()
	file, err := os.Open("exceptions.txt")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = file.Close() }()
	list, err := conformance.ParseExceptions(file)
	if err != nil {
		t.Fatal(err)
	}

	return list
}

// TestExceptionsAreSpecs: each line of the list names a spec of upstream's own list of the pinned version.
func TestExceptionsAreSpecs(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	cmd.Dir = "../../assets/conformance"
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off")
	module, err := cmd.Output()
	if err != nil || len(strings.TrimSpace(string(module))) == 0 {
		t.Skip("SKIPPED: the source of Kubernetes is not on this machine (slipway assets build)")
	}

	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "test/conformance/testdata/conformance.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var specs []struct{ Codename string }
	if err := yaml.Unmarshal(text, &specs); err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, spec := range specs {
		names = append(names, spec.Codename)
	}

	if len(names) < 400 {
		t.Fatalf("upstream's list has %d specs", len(names))
	}

	for _, unknown := range conformance.FindUnknown(conformance.Conformance.Exceptions(readList(t)), names) {
		t.Errorf("no spec has the name %s", unknown.Spec)
	}
}

func TestParseExceptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "",
		"# why\n\na [Conformance] -- no image": "",
		"a [Conformance] [LinuxOnly] -- no image\nb [Conformance] -- the same": "",
		"a [Feature:NetworkPolicy] -- no SCTP":                                 "",
		"a -- no image":                                                        `line 1: invalid name "a"`,
		" a [Conformance] -- no image":                                         "invalid name",
		"# x\na [Conformance]":                                                 "line 2: a [Conformance] has no reason",
		"a [Conformance] -- ":                                                  "has no reason",
		"b [Conformance] -- x\na [Conformance] -- x":                           "line 2: a [Conformance] does not sort after b [Conformance]",
		"a [Conformance] -- x\na [Conformance] -- y":                           "does not sort after",
	} {
		_, err := conformance.ParseExceptions(strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseExceptions(f *testing.F) {
	f.Add("a [Conformance] -- no image\n# comment\n\nb [Conformance] -- x")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := conformance.ParseExceptions(strings.NewReader(text))
		if err != nil {
			return
		}

		for _, e := range list {
			if e.Spec == "" || strings.TrimSpace(e.Reason) == "" || !strings.Contains(text, e.Spec) {
				t.Errorf("%q: %+v", text, e)
			}
		}
	})
}

func TestFindUnknown(t *testing.T) {
	t.Parallel()
	list := []conformance.Exception{{Spec: "a", Reason: "x"}, {Spec: "b", Reason: "y"}}
	got := conformance.FindUnknown(list, []string{"b", "a b", "c"})
	if diff := cmp.Diff(list[:1], got); diff != "" {
		t.Error(diff)
	}
}

func TestRegistries(t *testing.T) {
	t.Parallel()
	var got map[string]string
	if err := yaml.Unmarshal([]byte(conformance.Registries("mirror:5000")), &got); err != nil {
		t.Fatal(err)
	}

	if got["promoterE2eRegistry"] != "mirror:5000/registry.k8s.io/e2e-test-images" || len(got) != 9 {
		t.Errorf("%v", got)
	}
}

func TestRunArguments(t *testing.T) {
	t.Parallel()
	run := conformance.Run{
		Programs:   conformance.Programs{Tests: "/bin/e2e.test", Runner: "/bin/ginkgo", Kubectl: "/bin/kubectl"},
		Kubeconfig: "/run/kubeconfig",
		Directory:  "/reports",
		Report:     "first.json",
		Processes:  4,
		Timeout:    2 * time.Hour,
	}
	list := []conformance.Exception{{Spec: "[sig-node] A (b) [Conformance]", Reason: "x"}}
	const skip = `--skip=\[sig-node\] A \(b\) \[Conformance\]$`

	for _, c := range []struct {
		name      string
		selection conformance.Selection
		want      []string
	}{
		{"all", conformance.Selection{Suite: conformance.Conformance}, nil},
		{"without exceptions", conformance.Selection{Suite: conformance.Conformance, Exceptions: list}, []string{skip}},
		{
			"focus",
			conformance.Selection{Suite: conformance.Conformance, Focus: "Job|Pod", Exceptions: list},
			[]string{"--focus=Job|Pod", skip},
		},
		{
			"failed ones",
			conformance.Selection{Suite: conformance.Conformance, Only: []string{"c [Conformance]", "d"}, Focus: "Job"},
			[]string{`--focus=c \[Conformance\]$`, "--focus=d$"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := slices.Concat(
				[]string{
					"run",
					"--no-color",
					"--procs=4",
					"--timeout=2h0m0s",
					"--label-filter=Conformance",
					"--output-dir=/reports",
					"--json-report=first.json",
				},
				c.want,
				[]string{
					"/bin/e2e.test",
					"--",
					"--provider=skeleton",
					"--kubeconfig=/run/kubeconfig",
					"--kubectl-path=/bin/kubectl",
					"--e2e-output-dir=/reports/output",
					"--dump-logs-on-failure=false",
					"--disable-log-dump",
				},
			)
			if diff := cmp.Diff(want, conformance.RunArguments(run, c.selection)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSuites(t *testing.T) {
	t.Parallel()
	both := []conformance.Exception{{Spec: "a [Conformance]", Reason: "x"}, {Spec: "b [Feature:NetworkPolicy]", Reason: "y"}}

	for _, c := range []struct {
		name   string
		suite  conformance.Suite
		filter string
		spec   string
	}{
		{"", conformance.Conformance, "Conformance", "a [Conformance]"},
		{"Conformance", conformance.Conformance, "Conformance", "a [Conformance]"},
		{"NetworkPolicy", conformance.NetworkPolicy, "Feature: containsAny NetworkPolicy", "b [Feature:NetworkPolicy]"},
	} {
		suite, err := conformance.ParseSuite(c.name)
		if err != nil || suite != c.suite {
			t.Errorf("%q: %q %v", c.name, suite, err)
		}

		if got := suite.Exceptions(both); len(got) != 1 || got[0].Spec != c.spec {
			t.Errorf("%q: exceptions %v", c.name, got)
		}

		want := "-ginkgo.label-filter=" + c.filter
		if args := conformance.ListArguments("r.json", conformance.Selection{Suite: suite}); !slices.Contains(args, want) {
			t.Errorf("%q: %v has no %s", c.name, args, want)
		}
	}

	if _, err := conformance.ParseSuite("Storage"); err == nil || !strings.Contains(err.Error(), "Conformance or NetworkPolicy") {
		t.Error(err)
	}
}

func TestReadReport(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/report.json")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = file.Close() }()
	results, err := conformance.ReadReport(file)
	if err != nil {
		t.Fatal(err)
	}

	const (
		broken    = "[sig-apps] Daemon set should roll back [Conformance]"
		slow      = "[sig-apps] Job should run [Conformance]"
		suite     = "(ReportAfterSuite Kubernetes e2e suite report)"
		secrets   = "[sig-node] Secrets should be consumable [Conformance]"
		dualStack = "[sig-network] Services with IPv6 should serve [Conformance]"
		emptyDir  = "[sig-storage] EmptyDir should share [Conformance]"
	)
	want := []conformance.Result{
		{Spec: suite, Outcome: conformance.Failed, Text: "no space left"},
		{Spec: broken, Outcome: conformance.Failed, Text: "panic"},
		{Spec: slow, Outcome: conformance.Failed, Text: "timed out\nwaiting for the pod", Time: time.Second},
		{Spec: dualStack, Outcome: conformance.Skipped, Text: "needs dual stack\nat file.go:1"},
		{Spec: secrets, Outcome: conformance.Passed, Time: 4200 * time.Millisecond},
		{Spec: emptyDir, Outcome: conformance.NotRun},
	}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff([]string{broken, slow}, conformance.FailedSpecs(results)); diff != "" {
		t.Errorf("the failure of the suite cannot be repeated as a spec:\n%s", diff)
	}

	missing := conformance.FindMissing([]string{broken, emptyDir, "gone [Conformance]"}, results)
	if diff := cmp.Diff([]string{emptyDir, "gone [Conformance]"}, missing); diff != "" {
		t.Error(diff)
	}

	if _, err := conformance.ReadReport(strings.NewReader("not JSON")); err == nil {
		t.Error("no error")
	}
}

func TestSecondRun(t *testing.T) {
	t.Parallel()
	first := []conformance.Result{
		{Spec: "a", Outcome: conformance.Failed, Text: "slow"},
		{Spec: "b", Outcome: conformance.Failed, Text: "broken"},
		{Spec: "c", Outcome: conformance.Passed},
		{Spec: "d", Outcome: conformance.Skipped, Text: "no IPv6\nat x.go"},
		{Spec: "e", Outcome: conformance.NotRun},
	}
	second := []conformance.Result{
		{Spec: "(AfterSuite)", Outcome: conformance.Failed, Text: "cleanup"},
		{Spec: "a", Outcome: conformance.Passed},
		{Spec: "b", Outcome: conformance.Failed, Text: "broken still"},
		{Spec: "c", Outcome: conformance.NotRun},
	}
	got := conformance.Replace(first, second)
	want := []conformance.Result{second[1], second[2], first[2], first[3], first[4], second[0]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if first[0].Outcome != conformance.Failed {
		t.Error("the first results were changed")
	}

	list := []conformance.Exception{{Spec: "x", Reason: "no image"}, {Spec: "y", Reason: "no image"}}
	lines := []string{
		"2 passed (1 of them only in a second run, alone), 2 failed, 1 skipped themselves, 2 left out by the list",
		"1 skipped itself: no IPv6",
		"2 left out: no image",
	}
	if diff := cmp.Diff(lines, conformance.Counts(got, list, 1)); diff != "" {
		t.Error(diff)
	}
}

// TestSelectionsOfTheTests lists specs with the built tests, without a cluster: exceptions and names of failed specs select what
// they name and nothing else.
func TestSelectionsOfTheTests(t *testing.T) {
	t.Parallel()
	program := builtTests(t)
	all := listSpecs(t, program, conformance.Selection{})
	if len(all) < 400 {
		t.Fatalf("the tests have %d specs", len(all))
	}

	for _, suite := range []conformance.Suite{conformance.Conformance, conformance.NetworkPolicy} {
		specs := listSpecs(t, program, conformance.Selection{Suite: suite})
		for _, unknown := range conformance.FindUnknown(suite.Exceptions(readList(t)), specs) {
			t.Errorf("%s has no spec with the name %s", suite, unknown.Spec)
		}
	}

	isOdd := func(name string) bool { return strings.ContainsAny(name, ",|/") || name == all[0] }
	var odd []conformance.Exception
	for _, name := range all {
		if isOdd(name) {
			odd = append(odd, conformance.Exception{Spec: name})
		}
	}

	rest := slices.DeleteFunc(slices.Clone(all), isOdd)
	if diff := cmp.Diff(rest, listSpecs(t, program, conformance.Selection{Exceptions: odd})); diff != "" || len(odd) < 2 {
		t.Errorf("%d exceptions:\n%s", len(odd), diff)
	}

	pattern := regexp.MustCompile(`sig-apps.*Job`)
	want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !pattern.MatchString(name) })
	if diff := cmp.Diff(want, listSpecs(t, program, conformance.Selection{Focus: pattern.String()})); diff != "" || len(want) == 0 {
		t.Errorf("FOCUS=%s:\n%s", pattern, diff)
	}
}

// builtTests returns the path of the built tests, or skips t.
func builtTests(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("SLIPWAY_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("SKIPPED: %v", err)
		}

		cache = filepath.Join(dir, "slipway")
	}

	found, err := filepath.Glob(filepath.Join(cache, "assets/work/conformance-*/bin/e2e.test"))
	if err != nil || len(found) == 0 {
		t.Skip("SKIPPED: the conformance tests are not built here (slipway assets build --conformance)")
	}

	return found[0]
}

func listSpecs(t *testing.T, program string, s conformance.Selection) []string {
	t.Helper()
	report := filepath.Join(t.TempDir(), "list.json")
	cmd := exec.CommandContext(t.Context(), program, conformance.ListArguments(report, s)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	file, err := os.Open(report)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = file.Close() }()
	results, err := conformance.ReadReport(file)
	if err != nil {
		t.Fatal(err)
	}

	return conformance.PassedSpecs(results)
}
