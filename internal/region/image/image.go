// SPDX-License-Identifier: Apache-2.0

// Package image builds the root file systems that the region's machines boot from. They are the
// local equivalents of the published images of Debian 12 and Ubuntu 24.04 for EC2, with the packages of
// these. It knows neither instances, networks, nor the provisioner; the differences from a published
// image are in packages.go, ubuntu.go, overlay.txtar and ubuntu.txtar.
package image

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

//go:embed overlay.txtar
var overlayArchive []byte

//go:embed finish.sh
var finishScript string

// Options configures a build.
type Options struct {
	// CacheDir is the image cache, such as ~/.cache/slipway/image.
	CacheDir string
	// Distribution is one of [Distributions]; empty means [Debian12].
	Distribution string
	// Arch is the architecture as in GOARCH, such as amd64.
	Arch string
	// Mirror is the URL of the distribution's mirror; empty means the Debian mirror in this machine's
	// apt configuration, and Ubuntu's own servers.
	Mirror string
	// Progress is called at the start of each stage; nil means no progress.
	Progress func(stage string)
	// LookPath returns the path of a program, or "" if it does not exist; nil means root's usual
	// PATH.
	LookPath func(string) string
}

// Image is a built root file system. Root is never written: machines use it as the lower layer of
// an overlay.
type Image struct {
	// ID of the image, ami-…, a hash of everything that determines its content.
	ID string `json:"id"`
	// Root is the absolute path of the root file system.
	Root string `json:"root"`
	// Arch is the architecture as in GOARCH.
	Arch string `json:"arch"`
}

// ComputeID returns the id of the image that Build creates of a distribution for an architecture, or ""
// for an unknown distribution. It needs neither root nor a network.
func ComputeID(distribution, arch string) string {
	r, err := findRecipe(distribution)
	if err != nil {
		return ""
	}

	return "ami-" + r.contentHash(arch)[:17]
}

// Find returns the image with this id in the cache dir. The error wraps fs.ErrNotExist if it has
// not been built.
func Find(dir, id string) (Image, error) {
	if id == "" || id != filepath.Base(id) {
		return Image{}, fmt.Errorf("%q is not a valid image id", id)
	}

	data, err := os.ReadFile(filepath.Join(dir, id, "image.json"))
	if err != nil {
		return Image{}, fmt.Errorf("find image %s: %w", id, err)
	}

	var img Image
	if err := json.Unmarshal(data, &img); err != nil {
		return Image{}, fmt.Errorf("read image %s: %w", id, err)
	}

	img.Root = filepath.Join(dir, id, "root") // the cache may have been moved

	return img, nil
}

// Build returns the image of opts.Distribution for opts.Arch and builds it if it is not in the cache. It needs root. An
// interrupted build leaves a directory that the next build removes; downloaded packages are reused.
// Concurrent builds wait for each other.
func Build(ctx context.Context, opts Options) (Image, error) {
	r, err := findRecipe(opts.Distribution)
	if err != nil {
		return Image{}, err
	}

	id := ComputeID(opts.Distribution, opts.Arch)
	if img, err := Find(opts.CacheDir, id); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return img, err
	}

	if err := opts.CheckRequirements(); err != nil {
		return Image{}, fmt.Errorf("build image %s: %w", id, err)
	}

	unlock, err := lockCache(opts.CacheDir)
	if err != nil {
		return Image{}, fmt.Errorf("build image %s: %w", id, err)
	}

	defer unlock()
	if img, err := Find(opts.CacheDir, id); err == nil { // another process built it meanwhile
		return img, nil
	}

	b := builder{opts: opts, recipe: r, id: id, buildDir: filepath.Join(opts.CacheDir, ".build")}
	if err := b.runStages(ctx); err != nil {
		return Image{}, fmt.Errorf("build image %s: %w", id, err)
	}

	return Find(opts.CacheDir, id)
}

// CheckRequirements returns all missing requirements.
func (o Options) CheckRequirements() error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(
			errs,
			errors.New("root is required: the image contains device nodes and files of several owners"),
		)
	}

	programs := []string{"debootstrap", "gpgv", "chroot", "mount", "sh"}
	if r, err := findRecipe(o.Distribution); err == nil && r.keyring != (pinnedPackage{}) {
		programs = append(programs, "dpkg-deb")
	}

	for _, program := range programs {
		if o.findProgram(program) == "" {
			errs = append(
				errs,
				fmt.Errorf(
					"program %s not found: install the Debian package %s",
					program,
					packageOf(program),
				),
			)
		}
	}

	return errors.Join(errs...)
}

func packageOf(program string) string {
	switch program {
	case "debootstrap", "gpgv", "mount":
		return program
	case "sh":
		return "dash"
	case "dpkg-deb":
		return "dpkg"
	default:
		return "coreutils"
	}
}

// findProgram returns the path of a program, or "". It also searches the sbin directories, which
// sudo often removes from PATH.
func (o Options) findProgram(program string) string {
	if o.LookPath != nil {
		return o.LookPath(program)
	}

	dirs := []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"}

	for _, dir := range dirs {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path
		}
	}

	return ""
}

func lockCache(dir string) (func(), error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("create image cache: %w", err)
	}

	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock image cache: %w", err)
	}

	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock image cache %s: %w", dir, err), f.Close())
	}

	return func() { _ = f.Close() }, nil
}
