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
	opts Options
	id   string
	tmp  string
}

func (b builder) root() string { return filepath.Join(b.tmp, "root") }
func (b builder) debs() string { return filepath.Join(b.opts.Dir, "debs") }

func (b builder) run(ctx context.Context) error {
	if err := os.RemoveAll(b.tmp); err != nil {
		return fmt.Errorf("remove an interrupted build: %w", err)
	}
	stages := []struct {
		name string
		do   func(context.Context) error
	}{
		{"fetch and unpack the base system", b.bootstrap},
		{"write the region's files", b.overlay},
		{"install packages", b.install},
		{"write the region's files again, over the packages' own", b.overlay},
		{"trim", b.trim},
		{"mask units", b.mask},
	}
	for _, stage := range stages {
		if b.opts.Progress != nil {
			b.opts.Progress(stage.name)
		}
		if err := stage.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
	}
	return b.publish()
}

// bootstrap runs debootstrap. Its downloads stay in the cache, so a second build needs no packages from the mirror.
func (b builder) bootstrap(ctx context.Context) error {
	for _, dir := range []string{b.tmp, b.debs()} {
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	args := []string{
		"--variant=minbase", "--arch=" + b.opts.Arch, "--cache-dir=" + b.debs(),
		"--include=" + strings.Join(base(), ","), suite, b.root(),
	}
	if mirror := b.opts.mirror(os.DirFS("/etc/apt")); mirror != "" {
		args = append(args, mirror)
	}
	return b.command(ctx, b.opts.find("debootstrap"), args...)
}

// install lets apt resolve what debootstrap cannot.
func (b builder) install(ctx context.Context) error {
	return b.inside(ctx, append([]string{"install"}, packages()...)...)
}

func (b builder) trim(ctx context.Context) error { return b.inside(ctx, "trim") }

// inside runs finish.sh in the new root. The mounts lie in a namespace that ends with the command, so no failure
// leaves one behind.
func (b builder) inside(ctx context.Context, args ...string) error {
	const outer = `set -eu
root=$1 debs=$2 script=$3; shift 3
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/var/cache/apt/archives"
mount --bind "$debs" "$root/var/cache/apt/archives"
[ ! -f /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
exec chroot "$root" /bin/sh -c "$script" finish "$@"`
	return b.command(ctx, b.opts.find("sh"), append([]string{"-c", outer, "finish", b.root(), b.debs(), finishScript}, args...)...)
}

// command runs a program in a mount namespace of its own and says the end of its output where it fails.
func (b builder) command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"}
	cmd.Env = append(cmd.Env, proxies()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w\n%s", filepath.Base(name), err, tail(out, 2000))
	}
	return nil
}

// proxies are the only variables of the caller that a build sees: without them a machine behind a proxy has no mirror.
func proxies() []string {
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

func tail(out []byte, n int) []byte {
	if len(out) > n {
		out = out[len(out)-n:]
	}
	return bytes.TrimSpace(out)
}

// overlay writes overlay.txtar's files. It runs twice: apt must obey the first, and must not have the last word.
func (b builder) overlay(context.Context) error {
	for _, f := range txtar.Parse(overlayArchive).Files {
		path := filepath.Join(b.root(), f.Name)
		if err := makeDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("make folder of /%s: %w", f.Name, err)
		}
		if err := writeShared(path, f.Data); err != nil {
			return fmt.Errorf("write /%s: %w", f.Name, err)
		}
	}
	return nil
}

func (b builder) mask(context.Context) error {
	for _, unit := range masked() {
		path := filepath.Join(b.root(), "etc/systemd/system", unit)
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("mask %s: %w", unit, err)
		}
		if err := os.Symlink("/dev/null", path); err != nil {
			return fmt.Errorf("mask %s: %w", unit, err)
		}
	}
	return nil
}

// publish moves the finished image to its name. A reader sees all of it or nothing.
func (b builder) publish() error {
	data, err := json.Marshal(Image{ID: b.id, Root: filepath.Join(b.opts.Dir, b.id, "root"), Arch: b.opts.Arch})
	if err != nil {
		return fmt.Errorf("describe image: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.tmp, "image.json"), data, 0o600); err != nil {
		return fmt.Errorf("describe image: %w", err)
	}
	if err := os.Rename(b.tmp, filepath.Join(b.opts.Dir, b.id)); err != nil {
		return fmt.Errorf("publish image: %w", err)
	}
	return nil
}

// mirror is the Debian mirror that this machine's apt uses, or empty where it names none (then debootstrap's own).
func (o Options) mirror(apt fs.FS) string {
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
		if uri := debianMirror(string(data)); uri != "" {
			return uri
		}
	}
	return ""
}

// debianMirror finds the first http(s) address whose path ends in "debian" in either format of apt's sources.
func debianMirror(sources string) string {
	for line := range strings.Lines(sources) {
		line, _, _ = strings.Cut(line, "#")
		for field := range strings.FieldsSeq(line) {
			uri := strings.TrimSuffix(field, "/")
			if strings.HasPrefix(uri, "http") && strings.Contains(uri, "://") && strings.HasSuffix(uri, "/debian") {
				return uri
			}
		}
	}
	return ""
}

// makeDir makes a folder that every user of a machine may walk through.
func makeDir(path string) error {
	return os.MkdirAll(path, 0o755) //nolint:gosec // see above
}

// writeShared writes a file that every user of a machine may read.
func writeShared(path string, data []byte) error {
	return os.WriteFile(path, data, 0o644) //nolint:gosec // see above
}
