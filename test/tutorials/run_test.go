// SPDX-License-Identifier: Apache-2.0

package tutorials_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/referencedata"
	"github.com/slipway-k8s/slipway/test/tutorials"
)

// TestMain makes this very binary the command slipway, for tutorials that need no machines.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "slipway" {
		os.Exit(cli.Main(context.Background(), cli.Env{
			Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			Getenv: os.Getenv, Now: time.Now, Hostname: os.Hostname, Registries: assettest.Registries{},
		}))
	}
	os.Exit(m.Run())
}

// reader types the commands of a tutorial into one shell.
type reader struct {
	t      *testing.T
	in     io.Writer
	out    *bufio.Reader
	skips  map[string]string // commands that are not run, with the reason
	others map[string]string // commands that are typed in place of those of the document
	script strings.Builder   // what was typed and printed
}

// newReader starts a shell in dir.
func newReader(t *testing.T, dir string, env []string) *reader {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc")
	cmd.Dir, cmd.Env = dir, env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Skipf("SKIPPED: no bash: %v", err)
	}
	t.Cleanup(func() { _ = errors.Join(in.Close(), cmd.Wait()) })
	return &reader{t: t, in: in, out: bufio.NewReader(out)}
}

// run types a command and returns its output and its exit code.
func (r *reader) run(text string) (output string, code int) {
	r.t.Helper()
	const end = "end-of-command-of-the-tutorial"
	if _, err := fmt.Fprintf(r.in, "{ %s\n} </dev/null\nexit_code=$?; echo; echo %s $exit_code\n", text, end); err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for {
		line, err := r.out.ReadString('\n')
		if err != nil {
			r.t.Fatalf("the shell ended: %v\n%s", err, &b)
		}
		if rest, ok := strings.CutPrefix(line, end+" "); ok {
			code, _ = strconv.Atoi(strings.TrimSpace(rest))
			return strings.TrimSuffix(b.String(), "\n"), code
		}
		b.WriteString(line)
	}
}

// follow runs the commands of a document and compares the output with what it shows.
func (r *reader) follow(document string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", document))
	if err != nil {
		r.t.Fatal(err)
	}
	skipped := map[string]bool{}
	commands := tutorials.Parse(string(text))
	if len(commands) < 3 {
		r.t.Fatalf("%s has only %d commands", document, len(commands))
	}
	for _, c := range commands {
		if reason, ok := r.skips[c.Text]; ok {
			skipped[c.Text] = true
			r.t.Logf("%s:%d: not run: %s (%s)", document, c.Line, c.Text, reason)
			continue
		}
		r.check(document, c)
	}
	for text := range r.skips {
		if !skipped[text] {
			r.t.Errorf("%s has no command %q that could be skipped", document, text)
		}
	}
}

// check runs one command. It must succeed, or exit with 2 for changes, unless the document shows an error.
func (r *reader) check(document string, c tutorials.Command) {
	r.t.Helper()
	start := time.Now()
	typed := c.Text
	if other, ok := r.others[c.Text]; ok {
		typed = other
	}
	out, code := r.run(typed)
	fmt.Fprintf(&r.script, "$ %s\n%s\n", c.Text, out)
	r.t.Logf("%s:%d: %s (%s)", document, c.Line, c.Text, time.Since(start).Round(100*time.Millisecond))
	showsError := slices.ContainsFunc(c.Output, func(s string) bool { return strings.Contains(strings.ToLower(s), "error:") })
	mayChange := strings.Contains(c.Text, "slipway plan") || strings.Contains(c.Text, "slipway diff") ||
		strings.Contains(c.Text, "slipway addons diff")
	switch {
	case showsError && code == 0:
		r.t.Errorf("%s:%d: %s: the document shows an error, and it succeeded\n%s", document, c.Line, c.Text, out)
	case !showsError && code != 0 && (code != 2 || !mayChange):
		r.t.Fatalf("%s:%d: %s: exit code %d\n%s", document, c.Line, c.Text, code, out)
	}
	if missing := c.Missing(out); len(missing) > 0 {
		r.t.Errorf("%s:%d: %s: the output lacks:\n  %s\nit is:\n%s", document, c.Line, c.Text, strings.Join(missing, "\n  "), out)
	}
}

