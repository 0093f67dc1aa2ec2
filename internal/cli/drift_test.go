// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// shell runs slipway in this process, against a region.
type shell struct {
	t        *testing.T
	env      map[string]string
	resolver cli.Resolver // nil: this machine's
	// registries of images; nil: they have all images
	registries http.RoundTripper
	stdin      string
}

func newShell(t *testing.T, r regiontest.Region) shell {
	t.Helper()
	agent, err := exec.LookPath("true")
	if err != nil {
		t.Skip("SKIPPED: no program to stand for the agent")
	}
	env := r.Env()
	env["HOME"], env["SLIPWAY_STATE"], env["SLIPWAY_NODE_BINARY"], env["USER"] = t.TempDir(), "s3://slipway-test", agent, "ada"
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(k, "AWS_") || k == "HOME" {
			t.Setenv(k, env[k]) // the SDK looks there
		}
	}
	return shell{t: t, env: env}
}

// run returns the exit code and what was printed.
func (s shell) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	registries := s.registries
	if registries == nil {
		registries = assettest.Registries{}
	}
	code = cli.Main(s.t.Context(), cli.Env{
		Args: args, Stdin: strings.NewReader(s.stdin), Stdout: &out, Stderr: &errs,
		Getenv: func(k string) string { return s.env[k] }, Now: time.Now, Hostname: os.Hostname, Resolver: s.resolver,
		Registries: registries,
	})
	return code, out.String(), errs.String()
}

func (s shell) must(args ...string) string {
	s.t.Helper()
	code, out, errs := s.run(args...)
	if code != 0 {
		s.t.Fatalf("slipway %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// drift returns what 'slipway drift' finds, as "address property", and the causes that it gives.
func (s shell) drift() (found []string, causes map[plan.DriftCause]bool) {
	s.t.Helper()
	code, out, errs := s.run("drift", tampered, "-o", "json")
	var report struct {
		Drift []plan.Deviation `json:"drift"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		s.t.Fatalf("exit %d: %v: %s", code, err, errs)
	}
	if want := map[bool]int{true: 2, false: 0}[len(report.Drift) > 0]; code != want {
		s.t.Errorf("exit %d with %d findings", code, len(report.Drift))
	}
	causes = map[plan.DriftCause]bool{}
	for _, d := range report.Drift {
		found = append(found, strings.TrimSpace(string(d.Addr)+" "+d.Field))
		causes[d.ChangedBy] = true
	}
	return found, causes
}

// TestDriftIsFound: whatever somebody changes by AWS's own API is named by 'slipway drift', with exit code 2 and as
// nobody's doing but theirs, and 'slipway apply' puts it back.
func TestDriftIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a whole cluster is tampered with some forty times")
	}
	r := regiontest.Start(t)
	s := newShell(t, r)
	s.must("state", "init", "--yes")
	s.must("create", "cluster", tampered, "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes", "-q")
	s.must("apply", tampered, "--yes", "-q")
	if found, _ := s.drift(); len(found) > 0 {
		t.Fatalf("drift of what was applied just now: %v", found)
	}
	h := newHand(t.Context(), r)
	kinds := map[string]bool{}
	for _, tt := range tampers() {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.do(h); err != nil {
				t.Fatal(err)
			}
			found, causes := s.drift()
			if len(found) != 1 || found[0] != tt.finding && !strings.HasPrefix(found[0], tt.finding+"/") {
				t.Errorf("want %s, got %v", tt.finding, found)
			}
			if diff := cmp.Diff(map[plan.DriftCause]bool{plan.ExternalChange: true}, causes); diff != "" {
				t.Error(diff)
			}
			s.must("apply", tampered, "--yes", "-q", "--lock-timeout", "5s")
			if found, _ := s.drift(); len(found) > 0 {
				t.Errorf("apply did not put back %v", found)
			}
			kinds[plan.KindOf(graph.Addr(tt.finding))] = true
		})
	}
	fmt.Printf("COUNT drift by the program: %d kinds of change to %d kinds of resources, each found and put back\n", len(tampers()), len(kinds))
	if len(tampers()) < 25 {
		t.Errorf("only %d kinds of drift are tried", len(tampers()))
	}
}
