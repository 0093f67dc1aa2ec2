// SPDX-License-Identifier: Apache-2.0

package channelsource_test

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/addon/channelsource"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// gitServer is git's own server for one repository, over TLS, with SSH keys that sign commits.
type gitServer struct {
	t       *testing.T
	tree    string // where commits are made
	keys    string // a directory with the keys good and stranger
	fetcher channelsource.Fetcher
	source  published.Source

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
}

// setAnswer has a function answer requests first.
func (g *gitServer) setAnswer(answer func(w http.ResponseWriter, r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

func startGit(t *testing.T) *gitServer {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, missing := os.Stat(backend); err != nil || missing != nil {
		t.Skip("SKIPPED: there is no git with a server for HTTP")
	}

	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("SKIPPED: there is no ssh-keygen")
	}

	g := &gitServer{t: t, tree: t.TempDir(), keys: t.TempDir()}
	handler := &cgi.Handler{
		Path: backend,
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(g.tree), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + g.keys},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		answer := g.answer
		g.mu.Unlock()
		if answer != nil && answer(w, r) {
			return
		}

		protocol := *handler
		protocol.Env = append(slices.Clone(protocol.Env), "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
		protocol.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	g.fetcher = newFetcher(t, server)
	for _, name := range []string{"good", "stranger"} {
		g.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(g.keys, name))
	}

	g.run("git", "init", "-q", "-b", "main")
	g.run("git", "config", "gpg.format", "ssh")
	public, err := os.ReadFile(filepath.Join(g.keys, "good.pub"))
	if err != nil {
		t.Fatal(err)
	}

	g.source = published.Source{
		Git:        server.URL + "/" + filepath.Base(g.tree) + "/.git",
		Ref:        "main",
		PublicKeys: []string{string(public)},
	}

	return g
}

// run runs a program in the working tree, and returns what it prints.
func (g *gitServer) run(program string, args ...string) string {
	g.t.Helper()
	command := exec.CommandContext(g.t.Context(), program, args...)
	command.Dir = g.tree
	command.Env = append(os.Environ(), "HOME="+g.keys, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
	out, err := command.CombinedOutput()
	if err != nil {
		g.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}

	return strings.TrimSpace(string(out))
}

// commit commits files, signed with a key unless that is empty, and returns the id of the commit.
func (g *gitServer) commit(key string, files map[string]string) string {
	g.t.Helper()
	for name, text := range files {
		path := filepath.Join(g.tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			g.t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			g.t.Fatal(err)
		}
	}

	args := []string{"commit", "-q", "--allow-empty", "-m", "change\n\nwith a body"}
	if key != "" {
		g.run("git", "config", "user.signingKey", filepath.Join(g.keys, key))
		args = append(args, "-S")
	}

	g.run("git", "add", "-A")
	g.run("git", args...)

	return g.run("git", "rev-parse", "HEAD")
}

// TestFetchCommit reads branches and tags of a repository from git's own server: packed with differences, in directories.
func TestFetchCommit(t *testing.T) {
	t.Parallel()
	g := startGit(t)
	long := strings.Repeat("a line of a file that git packs as a difference\n", 2000)
	g.commit("good", map[string]string{"channel.yaml": "old", "demo/a.yaml": long})
	if err := os.Symlink("/etc/passwd", filepath.Join(g.tree, "link")); err != nil {
		t.Fatal(err)
	}

	first := g.commit("good", map[string]string{
		"channel.yaml": "one", "demo/a.yaml": long + "x", "demo/b.yaml": long + "y", "demo/deep/er/c.yaml": "c", "demonstration": "d",
	})
	g.run("git", "tag", "-a", "-m", "tag", "v1")
	g.run("git", "gc", "-q")

	got, err := g.fetcher.Fetch(t.Context(), g.source, "")
	if err != nil || got.ID != first || string(got.Files["channel.yaml"]) != "one" || string(got.Files["demo/b.yaml"]) != long+"y" ||
		string(got.Files["demo/a.yaml"]) != long+"x" || string(got.Files["demo/deep/er/c.yaml"]) != "c" || len(got.Files) != 5 {
		t.Fatalf("%d files, %v", len(got.Files), err)
	}

	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !got.Created.Equal(want) {
		t.Errorf("created %s", got.Created)
	}

	if got, err := g.fetcher.Fetch(t.Context(), g.source, first); err != nil || got.ID != first || got.Files != nil {
		t.Errorf("the same commit: %+v, %v", got, err)
	}

	for _, ref := range []string{"v1", "refs/tags/v1", "refs/heads/main"} {
		s := g.source
		s.Ref = ref
		s.Path = "demo"
		got, err := g.fetcher.Fetch(t.Context(), s, "")
		if err != nil || got.ID != first || len(got.Files) != 3 || string(got.Files["deep/er/c.yaml"]) != "c" {
			t.Errorf("%s: %d files, %v", ref, len(got.Files), err)
		}
	}

	missing := g.source
	missing.Ref = "mai"
	checkRefused(t, g.fetcher, missing, "", "no branch and no tag mai")
}

// TestUnsignedCommit: a commit of somebody without the key is refused.
func TestUnsignedCommit(t *testing.T) {
	t.Parallel()
	g := startGit(t)
	good := g.commit("good", map[string]string{"channel.yaml": "good"})
	unsigned := g.commit("", map[string]string{"channel.yaml": "bad"})
	checkRefused(t, g.fetcher, g.source, unsigned, "the commit is not signed")
	if _, err := g.fetcher.Fetch(t.Context(), g.source, good); err == nil {
		t.Error("it is accepted if the good revision is known")
	}

	stranger := g.commit("stranger", nil)
	checkRefused(t, g.fetcher, g.source, stranger, "no given key has made the signature")

	without := g.source
	without.PublicKeys = nil
	if got, err := g.fetcher.Fetch(t.Context(), without, ""); err != nil || got.ID != stranger {
		t.Errorf("without keys nothing is verified: %v", err)
	}

	// The signature of the good commit on another one.
	text := g.run("git", "cat-file", "commit", good)
	file := filepath.Join(g.keys, "forged")
	if err := os.WriteFile(file, []byte(strings.Replace(text, "change", "forged", 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	forged := g.run("git", "hash-object", "-t", "commit", "-w", file)
	g.run("git", "update-ref", "refs/heads/main", forged)
	checkRefused(t, g.fetcher, g.source, forged, "no given key has made the signature")
}

// TestHostileGitServers: what a server answers leads to no address of the machine, is limited, and is checked.
func TestHostileGitServers(t *testing.T) {
	t.Parallel()
	g := startGit(t)
	first := g.commit("good", map[string]string{"channel.yaml": "good"})
	g.source.Credentials = published.Credentials{User: "robot", Password: "hunter2"}
	packet := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	pack := func(content string) string { return packet("packfile\n") + packet("\x01"+content) + "0000" }

	for name, test := range map[string]struct{ answer, want string }{
		"a redirect":          {"https://169.254.169.254/latest/meta-data/", "an address of the machine itself"},
		"no pack":             {packet("nothing\n") + "0000", "no pack"},
		"another version":     {pack("PACK\x00\x00\x00\x03\x00\x00\x00\x00"), "no pack of version 2"},
		"too many objects":    {pack("PACK\x00\x00\x00\x02\xff\xff\xff\xff"), "more than 20000"},
		"no objects":          {pack("PACK\x00\x00\x00\x02\x00\x00\x00\x00"), "does not send the commit"},
		"a huge object":       {pack("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x9f\xff\xff\xff\x7f"), "one has more than 16777216"},
		"an error":            {packet("packfile\n") + packet("\x03fatal: hunter2"), "the server reports an error"},
		"something else":      {"<html>", "does not speak git's protocol"},
		"a missing base":      {pack("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x70" + strings.Repeat("a", 20) + emptyZlib), "does not have"},
		"an unknown type":     {pack("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x50" + emptyZlib), "type 5"},
		"a truncated pack":    {packet("packfile\n") + packet("\x01PACK"), "read the pack"},
		"an answer that ends": {"", "no pack"},
	} {
		g.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(test.answer, "https://") {
				http.Redirect(w, r, test.answer, http.StatusFound)
				return true
			}

			if r.Method != http.MethodPost || r.ContentLength < 130 { // ls-refs is shorter than fetch
				return false
			}

			_, _ = w.Write([]byte(test.answer))

			return true
		})

		_, err := g.fetcher.Fetch(t.Context(), g.source, "")
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}

	g.setAnswer(nil)
	if got, err := g.fetcher.Fetch(t.Context(), g.source, ""); err != nil || got.ID != first {
		t.Error(err)
	}
}

// emptyZlib is nothing, compressed.
const emptyZlib = "\x78\x9c\x03\x00\x00\x00\x00\x01"