// saveTranscript writes what was typed and printed, to refresh the document with.
func (r *reader) saveTranscript(name string) {
	if dir := os.Getenv("SLIPWAY_TRANSCRIPTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(r.script.String()), 0o600); err != nil {
			r.t.Error(err)
		}
	}
}

// checkTree fails the test if a tutorial left something in this checkout that git would add.
func checkTree(t *testing.T) {
	t.Helper()
	status := func() string {
		out, err := exec.Command("git", "-C", "../..", "status", "--porcelain").Output()
		if err != nil {
			return "" // not a checkout of git
		}
		return string(out)
	}
	before := status()
	t.Cleanup(func() {
		if after := status(); after != before {
			t.Errorf("files of the checkout changed:\nbefore:\n%s\nafter:\n%s", before, after)
		}
	})
}

// recordsEnv is the environment of a shell in which slipway runs against a region without machines.
func recordsEnv(t *testing.T, home string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := exec.LookPath("true") // a program of this machine stands for the agent: nothing runs it
	if err != nil {
		t.Skip("SKIPPED: no program to stand for the agent")
	}
	bin := filepath.Join(home, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.Symlink(self, filepath.Join(bin, "slipway"))); err != nil {
		t.Fatal(err)
	}
	region := regiontest.Start(t).Env()
	env := []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "SLIPWAY_NODE_BINARY=" + agent,
		"GOPATH=" + os.Getenv("GOPATH"), "CHECKPOINT_DISABLE=1", "TF_CLI_ARGS_apply=-auto-approve", // the reader answers yes
		"TF_CLI_ARGS_destroy=-auto-approve",
	}
	for _, name := range slices.Sorted(maps.Keys(region)) {
		env = append(env, name+"="+region[name])
	}
	return env
}

// TestReadmeAgainstAWS types the commands of the README that do not need machines.
func TestReadmeAgainstAWS(t *testing.T) {
	checkTree(t)
	home := t.TempDir()
	r := newReader(t, home, recordsEnv(t, home))
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "## Against AWS")
	if !found {
		t.Fatal("the README has no section Against AWS")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	commands := tutorials.Parse(section)
	ran := 0
	for _, c := range commands {
		if strings.Contains(c.Text, "slipway validate") {
			continue // this region has no machines
		}
		r.check("README.md", c)
		ran++
	}
	if ran < 5 {
		t.Errorf("only %d commands were run", ran)
	}
	if _, err := os.Stat(filepath.Join(home, ".kube", "config")); err != nil {
		t.Errorf("export kubeconfig wrote elsewhere: %v", err)
	}
}

// TestFromTerraform follows docs/tutorials/from-terraform.md, with the stand-in for the AWS provider that the tutorial names.
func TestFromTerraform(t *testing.T) {
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skipf("SKIPPED: missing on this machine: %v", err)
	}
	checkTree(t)
	home := t.TempDir()
	work := filepath.Join(home, "work")
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(work, 0o755), os.Symlink(examples, filepath.Join(work, "examples"))); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, work, append(recordsEnv(t, home), standInProvider(t)...))
	defer r.saveTranscript("from-terraform.txt")
	// Terraform does not look for a provider that the configuration of the command line names, but init asks the registry for it.
	r.others = map[string]string{"terraform init": "terraform get"}
	r.skips = map[string]string{"terraform -chdir=cluster init": "it would ask the registry for the provider, which the stand-in replaces"}
	r.follow("docs/tutorials/from-terraform.md")
}

