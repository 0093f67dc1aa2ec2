// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// builder builds one image in buildDir and moves it to its final directory when it is complete.
type builder struct {
	opts     Options
	recipe   recipe
	id       string
	buildDir string
}

func (b builder) rootDir() string         { return filepath.Join(b.buildDir, "root") }
func (b builder) keyringDir() string      { return filepath.Join(b.buildDir, "keyring") }
func (b builder) packageCacheDir() string { return filepath.Join(b.opts.CacheDir, b.recipe.cache) }

func (b builder) runStages(ctx context.Context) error {
	if err := os.RemoveAll(b.buildDir); err != nil {
		return fmt.Errorf("remove interrupted build: %w", err)
	}

	stages := []struct {
		name string
		do   func(context.Context) error
	}{
		{"fetch and unpack the base system", b.bootstrapBase},
		{"write the region's files", b.writeOverlay},
		{"install packages", b.installPackages},
		{"write the region's files again, over the packages' own", b.writeOverlay},
		{"trim", b.trimRoot},
		{"mask units", b.maskUnits},
	}

	for _, stage := range stages {
		if b.opts.Progress != nil {
			b.opts.Progress(stage.name)
		}

		if err := stage.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
	}

	return b.publishImage()
}

// bootstrapBase runs debootstrap, which checks the signature of the release, and refuses to go on without the
// distribution's keys. Downloaded packages stay in the cache for the next build.
func (b builder) bootstrapBase(ctx context.Context) error {
	for _, dir := range []string{b.buildDir, b.packageCacheDir()} {
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("create directory: %w", err)
		}
	}

	mirror := cmp.Or(b.opts.Mirror, b.recipe.mirrors[b.opts.Arch])
	if mirror == "" {
		mirror = findMirror(os.DirFS("/etc/apt"))
	}

	keyring, err := b.unpackKeyring(ctx, mirror)
	if err != nil {
		return err
	}

	args := b.recipe.debootstrapArguments(
		b.rootDir(),
		mirror,
		keyring,
		"--arch="+b.opts.Arch,
		"--cache-dir="+b.packageCacheDir(),
	)
	if err := b.runCommand(ctx, b.opts.findProgram("debootstrap"), args...); err != nil {
		return err
	}

	return os.RemoveAll(b.keyringDir())
}

// installPackages installs packages with apt, which resolves dependencies that debootstrap cannot.
func (b builder) installPackages(ctx context.Context) error {
	return b.runInRoot(ctx, append([]string{"install"}, b.recipe.packages...)...)
}

func (b builder) trimRoot(ctx context.Context) error { return b.runInRoot(ctx, "trim") }

// runInRoot runs finish.sh in the new root. The mounts are in a mount namespace that ends with the
// command, so a failure leaves none behind.
func (b builder) runInRoot(ctx context.Context, args ...string) error {
	const outer = `set -eu
root=$1 debs=$2 script=$3; shift 3
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/var/cache/apt/archives"
mount --bind "$debs" "$root/var/cache/apt/archives"
[ ! -f /etc/resolv.conf ] || [ -L "$root/etc/resolv.conf" ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
exec chroot "$root" /bin/sh -c "$script" finish "$@"`

	return b.runCommand(
		ctx,
		b.opts.findProgram("sh"),
		append([]string{"-c", outer, "finish", b.rootDir(), b.packageCacheDir(), b.recipe.finish}, args...)...)
}

// runCommand runs a program in its own mount namespace. An error contains the end of the output.
func (b builder) runCommand(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C",
		"HOME=/root",
		"DEBIAN_FRONTEND=noninteractive",
	}

	cmd.Env = append(cmd.Env, proxyVariables()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w\n%s", filepath.Base(name), err, outputTail(out, 2000))
	}

	return nil
}

// proxyVariables returns the caller's proxy variables, the only ones that a build inherits: without
// them, a machine behind a proxy could not reach the mirror.
func proxyVariables() []string {
	var out []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "no_proxy":
			out = append(out, entry)
		}
	}

	return out
}

func outputTail(out []byte, n int) []byte {
	if len(out) > n {
		out = out[len(out)-n:]
	}

	return bytes.TrimSpace(out)
}

// writeOverlay writes the region's files. It runs twice: before apt, so that apt uses its
// configuration, and after it, because packages overwrite files.
func (b builder) writeOverlay(context.Context) error {
	for _, f := range txtar.Parse(b.recipe.overlay).Files {
		path := filepath.Join(b.rootDir(), f.Name)
		if err := makeDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("create directory of /%s: %w", f.Name, err)
		}

		if err := writeWorldReadable(path, f.Data); err != nil {
			return fmt.Errorf("write /%s: %w", f.Name, err)
		}
	}

	return nil
}

func (b builder) maskUnits(context.Context) error {
	for _, unit := range b.recipe.masked {
		path := filepath.Join(b.rootDir(), "etc/systemd/system", unit)
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("mask %s: %w", unit, err)
		}

		if err := os.Symlink("/dev/null", path); err != nil {
			return fmt.Errorf("mask %s: %w", unit, err)
		}
	}

	return nil
}

// publishImage moves the finished image to its final directory, so that readers never see an
// incomplete image.
func (b builder) publishImage() error {
	data, err := json.Marshal(
		Image{ID: b.id, Root: filepath.Join(b.opts.CacheDir, b.id, "root"), Arch: b.opts.Arch},
	)
	if err != nil {
		return fmt.Errorf("encode image.json: %w", err)
	}

	if err := os.WriteFile(filepath.Join(b.buildDir, "image.json"), data, 0o600); err != nil {
		return fmt.Errorf("write image.json: %w", err)
	}

	if err := os.Rename(b.buildDir, filepath.Join(b.opts.CacheDir, b.id)); err != nil {
		return fmt.Errorf("publish image: %w", err)
	}

	return nil
}

// findMirror returns the Debian mirror in this machine's apt configuration, or "" for debootstrap's
// default.
func findMirror(apt fs.FS) string {
	files, err := fs.Glob(apt, "sources.list.d/*")
	if err != nil {
		return ""
	}

	for _, name := range append(files, "sources.list") {
		data, err := fs.ReadFile(apt, name)
		if errors.Is(err, fs.ErrNotExist) || err != nil {
			continue
		}

		if uri := parseDebianMirror(string(data)); uri != "" {
			return uri
		}
	}

	return ""
}

// parseDebianMirror returns the first http(s) URL that ends in "/debian", in either format of apt's
// sources.
func parseDebianMirror(sources string) string {
	for line := range strings.Lines(sources) {
		line, _, _ = strings.Cut(line, "#")
		for field := range strings.FieldsSeq(line) {
			uri := strings.TrimSuffix(field, "/")
			if strings.HasPrefix(uri, "http") && strings.Contains(uri, "://") &&
				strings.HasSuffix(uri, "/debian") {
				return uri
			}
		}
	}

	return ""
}

// makeDir creates a directory that every user of a machine may enter.
func makeDir(path string) error {
	return os.MkdirAll(path, 0o755)
}

// writeWorldReadable writes a file that every user of a machine may read.
func writeWorldReadable(path string, data []byte) error {
	return os.WriteFile(path, data, 0o644)
}
