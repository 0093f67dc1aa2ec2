// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
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

// builder makes one image in tmp and moves it into place when it is whole.
type builder struct {
	opts     Options
	id       string
	buildDir string
}

func (b builder) rootDir() string         { return filepath.Join(b.buildDir, "root") }
func (b builder) packageCacheDir() string { return filepath.Join(b.opts.CacheDir, "debs") }

func (b builder) runStages(ctx context.Context) error {
	if err := os.RemoveAll(b.buildDir); err != nil {
		return fmt.Errorf("remove an interrupted build: %w", err)
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

// bootstrapBase runs debootstrap. Its downloads stay in the cache, so a second build needs no packages from the mirror.
func (b builder) bootstrapBase(ctx context.Context) error {
	for _, dir := range []string{b.buildDir, b.packageCacheDir()} {
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}

	args := []string{
		"--variant=minbase", "--arch=" + b.opts.Arch, "--cache-dir=" + b.packageCacheDir(),
		"--include=" + strings.Join(basePackages(), ","), debianSuite, b.rootDir(),
	}
	if mirror := b.opts.findMirror(os.DirFS("/etc/apt")); mirror != "" {
		args = append(args, mirror)
	}

	return b.runCommand(ctx, b.opts.findProgram("debootstrap"), args...)
}

// installPackages lets apt resolve what debootstrap cannot.
func (b builder) installPackages(ctx context.Context) error {
	return b.runInRoot(ctx, append([]string{"install"}, installedPackages()...)...)
}

func (b builder) trimRoot(ctx context.Context) error { return b.runInRoot(ctx, "trim") }

// runInRoot runs finish.sh in the new root. The mounts lie in a namespace that ends with the command, so no failure
// leaves one behind.
func (b builder) runInRoot(ctx context.Context, args ...string) error {
	const outer = `set -eu
root=$1 debs=$2 script=$3; shift 3
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/var/cache/apt/archives"
mount --bind "$debs" "$root/var/cache/apt/archives"
[ ! -f /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
exec chroot "$root" /bin/sh -c "$script" finish "$@"`

	return b.runCommand(
		ctx,
		b.opts.findProgram("sh"),
		append([]string{"-c", outer, "finish", b.rootDir(), b.packageCacheDir(), finishScript}, args...)...)
}

// runCommand runs a program in a mount namespace of its own and says the end of its output where it fails.
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

// proxyVariables are the only variables of the caller that a build sees: without them a machine behind a proxy has no mirror.
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

// writeOverlay writes overlay.txtar's files. It runs twice: apt must obey the first, and must not have the last word.
func (b builder) writeOverlay(context.Context) error {
	for _, f := range txtar.Parse(overlayArchive).Files {
		path := filepath.Join(b.rootDir(), f.Name)
		if err := makeDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("make folder of /%s: %w", f.Name, err)
		}

		if err := writeWorldReadable(path, f.Data); err != nil {
			return fmt.Errorf("write /%s: %w", f.Name, err)
		}
	}

	return nil
}

func (b builder) maskUnits(context.Context) error {
	for _, unit := range maskedUnits() {
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

// publishImage moves the finished image to its name. A reader sees all of it or nothing.
func (b builder) publishImage() error {
	data, err := json.Marshal(
		Image{ID: b.id, Root: filepath.Join(b.opts.CacheDir, b.id, "root"), Arch: b.opts.Arch},
	)
	if err != nil {
		return fmt.Errorf("describe image: %w", err)
	}

	if err := os.WriteFile(filepath.Join(b.buildDir, "image.json"), data, 0o600); err != nil {
		return fmt.Errorf("describe image: %w", err)
	}

	if err := os.Rename(b.buildDir, filepath.Join(b.opts.CacheDir, b.id)); err != nil {
		return fmt.Errorf("publish image: %w", err)
	}

	return nil
}

// findMirror is the Debian mirror that this machine's apt uses, or empty where it names none (then debootstrap's own).
func (o Options) findMirror(apt fs.FS) string {
	if o.Mirror != "" {
		return o.Mirror
	}

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

// parseDebianMirror finds the first http(s) address whose path ends in "debian" in either format of apt's sources.
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

// makeDir makes a folder that every user of a machine may walk through.
func makeDir(path string) error {
	return os.MkdirAll(path, 0o755)
}

// writeWorldReadable writes a file that every user of a machine may read.
func writeWorldReadable(path string, data []byte) error {
	return os.WriteFile(path, data, 0o644)
}
