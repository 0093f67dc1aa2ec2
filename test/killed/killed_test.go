// SPDX-License-Identifier: Apache-2.0

// Package killed_test kills the real program with SIGKILL at each write to the state store, where
// the kills of test/engine do not reach. It uses slipway through its command line only.
package killed_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestMain runs slipway if this binary is called by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "slipway" {
		os.Exit(m.Run())
	}
	os.Exit(cli.Main(context.Background(), cli.Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Now: time.Now, Hostname: os.Hostname, Registries: assettest.Registries{},
	}))
}

// killProxy forwards the requests of slipway to a region. It kills slipway with SIGKILL at the nth
// call that matches.
type killProxy struct {
	url     string
	matches func(*http.Request) bool

	mu       sync.Mutex
	nth      int // 0: no kill
	after    bool
	kill     func()
	writes   []string // the calls that have written, such as PUT /bucket/key
	killedAt string   // the call at which slipway was killed
	lastKill string   // the last killed command, for messages
}

func newKillProxy(t *testing.T, target string) *killProxy {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	x := &killProxy{matches: writesState}
	pass := httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the signature covers the host
	}}
	pass.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // ignore calls whose client was killed
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fatal := x.countWrite(r)
		if fatal && !x.after {
			x.kill()
			return
		}
		if fatal {
			pass.ServeHTTP(httptest.NewRecorder(), r)
			x.kill()
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	x.url = front.URL
	return x
}

// writesState reports whether a request writes to S3.
func writesState(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Authorization"), "/s3/") && r.Method != http.MethodGet && r.Method != http.MethodHead
}

func (x *killProxy) countWrite(r *http.Request) (fatal bool) {
	if !x.matches(r) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	write := r.Method + " " + r.URL.Path
	x.writes = append(x.writes, write)
	fatal = len(x.writes) == x.nth
	if fatal {
		x.killedAt = write
	}
	return fatal
}

// program runs slipway as a separate process: this binary, with another name.
type program struct {
	t     *testing.T
	path  string
	env   []string
	proxy *killProxy
}

func newProgram(t *testing.T, r regiontest.Region) program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := exec.LookPath("true")
	if err != nil {
		t.Skip("SKIPPED: no program true to use as the agent")
	}
	dir := t.TempDir()
	p := program{t: t, path: filepath.Join(dir, "slipway"), proxy: newKillProxy(t, r.URL)}
	if err := os.Symlink(self, p.path); err != nil {
		t.Fatal(err)
	}
	env := r.Env()
	env["AWS_ENDPOINT_URL"], env["HOME"], env["SLIPWAY_STATE"], env["SLIPWAY_NODE_BINARY"] = p.proxy.url, dir, "s3://slipway-test", agent
	for _, k := range slices.Sorted(maps.Keys(env)) {
		p.env = append(p.env, k+"="+env[k])
	}
	return p
}

func (p program) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), p.path, args...)
	cmd.Env = p.env
	return cmd
}

// runAndKill runs slipway and kills it at its nth write to S3. It returns the writes that it has made, and the
// write at which it was killed.
func (p program) runAndKill(nth int, after bool, args ...string) (writes []string, at, out string) {
	p.t.Helper()
	cmd := p.command(args...)
	var b strings.Builder
	cmd.Stdout, cmd.Stderr = &b, &b
	started := make(chan struct{})
	p.proxy.mu.Lock()
	p.proxy.nth, p.proxy.after, p.proxy.writes, p.proxy.killedAt = nth, after, nil, ""
	p.proxy.kill = func() { <-started; _ = cmd.Process.Kill() }
	p.proxy.mu.Unlock()
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	close(started)
	err := cmd.Wait()
	p.proxy.mu.Lock()
	defer p.proxy.mu.Unlock()
	if killed := p.proxy.killedAt != ""; killed == (err == nil) && args[0] != "unlock" {
		p.t.Fatalf("after %s: slipway %s: killed at %q, ended with %v\n%s", p.proxy.lastKill, strings.Join(args, " "), p.proxy.killedAt, err, b.String())
	}
	p.proxy.nth = 0
	if p.proxy.killedAt != "" {
		p.proxy.lastKill = fmt.Sprintf("%s was killed at %s (after: %t)", args[0], p.proxy.killedAt, after)
	}
	return p.proxy.writes, p.proxy.killedAt, b.String()
}

func (p program) mustRun(args ...string) string {
	p.t.Helper()
	_, _, out := p.runAndKill(0, false, args...)
	return out
}

// unlockCluster removes the lock, as an operator does who knows that its holder no longer runs.
func (p program) unlockCluster() {
	p.t.Helper()
	if out := p.mustRun("unlock", "demo"); !strings.Contains(out, "is locked by") {
		return
	}
	if out := p.mustRun("unlock", "demo", "--yes"); !strings.Contains(out, "is unlocked") {
		p.t.Errorf("unlock: %s", out)
	}
}

