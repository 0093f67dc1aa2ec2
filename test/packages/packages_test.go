// SPDX-License-Identifier: Apache-2.0

// Package packages_test installs the Debian package in a clean Debian root and runs it there.
package packages_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// debianRoot returns a new Debian 12 root, unpacked from a cached archive, which debootstrap makes once.
func debianRoot(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("SKIPPED: a Debian root needs root on Linux")
	}
	for _, program := range []string{"debootstrap", "dpkg-deb", "chroot", "unshare", "tar", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIPPED: no program %s to make a Debian root", program)
		}
	}
	cache := os.Getenv("SLIPWAY_CACHE")
	if cache == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("SKIPPED: no cache directory: %v", err)
		}
		cache = filepath.Join(home, "slipway")
	}
	archive := filepath.Join(cache, "debian", "bookworm-minbase-"+runtime.GOARCH+".tar")
	script := exec.Command("../../hack/debian-root.sh", archive)
	if out, err := script.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: debootstrap cannot make a Debian root: %v: %s", err, lastLine(out))
	}
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", root, "--numeric-owner", "-xpf", archive).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", archive, err, out)
	}
	return root
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// buildDeb builds the Debian package of this machine's architecture from this checkout.
func buildDeb(t *testing.T) string {
	t.Helper()
	dist := t.TempDir()
	cmd := exec.Command("../../hack/packages.sh", "-platforms", "linux/"+runtime.GOARCH, "-formats", "deb", "-out", dist)
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "proxy.golang.org") {
		t.Skipf("SKIPPED: nfpm cannot be downloaded: %s", lastLine(out))
	}
	if err != nil {
		t.Fatalf("build the package: %v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dist, "slipway_*_"+runtime.GOARCH+".deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages %v: %v\n%s", found, err, out)
	}
	return found[0]
}

// chroot runs commands in a root.
type chroot struct {
	t     *testing.T
	root  string
	env   []string
	binds [][2]string // directories of this machine, and where commands see them
}

// run runs a command in the root and returns its output. It fails the test if the command does not exit with code. Directories are
// mounted in a namespace of the command: this machine never sees the mounts, so that nothing of it can be removed with the root.
func (c chroot) run(code int, name string, args ...string) string {
	c.t.Helper()
	var script strings.Builder
	for _, b := range c.binds {
		target := filepath.Join(c.root, b[1])
		if err := os.MkdirAll(target, 0o755); err != nil {
			c.t.Fatal(err)
		}
		fmt.Fprintf(&script, "mount --rbind '%s' '%s'\n", b[0], target)
	}
	env := append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}, c.env...)
	fmt.Fprintf(&script, "exec chroot '%s' env -i %s \"$@\"\n", c.root, strings.Join(env, " "))
	cmd := exec.Command("unshare", append([]string{"--mount", "--", "sh", "-ec", script.String(), "sh", name}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	if got != code {
		c.t.Fatalf("%s %s: exit code %d, want %d\n%s", name, strings.Join(args, " "), got, code, &out)
	}
	return out.String()
}

// TestDebInACleanDebianRoot is what a user does with the package: install it, look at it, and ask whether the demo can run.
// The package must bring everything that is not a Debian package: programs, agents, the sources of the assets.
func TestDebInACleanDebianRoot(t *testing.T) {
	root := debianRoot(t)
	deb := buildDeb(t)
	body, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "tmp/slipway.deb"), body, 0o644); err != nil {
		t.Fatal(err)
	}
	c := chroot{t: t, root: root, binds: [][2]string{{"/proc", "/proc"}}}
	c.run(0, "dpkg", "--install", "/tmp/slipway.deb")

	_, number, _ := strings.Cut(filepath.Base(deb), "_")
	number, _, _ = strings.Cut(number, "_")
	if got := c.run(0, "slipway", "version", "--short"); got != "v"+number+"\n" {
		t.Errorf("version %q, want v%s", got, number)
	}
	if got := c.run(0, "kubectl-slipway", "version", "--short"); got != "v"+number+"\n" {
		t.Errorf("as a plugin of kubectl: version %q", got)
	}
	if got := c.run(0, "kubectl_complete-slipway", "create", ""); !strings.Contains(got, "cluster") {
		t.Errorf("completion of create: %q", got)
	}

	// A clean root lacks nft, Go and more. The demo says so, and finds what the package brought.
	out := c.run(1, "slipway", "demo", "--check")
	for _, want := range []string{
		"asset sources   ok        /usr/share/slipway/assets", "agent           ok        /usr/lib/slipway/slipway-node",
		"nftables", "debootstrap",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("demo --check lacks %q:\n%s", want, out)
		}
	}
	t.Logf("in the clean root:\n%s", out)
	testAssetsInRoot(t, c)

	for _, path := range []string{
		"/usr/share/man/man1/slipway-apply.1.gz", "/usr/share/bash-completion/completions/slipway", "/usr/share/zsh/vendor-completions/_slipway",
		"/usr/share/fish/vendor_completions.d/slipway.fish", "/usr/share/doc/slipway/copyright", "/usr/share/slipway/examples/ha.yaml",
		"/usr/lib/slipway/slipway-node-" + map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH],
	} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
	if out := c.run(0, "bash", "-c", "source /usr/share/bash-completion/completions/slipway && complete -p slipway"); !strings.Contains(out, "slipway") {
		t.Errorf("bash: %s", out)
	}
	if out := c.run(0, "dpkg", "--verify", "slipway"); out != "" {
		t.Errorf("files differ from the package's list:\n%s", out)
	}
	c.run(0, "dpkg", "--purge", "slipway")
	for _, path := range []string{"/usr/lib/slipway", "/usr/share/slipway", "/usr/bin/slipway"} {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			t.Errorf("%s is left after the removal", path)
		}
	}
}

// testAssetsInRoot builds the assets with the installed program from the installed sources. Go, its module cache and the cached
// assets of this machine are mounted, so that nothing is compiled: the cached results are found only if the installed sources are
// those of this checkout, since they are cached by the content of their sources.
func testAssetsInRoot(t *testing.T, c chroot) {
	t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("SKIPPED: no Go to build assets with: %v", err)
	}
	home, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	assets := filepath.Join(home, "slipway", "assets")
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		assets = filepath.Join(dir, "assets")
	}
	if _, err := os.Stat(filepath.Join(assets, "catalog.yaml")); err != nil {
		t.Log("the assets of this machine are not built (make assets): the build in the root is not tried")
		return
	}
	c.binds = [][2]string{
		{strings.TrimSpace(string(goroot)), "/usr/local/go"},
		{assets, "/root/.cache/slipway/assets"},
		{"/etc/apt", "/etc/apt"},
		{"/var/lib/apt/lists", "/var/lib/apt/lists"},
		{"/proc", "/proc"},
		{"/dev", "/dev"},
	}
	c.env = []string{"PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOTOOLCHAIN=local"}
	out := c.run(1, "slipway", "demo", "--check")
	if !strings.Contains(out, "assets          ok        /root/.cache/slipway/assets/catalog.yaml") {
		t.Errorf("demo --check does not find the assets:\n%s", out)
	}
	t.Logf("with Go and cached assets:\n%s", out)
	if out := c.run(0, "slipway", "assets", "build"); !strings.Contains(out, "assets: cached, nothing to build") {
		t.Errorf("assets build:\n%s", out)
	}
}
