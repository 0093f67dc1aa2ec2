// SPDX-License-Identifier: Apache-2.0

// Package action_test runs the scripts of the GitHub Action as a runner does, against a local region and a server that stands for
// GitHub's API.
package action_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const token = "secret-token-of-the-job"

// TestMain makes this very binary the command slipway.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "slipway" {
		os.Exit(cli.Main(context.Background(), cli.Env{
			Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			Getenv: os.Getenv, Now: time.Now, Hostname: os.Hostname, Registries: assettest.Registries{},
		}))
	}
	os.Exit(m.Run())
}

// hub stands for GitHub's API of comments. It has others' comments, more than a page of them.
type hub struct {
	t        *testing.T
	lock     sync.Mutex
	comments []comment
	requests []string
}

type comment struct {
	ID   int    `json:"id"`
	Body string `json:"body"`
}

func newHub(t *testing.T) (*hub, string) {
	t.Helper()
	h := &hub{t: t}
	for i := range 150 {
		h.comments = append(h.comments, comment{i + 1, fmt.Sprint("looks good, number ", i)})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /repos/us/infra/issues/7/comments", func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("page"))
		from, to := min((page-1)*100, len(h.comments)), min(page*100, len(h.comments))
		_ = json.NewEncoder(w).Encode(append([]comment{}, h.comments[from:to]...))
	})
	mux.HandleFunc("POST /repos/us/infra/issues/7/comments", func(w http.ResponseWriter, r *http.Request) {
		h.comments = append(h.comments, comment{len(h.comments) + 1, bodyOf(t, r)})
		w.WriteHeader(http.StatusCreated)
	})
	mux.HandleFunc("PATCH /repos/us/infra/issues/comments/{id}", func(_ http.ResponseWriter, r *http.Request) {
		id, _ := strconv.Atoi(r.PathValue("id"))
		h.comments[id-1].Body = bodyOf(t, r)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.lock.Lock()
		defer h.lock.Unlock()
		h.requests = append(h.requests, r.Method)
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "Bad credentials", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return h, server.URL
}

func bodyOf(t *testing.T, r *http.Request) string {
	t.Helper()
	var c comment
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		t.Error(err)
	}
	return c.Body
}

// runner is a job's environment.
type runner struct {
	t   *testing.T
	dir string
	env []string
}

// step is what a step of a job did.
type step struct {
	code            int
	log, summary    string
	changes, saved  string
	environmentPath string
}

func newRunner(t *testing.T, extra map[string]string) *runner {
	t.Helper()
	for _, program := range []string{"bash", "curl", "jq", "git", "sha256sum"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIPPED: the action needs %s, as GitHub's runners have it", program)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.Symlink(self, filepath.Join(bin, "slipway")), os.Mkdir(filepath.Join(dir, "work"), 0o755)); err != nil {
		t.Fatal(err)
	}
	agent, err := exec.LookPath("true") // a program of this machine stands for the agent: nothing runs it
	if err != nil {
		t.Skip("SKIPPED: no program to stand for the agent")
	}
	r := &runner{t: t, dir: filepath.Join(dir, "work"), env: []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "RUNNER_TEMP=" + dir, "GITHUB_SHA=0123456789abcdef", "SLIPWAY_NODE_BINARY=" + agent,
		"INPUT_CLUSTER=demo", "SLIPWAY_STATE=s3://slipway-action", "GH_TOKEN=" + token, "GITHUB_REPOSITORY=us/infra",
	}}
	for k, v := range extra {
		r.env = append(r.env, k+"="+v)
	}
	return r
}