// listStateKeys returns the keys in the state store, without those of the journal.
func listStateKeys(t *testing.T, r regiontest.Region) []string {
	t.Helper()
	api := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	bucket := "slipway-test"
	out, err := api.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, o := range out.Contents {
		if !strings.HasPrefix(*o.Key, "_operations/") {
			keys = append(keys, *o.Key)
		}
	}
	return keys
}

// TestKilledAtEveryWriteOfState kills the real program at the writes to the state store that apply and delete
// make: the lock, the journal, the last-applied record, and the objects for machines. The next run must
// converge, in AWS and in the store, and delete must leave nothing but the journal. The short form kills at the
// first write of each kind, in turn before and after it; with SLIPWAY_LONG set (make long) it kills before and after every write.
func TestKilledAtEveryWriteOfState(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short, since it creates a cluster about thirty times")
	}
	r := regiontest.Start(t)
	k := killedCluster{program: newProgram(t, r), region: r}
	k.mustRun("state", "init", "--yes")
	k.empty = k.observe(t)
	k.mustRun(createArgs...)
	applied, _, _ := k.runAndKill(0, false, applyArgs...)
	k.full = k.observe(t)
	deleted, _, _ := k.runAndKill(0, false, deleteArgs...)
	applyKills, deleteKills := killPoints(applied), killPoints(deleted)
	rounds := 1
	if isLong() {
		rounds = 2
	}
	for round := range rounds {
		for i := range max(len(applyKills), len(deleteKills)) {
			after := (i+round)%2 == 1
			k.mustRun(createArgs...)
			if i < len(applyKills) {
				k.killApply(t, applyKills[i], after)
			} else {
				k.mustRun(applyArgs...)
			}
			if i < len(deleteKills) {
				k.killDelete(t, deleteKills[i], after)
			} else {
				k.mustRun(deleteArgs...)
			}
		}
	}
	fmt.Printf("COUNT crash of the program: %d cases (SIGKILL at %d of %d writes of apply and %d of %d of delete to the state store)\n",
		rounds*(len(applyKills)+len(deleteKills)), len(applyKills), len(applied), len(deleteKills), len(deleted))
}

// isLong reports whether the long form was asked for (make long).
func isLong() bool { return os.Getenv("SLIPWAY_LONG") != "" }

var (
	createArgs = []string{"create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes"}
	applyArgs  = []string{"apply", "demo", "--yes"}
	deleteArgs = []string{"delete", "cluster", "demo", "--yes"}
)

// killPoints returns the numbers of the writes, from 1, at which the test kills: with SLIPWAY_LONG each one,
// otherwise the first write of each kind. Objects of one kind differ in their numbers and hashes only.
func killPoints(writes []string) []int {
	variable := regexp.MustCompile(`[0-9a-f]{64}|\d{6,}`)
	seen := map[string]bool{}
	var out []int
	for i, write := range writes {
		kind := variable.ReplaceAllString(write, "*")
		if isLong() || !seen[kind] {
			out = append(out, i+1)
		}
		seen[kind] = true
	}
	return out
}

// killedCluster is the cluster whose apply and delete are killed, and what they must lead to.
type killedCluster struct {
	program

	region      regiontest.Region
	empty, full observation
}

// observation is what exists in AWS, and the keys in the state store.
type observation struct{ Inventory, Keys []string }

func (k killedCluster) observe(t *testing.T) observation {
	t.Helper()
	return observation{Inventory: withoutHashes(k.region.Inventory(t)), Keys: withoutHashes(listStateKeys(t, k.region))}
}

// killApply kills apply at its nth write. The next apply must lead to the same as one that nothing disturbed.
func (k killedCluster) killApply(t *testing.T, nth int, after bool) {
	t.Helper()
	_, at, _ := k.runAndKill(nth, after, applyArgs...)
	k.unlockCluster()
	k.mustRun(applyArgs...)
	k.mustRun("plan", "demo") // exits with 2 if there are changes
	if diff := cmp.Diff(k.full, k.observe(t)); diff != "" {
		t.Errorf("apply killed at %s (after: %t): differs from an undisturbed apply (-undisturbed +here):\n%s", at, after, diff)
	}
}

// killDelete kills delete at its nth write. The next delete must leave nothing.
func (k killedCluster) killDelete(t *testing.T, nth int, after bool) {
	t.Helper()
	_, at, _ := k.runAndKill(nth, after, deleteArgs...)
	left := k.observe(t)
	k.unlockCluster()
	if slices.Contains(left.Keys, "demo/cluster.yaml") || !cmp.Equal(k.empty.Inventory, left.Inventory) {
		k.mustRun(deleteArgs...)
	} // else it was killed after everything had been deleted
	if diff := cmp.Diff(k.empty, k.observe(t)); diff != "" {
		t.Errorf("delete killed at %s (after: %t) leaves (-empty +left):\n%s", at, after, diff)
	}
}

// withoutHashes replaces the hashes in lines, since they differ between two clusters of the same
// manifest.
func withoutHashes(lines []string) []string {
	hash := regexp.MustCompile(`[0-9a-f]{64}`)
	var out []string
	for _, l := range lines {
		out = append(out, hash.ReplaceAllString(l, "*"))
	}
	slices.Sort(out)
	return out
}