// standInProvider builds the stand-in for the AWS provider, and returns the environment in which Terraform uses it.
func standInProvider(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	schema := filepath.Join(dir, referencedata.TerraformProvider)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "terraform-provider-aws"), ".")
	build.Dir = "../judge/awsprovider"
	if out, err := build.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "proxy.golang.org") {
			t.Skipf("SKIPPED: cannot download the modules of the stand-in provider: %s", out)
		}
		t.Fatalf("build the stand-in provider: %v\n%s", err, out)
	}
	config := fmt.Sprintf("provider_installation {\n  dev_overrides { \"hashicorp/aws\" = %q }\n  direct {}\n}\n", dir)
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(schema), 0o755), os.WriteFile(schema, referencedata.Read(t, referencedata.TerraformProvider), 0o600),
		os.WriteFile(filepath.Join(dir, "terraformrc"), []byte(config), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "terraformrc"), "SLIPWAY_TERRAFORM_SCHEMA=" + schema}
}

// machinesEnv is the environment of a shell in the root of this checkout, with a region of its own that has real machines. It skips the test,
// or fails it if SLIPWAY_E2E=require, where this machine cannot run one.
func machinesEnv(t *testing.T) (root string, env []string) {
	t.Helper()
	reject := t.Skipf
	if os.Getenv("SLIPWAY_E2E") == "require" {
		reject = t.Fatalf
	}
	if testing.Short() || runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("SKIPPED: real machines need root on Linux, and the full form of the tests")
	}
	if os.Getenv("SLIPWAY_E2E") == "" && os.Getenv("SLIPWAY_TUTORIALS") == "" {
		t.Skip("SKIPPED: tutorials with machines run in make e2e (or with SLIPWAY_TUTORIALS=1)")
	}
	shared := os.Getenv("SLIPWAY_CACHE")
	if shared == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		shared = filepath.Join(dir, "slipway")
	}
	kubectl, _ := filepath.Glob(filepath.Join(shared, "assets/files/dl.k8s.io/release/*/bin/linux", runtime.GOARCH, "kubectl"))
	if len(kubectl) == 0 {
		reject("SKIPPED: no built assets in %s (make assets)", shared)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "bin/slipway")); err != nil {
		reject("SKIPPED: no bin/slipway (make build)")
	}
	for _, program := range []string{"aws", "nft", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			reject("SKIPPED: the tutorials use %s", program)
		}
	}
	home, cache := t.TempDir(), filepath.Join(shared, "tutorials")
	tools := filepath.Join(home, "tools")
	body, err := os.ReadFile(kubectl[len(kubectl)-1])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(cache, 0o700), os.Mkdir(tools, 0o755), os.WriteFile(filepath.Join(tools, "kubectl"), body, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"assets", "image"} {
		if err := os.Symlink(filepath.Join(shared, name), filepath.Join(cache, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	env = []string{"PATH=" + os.Getenv("PATH") + ":" + tools, "HOME=" + home, "SLIPWAY_CACHE=" + cache, "PYENV_ROOT=" + os.Getenv("PYENV_ROOT"), "AWS_PAGER="}
	t.Cleanup(func() {
		cmd := exec.Command(filepath.Join(root, "bin/slipway"), "region", "destroy", "--yes")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("remove the region: %v\n%s", err, out)
		}
	})
	return root, env
}

// TestFirstCluster follows docs/tutorials/first-cluster.md with real machines.
func TestFirstCluster(t *testing.T) {
	root, env := machinesEnv(t)
	checkTree(t)
	r := newReader(t, root, env)
	defer r.saveTranscript("first-cluster.txt")
	r.skips = map[string]string{"make assets image": "make e2e has done it"}
	r.follow("docs/tutorials/first-cluster.md")
}

// TestWithCloudFormation follows docs/tutorials/with-cloudformation.md with real machines.
func TestWithCloudFormation(t *testing.T) {
	root, env := machinesEnv(t)
	checkTree(t)
	r := newReader(t, root, env)
	defer r.saveTranscript("with-cloudformation.txt")
	r.follow("docs/tutorials/with-cloudformation.md")
}

// TestAddonTutorial follows docs/tutorials/addons.md with real machines.
func TestAddonTutorial(t *testing.T) {
	root, env := machinesEnv(t)
	checkTree(t)
	r := newReader(t, root, env)
	defer r.saveTranscript("addons.txt")
	r.follow("docs/tutorials/addons.md")
}