// run runs a script of the action with the inputs of a step.
func (r *runner) run(script string, inputs ...string) step {
	r.t.Helper()
	files := r.t.TempDir()
	path, err := filepath.Abs(filepath.Join("../../action", script))
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Dir = r.dir
	cmd.Env = slices.Concat(r.env, inputs, []string{
		"GITHUB_OUTPUT=" + files + "/output", "GITHUB_STEP_SUMMARY=" + files + "/summary", "GITHUB_PATH=" + files + "/path",
	})
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		r.t.Fatalf("%v %v", err, exit)
	}
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(files, name)) // missing: nothing was written
		return string(text)
	}
	s := step{code: cmd.ProcessState.ExitCode(), log: string(out), summary: read("summary"), environmentPath: strings.TrimSpace(read("path"))}
	for line := range strings.Lines(read("output")) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "changes":
			s.changes = value
		case "plan-file":
			s.saved = value
		}
	}
	if strings.Contains(s.log+s.summary, token) {
		r.t.Errorf("%s printed the token", script)
	}
	return s
}

// slipway runs slipway itself.
func (r *runner) slipway(args ...string) string {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(filepath.Dir(r.dir), "bin", "slipway"), args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("slipway %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String()
}

func (r *runner) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestPullRequestAndMerge is the life of a change: planned on the pull request, saved and applied on merge.
func TestPullRequestAndMerge(t *testing.T) {
	region := regiontest.Start(t)
	h, api := newHub(t)
	env := region.Env()
	env["GITHUB_API_URL"] = api
	r := newRunner(t, env)
	r.slipway("state", "init", "--yes")
	r.slipway("create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	manifests := r.slipway("get", "clusters", "demo", "-o", "yaml") + "---\n" + r.slipway("get", "groups", "demo", "-o", "yaml")
	r.write("demo.yaml", manifests)

	// A pull request: the plan is in the summary and in a comment, and nothing is changed.
	request := []string{"INPUT_COMMAND=plan", "INPUT_MANIFESTS=demo.yaml", "PULL_REQUEST=7", "INPUT_COMMENT=true"}
	s := r.run("run.sh", request...)
	if s.code != 0 || s.changes != "true" || !strings.Contains(s.summary, "Plan: 101 to add, 0 to change, 0 to destroy") {
		t.Fatalf("plan: exit code %d, changes %q\n%s", s.code, s.changes, s.log)
	}
	if n := len(h.comments); n != 151 || !strings.HasPrefix(h.comments[150].Body, "<!-- slipway plan demo -->\n### Plan of cluster demo\n") ||
		!strings.Contains(h.comments[150].Body, "+ vpc/main") || !strings.Contains(h.comments[150].Body, "Cost: about $") {
		t.Errorf("%d comments, the last: %s", n, h.comments[n-1].Body)
	}

	// Merged: the plan is saved, then exactly that is applied.
	if s = r.run("run.sh", "INPUT_COMMAND=save", "INPUT_MANIFESTS=demo.yaml"); s.code != 0 || s.changes != "true" || s.saved != "./slipway.plan" {
		t.Fatalf("save: exit code %d, changes %q, plan %q\n%s", s.code, s.changes, s.saved, s.log)
	}
	if s = r.run("run.sh", "INPUT_COMMAND=apply", "INPUT_WAIT="); s.code != 0 || !strings.Contains(s.summary, "### Applied cluster demo") || !strings.Contains(s.summary, "101/101") {
		t.Fatalf("apply: exit code %d\n%s", s.code, s.log)
	}
	if s = r.run("run.sh", "INPUT_COMMAND=apply", "INPUT_WAIT="); s.code == 0 || !strings.Contains(s.summary, "stale; nothing was changed") {
		t.Errorf("a plan was applied twice: exit code %d\n%s", s.code, s.log)
	}

	// The comment of the pull request is updated, not repeated.
	if s = r.run("run.sh", request...); s.code != 0 || s.changes != "false" || !strings.Contains(s.summary, "no changes") {
		t.Errorf("plan of what is applied: exit code %d, changes %q\n%s", s.code, s.changes, s.log)
	}
	if n := len(h.comments); n != 151 || !strings.Contains(h.comments[150].Body, "AWS matches the manifests.") {
		t.Errorf("%d comments, the last: %s", n, h.comments[n-1].Body)
	}
	testStalePlan(t, r, manifests)
}

// testStalePlan: somebody changes the state between the review of a saved plan and its apply.
func testStalePlan(t *testing.T, r *runner, manifests string) {
	t.Helper()
	r.write("demo.yaml", strings.ReplaceAll(manifests, "maxSize: 2", "maxSize: 4"))
	if s := r.run("run.sh", "INPUT_COMMAND=save", "INPUT_MANIFESTS=demo.yaml", "INPUT_PLAN_FILE=reviewed"); s.code != 0 || s.saved != "./reviewed" || !strings.Contains(s.summary, "MaxSize: 2 → 4") {
		t.Fatalf("save: exit code %d\n%s", s.code, s.log)
	}
	r.write("other.yaml", strings.ReplaceAll(manifests, "maxSize: 2", "maxSize: 9"))
	r.slipway("replace", "-f", "other.yaml", "--yes")
	s := r.run("run.sh", "INPUT_COMMAND=apply", "INPUT_PLAN_FILE=reviewed", "INPUT_WAIT=")
	if s.code == 0 || !strings.Contains(s.summary, "refused: ") || !strings.Contains(s.summary, "### Apply of cluster demo failed") {
		t.Errorf("a stale plan was applied: exit code %d\n%s", s.code, s.log)
	}
}

// TestRefusals: what a pull request may contain does not run, and failures fail the job.
func TestRefusals(t *testing.T) {
	region := regiontest.Start(t)
	h, api := newHub(t)
	env := region.Env()
	env["GITHUB_API_URL"] = api
	r := newRunner(t, env)
	r.slipway("state", "init", "--yes")
	r.write("bad.yaml", "kind: Cluster\n")
	for name, c := range map[string]struct {
		inputs []string
		want   string
	}{
		"an unknown command":          {[]string{"INPUT_COMMAND=destroy"}, "it must be plan, save or apply"},
		"a cluster that is not there": {[]string{"INPUT_COMMAND=plan"}, "there is no cluster demo"},
		"a script as a cluster name":  {[]string{"INPUT_COMMAND=plan", "INPUT_CLUSTER=$(touch owned)"}, "error:"},
		"a script as a file name":     {[]string{"INPUT_COMMAND=plan", "INPUT_MANIFESTS=`touch owned`"}, "error:"},
		"manifests that are refused":  {[]string{"INPUT_COMMAND=save", "INPUT_MANIFESTS=bad.yaml"}, "were refused"},
		"a plan that is not there":    {[]string{"INPUT_COMMAND=apply", "INPUT_PLAN_FILE=missing.plan"}, "read the plan"},
	} {
		s := r.run("run.sh", c.inputs...)
		if s.code == 0 || !strings.Contains(s.log+s.summary, c.want) {
			t.Errorf("%s: exit code %d\n%s\n%s", name, s.code, s.log, s.summary)
		}
		if s.changes != "" {
			t.Errorf("%s: says changes=%s", name, s.changes)
		}
	}
	if _, err := os.Stat(filepath.Join(r.dir, "owned")); err == nil {
		t.Error("an input was run as a script")
	}
	if len(h.requests) != 0 {
		t.Errorf("without a pull request GitHub was asked: %v", h.requests)
	}
	// A failure of GitHub's API fails the step: a missing comment would hide a plan.
	if s := r.run("run.sh", "INPUT_COMMAND=plan", "PULL_REQUEST=7", "GH_TOKEN=expired"); s.code == 0 {
		t.Errorf("a comment that was refused is not noticed\n%s", s.log)
	}
}

// TestLongPlansAreCut: GitHub refuses comments of more than 65,536 characters.
func TestLongPlansAreCut(t *testing.T) {
	h, api := newHub(t)
	r := newRunner(t, map[string]string{"GITHUB_API_URL": api})
	fake := filepath.Join(filepath.Dir(r.dir), "bin", "slipway")
	script := "#!/bin/sh\ni=0; while [ $i -lt 9000 ]; do echo '  + subnet/of-a-long-name ```'; i=$((i+1)); done; exit 2\n"
	if err := errors.Join(os.Remove(fake), os.WriteFile(fake, []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	s := r.run("run.sh", "INPUT_COMMAND=plan", "PULL_REQUEST=7")
	if s.code != 0 || s.changes != "true" || len(h.comments) != 151 {
		t.Fatalf("exit code %d, %d comments\n%.500s", s.code, len(h.comments), s.log)
	}
	body := h.comments[150].Body
	if n := len([]rune(body)); n > 65536 || n < 50000 || !strings.Contains(body, "the rest is in the log of the job") {
		t.Errorf("%d characters, which end with %q", n, body[len(body)-200:])
	}
}

// TestInstall: only an archive with the expected hash is installed.
func TestInstall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: the action runs on Linux")
	}
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	out := tar.NewWriter(zip)
	const program = "#!/bin/sh\necho v1.2.3\n"
	if err := errors.Join(
		out.WriteHeader(&tar.Header{Name: "slipway", Mode: 0o755, Size: int64(len(program))}), func() error { _, err := out.Write([]byte(program)); return err }(),
		out.Close(), zip.Close(),
	); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1.2.3/slipway_1.2.3_linux_"+runtime.GOARCH+".tar.gz" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(archive.Bytes())
	}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(archive.Bytes())
	r := newRunner(t, map[string]string{"SLIPWAY_RELEASES": server.URL, "INPUT_VERSION": "v1.2.3"})
	s := r.run("install.sh", "INPUT_SHA256="+hex.EncodeToString(sum[:]))
	if s.code != 0 {
		t.Fatalf("exit code %d\n%s", s.code, s.log)
	}
	if got, err := exec.Command(filepath.Join(s.environmentPath, "slipway")).Output(); err != nil || string(got) != "v1.2.3\n" {
		t.Errorf("the program in the new PATH: %s %v", got, err)
	}
	for name, inputs := range map[string][]string{
		"another hash": {"INPUT_SHA256=" + strings.Repeat("0", 64)},
		"no hash":      {"INPUT_SHA256="},
		"no release":   {"INPUT_SHA256=" + hex.EncodeToString(sum[:]), "INPUT_VERSION=v9.9.9"},
	} {
		if s := r.run("install.sh", inputs...); s.code == 0 || s.environmentPath != "" {
			t.Errorf("%s: exit code %d, PATH %q\n%s", name, s.code, s.environmentPath, s.log)
		}
	}
}

// TestActionPassesItsInputs: action.yml passes every input as a variable that the scripts read, and no input is part of a script.
func TestActionPassesItsInputs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../action/action.yml")
	if err != nil {
		t.Fatal(err)
	}
	var action struct {
		Inputs map[string]any `json:"inputs"`
		Runs   struct {
			Steps []struct {
				Run string            `json:"run"`
				Env map[string]string `json:"env"`
			} `json:"steps"`
		} `json:"runs"`
	}
	if err := yaml.Unmarshal(text, &action); err != nil {
		t.Fatal(err)
	}
	var scripts strings.Builder
	for _, name := range []string{"run.sh", "install.sh"} {
		body, err := os.ReadFile("../../action/" + name)
		if err != nil {
			t.Fatal(err)
		}
		scripts.Write(body)
	}
	passed := map[string]bool{}
	for _, s := range action.Runs.Steps {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("an input is a part of the script %s", s.Run)
		}
		for variable, value := range s.Env {
			if !strings.Contains(scripts.String(), variable) {
				t.Errorf("no script reads %s", variable)
			}
			passed[strings.TrimSuffix(strings.TrimPrefix(value, "${{ inputs."), " }}")] = true
		}
	}
	for name := range action.Inputs {
		if !passed[name] {
			t.Errorf("the input %s reaches no script", name)
		}
	}
}
